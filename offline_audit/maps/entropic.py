"""Entropic optimal transport: counterparts are rows of the other group, near ones likelier."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.exact import distinct_rows
from offline_audit.maps.transport_map import (
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
    draw_uniforms,
)

__all__ = ["EntropicMap", "EntropicMethod", "conditional", "target_potentials"]

Float = NDArray[np.float64]
# Largest total error of the target's marginal at convergence.
_TOLERANCE = 1e-4
# Kernels computed at most, and iterations with one kernel.
_ROUNDS, _STEPS = 400, 50
# Logarithm of a scaling factor above which the kernel is recomputed, before it overflows.
_LARGEST_LOG = 50.0
_TINY = 1e-200
# Rows transported at once.
_CHUNK = 2_000


def target_potentials(costs: Float, source: Float, target: Float, epsilon: float) -> Float:
    """Dual potentials g of the target in the plan exp((f + g − c)/ε), `[l]`.

    Sinkhorn's iteration with log-domain stabilization: the kernel absorbs the potentials found so
    far, so that it neither overflows nor underflows (Schmitzer 2019, section 3.1). ε decreases in
    steps (ε-scaling).

    Args:
        costs: Costs of all pairs, `[k, l]`.
        source: Shares a of the source rows, `[k]`.
        target: Shares b of the target rows, `[l]`.
        epsilon: Regularization, above 0.

    Raises:
        AuditInputError: The iteration did not converge.
    """
    potentials = np.zeros(len(target))
    halvings = max(0, math.ceil(math.log2(max(float(costs.max()), 1e-300) / epsilon / 64)))
    for halving in range(halvings, -1, -1):
        current = epsilon * 2.0**halving
        potentials = _balanced(costs, source, target, current, potentials, last=halving == 0)
    return potentials


def _balanced(
    costs: Float, source: Float, target: Float, epsilon: float, potentials: Float, *, last: bool
) -> Float:
    """Potentials for one ε, to convergence only if it is the last."""
    for _ in range(_ROUNDS if last else 1):
        plan = source[:, None] * conditional(costs, potentials, epsilon)
        if np.abs(plan.sum(0) - target).sum() < _TOLERANCE:
            return potentials
        rows, columns = np.ones(len(source)), np.ones(len(target))
        for _ in range(_STEPS):
            columns = target / np.maximum(rows @ plan, _TINY)
            rows = source / np.maximum(plan @ columns, _TINY)
            if max(np.abs(np.log(rows)).max(), np.abs(np.log(columns)).max()) > _LARGEST_LOG:
                break
        potentials = potentials + epsilon * np.log(columns)
    if last:
        raise AuditInputError(
            f"map entropic: the iteration did not converge for {len(source):,} and "
            f"{len(target):,} distinct rows; use a larger epsilon"
        )
    return potentials


def conditional(costs: Float, potentials: Float, epsilon: float) -> Float:
    """P(target | source) ∝ exp((g − c)/ε), `[k, l]`."""
    weights = (potentials - costs) / epsilon
    # The largest exponent of each row becomes 0, so that exp cannot overflow.
    weights -= weights.max(1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(1, keepdims=True)
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicMap:
    """A stochastic map from any row to the sampled rows of the target.

    Attributes:
        scaling: Scaling of the features.
        cost: Transport cost of a pair.
        epsilon: Regularization, in the unit of the cost.
        targets: Sampled target rows, `[l, d]`.
        potentials: Dual potential of each target row, `[l]`.
        barycentric: Whether a row is transported to the mean of its counterparts.
    """

    scaling: Scaling
    cost: Cost
    epsilon: float
    targets: Features
    potentials: Float
    barycentric: bool

    @property
    def splits(self) -> bool:
        """True unless the mean of numeric counterparts is used, or there is only one target row."""
        if self.barycentric:
            return any(v.kind != "numeric" for v in self.scaling.columns.variables)
        return len(self.targets) > 1

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        transported = np.empty((n_counterparts, *features.shape), np.float32)
        for start in range(0, len(features), _CHUNK):
            rows = slice(start, start + _CHUNK)
            transported[:, rows] = self._transported(features[rows], n_counterparts)
        return transported

    def _transported(self, features: Features, n_counterparts: int) -> Features:
        targets = self.scaling.scaled(self.targets)
        costs = self.cost.pairwise(self.scaling.scaled(features), targets)
        probabilities = conditional(costs, self.potentials, self.epsilon)
        count = len(self.scaling.columns.variables) if self.barycentric else 1
        draws = [
            draw_uniforms(features, count, draw, n_counterparts) for draw in range(n_counterparts)
        ]
        if self.barycentric:
            means = probabilities @ targets
            return np.stack([self.scaling.unscaled(means, uniforms) for uniforms in draws])
        # The inverse of the cumulative distribution, scaled because its last value is not quite 1.
        cumulative = np.cumsum(probabilities, axis=1)
        chosen = [(cumulative <= uniforms * cumulative[:, -1:]).sum(1) for uniforms in draws]
        transported: Features = self.targets[np.minimum(np.stack(chosen), len(self.targets) - 1)]
        return transported


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicMethod:
    """The entropy-regularized optimal plan between samples of both groups.

    Attributes:
        rows: Largest sample of each group.
        epsilon: Regularization, as a share of the median cost of a pair. With a smaller value the
            map follows its sample more closely and takes longer to fit. With a larger value the
            draws of one row differ more, which by itself changes decisions.
        barycentric: Transport a row to the mean of its counterparts instead of drawing one. The
            map is then deterministic for numeric features. It is not the default, because means
            vary less than rows do, and features that are not numeric are rounded separately.
    """

    name: str = "entropic"
    cost: Cost = SQUARED_L2
    quick: bool = False
    rows: int = 2_000
    epsilon: float = 0.01
    barycentric: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise AuditInputError(f"rows: must be at least 1; got {self.rows}")
        if not 0 < self.epsilon < math.inf:
            raise AuditInputError(f"epsilon: must be finite and above 0; got {self.epsilon:g}")

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """See `MapMethod`."""
        rng = np.random.default_rng(seed)
        scaling = Scaling.of(source, target, columns)
        sources, source_counts = distinct_rows(source, self.rows, rng)
        targets, target_counts = distinct_rows(target, self.rows, rng)
        costs = self.cost.pairwise(scaling.scaled(sources), scaling.scaled(targets))
        epsilon = self.epsilon * _typical_cost(costs)
        shares = source_counts / source_counts.sum(), target_counts / target_counts.sum()
        return EntropicMap(
            scaling=scaling,
            cost=self.cost,
            epsilon=epsilon,
            targets=targets,
            potentials=target_potentials(costs, *shares, epsilon),
            barycentric=self.barycentric,
        )


def _typical_cost(costs: Float) -> float:
    """The median cost; the mean if the median is 0, and 1 if all costs are 0."""
    return float(np.median(costs)) or float(costs.mean()) or 1.0
