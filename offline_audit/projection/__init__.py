"""Projection test of group fairness: the least change of decisions that would make them fair.

arrays ─► sample ─► criteria (strata, cells, cost curves) ─► common rate, or overlapping ─► gaps
─► limiting law ─► effects, explanation ─► result

Distances to the decision boundary: `distances`, and `network_distances` where torch is installed.
"""

from __future__ import annotations

from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.distances import (
    discrete_distances,
    kernel_distances,
    linear_distances,
)
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.run import projection_test

__all__ = [
    "BoundaryDistances",
    "ProjectionResult",
    "discrete_distances",
    "kernel_distances",
    "linear_distances",
    "projection_test",
]
