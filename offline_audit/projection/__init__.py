"""Projection test of group fairness: the smallest change of decisions that makes them fair.

arrays ─► sample, options ─► partition (strata, cells, cost curves) ─► common_rate or overlapping
─► gaps ─► p_value (limiting_law, tolerance) ─► effects, explanation ─► result

Distances to the decision boundary: `distances`, and `network_distances`, which requires torch.
"""

from __future__ import annotations

from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.distances import (
    discrete_distances,
    kernel_distances,
    linear_distances,
)
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.test import projection_test

__all__ = [
    "BoundaryDistances",
    "ProjectionResult",
    "discrete_distances",
    "kernel_distances",
    "linear_distances",
    "projection_test",
]
