"""FlipTest: whose decision would change in another group, and through which features.

sample ─► decisions of the model ─► validated maps in both directions ─► flipsets (pair) ─►
intervals, null distribution and p-value (resampling), identification (flipset) ─► transparency
report, marginals, subgroup ─► result
"""

from __future__ import annotations

from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.result import FlipDirection, FlipTestResult
from offline_audit.fliptest.test import flip_test

__all__ = ["FlipDirection", "FlipTestResult", "Flipset", "flip_test"]
