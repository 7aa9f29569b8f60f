"""FlipTest: who is treated differently, and through which features.

people ─► model decides ─► maps, both ways (validated) ─► flipsets ─► intervals, null,
identification ─► transparency report, marginals, subgroup ─► result
"""

from __future__ import annotations

from offline_audit.fliptest.direction import FlipDirection
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.result import FlipTestResult
from offline_audit.fliptest.test import flip_test

__all__ = ["FlipDirection", "FlipTestResult", "Flipset", "flip_test"]
