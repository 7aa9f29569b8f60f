"""Projection test of group fairness: the least change of decisions that would make them fair.

arrays ─► sample ─► criteria (strata, cells, cost curves) ─► common rate, or overlapping ─► gaps
─► limiting law ─► effects, explanation ─► result
"""

from __future__ import annotations

from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.run import projection_test

__all__ = ["BoundaryDistances", "ProjectionResult", "projection_test"]
