"""Projection test of group fairness: the smallest change of decisions that makes them fair.

Modules in the order of the computation:

test ─► sample (arrays, options) ─► partition (strata, tested groups), cells (cost curves)
─► fair_change (the statistic) ─► gaps (rates, covariance, intervals) ─► limiting_law, p_value
─► unknown (p holds for all that unknown labels and groups leave open) ─► power (smallest detectable
effects), explanation ─► result

`window` applies the test to a window of the traffic log. Distances to the decision boundary are in
`boundary`, `distances` and `network_distances`, which requires torch.
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
