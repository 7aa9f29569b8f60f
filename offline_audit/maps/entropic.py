"""Entropic optimal transport: counterparts are people of the other group, near ones likelier."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.exact import distinct_people
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress, TransportMap

__all__ = ["EntropicMap", "EntropicMethod", "conditional", "target_potentials"]

Float = NDArray[np.float64]
# Mass that may still be out of place when the iteration ends.
_TOLERANCE = 1e-4
_ROUNDS, _STEPS = 400, 50
# Logarithm of a factor: before numbers run out the kernel is computed anew.
_LARGEST = 50.0
_TINY = 1e-200
_CHUNK = 2_000


def target_potentials(costs: Float, here: Float, there: Float, epsilon: float) -> Float:
    """The targets' dual potentials g of the plan exp((f + g − c)/ε), `[l]`.

    Sinkhorn's iteration on a kernel that already holds what was found so far, so that it neither
    over- nor underflows (Schmitzer 2019, section 3.1), with ε lowered in steps.

    Args:
        costs: Of each pair, `[k, l]`.
        here: The source's shares a, `[k]`.
        there: The target's shares b, `[l]`.
        epsilon: Above 0.

    Raises:
        AuditInputError: It did not converge.
    """
    potentials = np.zeros(len(there))
    halvings = max(0, math.ceil(math.log2(max(float(costs.max()), 1e-300) / epsilon / 64)))
    for halving in range(halvings, -1, -1):
        warmth = epsilon * 2.0**halving
        potentials = _balanced(costs, here, there, warmth, potentials, last=halving == 0)
    return potentials


def _balanced(
    costs: Float, here: Float, there: Float, epsilon: float, potentials: Float, *, last: bool
) -> Float:
    """Potentials for one ε; before the last, roughly."""
    for _ in range(_ROUNDS if last else 1):
        plan = here[:, None] * conditional(costs, potentials, epsilon)
        if np.abs(plan.sum(0) - there).sum() < _TOLERANCE:
            return potentials
        rows, columns = np.ones(len(here)), np.ones(len(there))
        for _ in range(_STEPS):
            columns = there / np.maximum(rows @ plan, _TINY)
            rows = here / np.maximum(plan @ columns, _TINY)
            if max(np.abs(np.log(rows)).max(), np.abs(np.log(columns)).max()) > _LARGEST:
                break
        potentials = potentials + epsilon * np.log(columns)
    if last:
        raise AuditInputError(
            f"entropic: no plan between {len(here):,} and {len(there):,} people was found; "
            "take a larger epsilon"
        )
    return potentials


def conditional(costs: Float, potentials: Float, epsilon: float) -> Float:
    """P(target | source) ∝ exp((g − c)/ε), `[k, l]`."""
    weights = (potentials - costs) / epsilon
    weights -= weights.max(1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(1, keepdims=True)
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicMap:
    """A kernel from any person to the sampled people of the target.

    Attributes:
        scaling: By which people are scaled.
        cost: Of a pair.
        epsilon: In the cost's own unit.
        targets: People of the target, `[l, d]`.
        potentials: Of each, `[l]`.
        barycentric: Whether people go to the mean of their counterparts.
    """

    scaling: Scaling
    cost: Cost
    epsilon: float
    targets: Features
    potentials: Float
    barycentric: bool

    @property
    def splits(self) -> bool:
        """Everyone has several counterparts, unless their mean stands for them."""
        if self.barycentric:
            return any(v.kind != "numeric" for v in self.scaling.columns.variables)
        return len(self.targets) > 1

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        found = np.empty((n_counterparts, *features.shape), np.float32)
        for start in range(0, len(features), _CHUNK):
            rows = slice(start, start + _CHUNK)
            found[:, rows] = self._transported(features[rows], n_counterparts)
        return found

    def _transported(self, features: Features, n_counterparts: int) -> Features:
        there = self.scaling.scaled(self.targets)
        costs = self.cost.pairwise(self.scaling.scaled(features), there)
        chances = conditional(costs, self.potentials, self.epsilon)
        if self.barycentric:
            count = len(self.scaling.columns.variables)
            drawn = [
                draw_uniforms(features, count, draw, n_counterparts)
                for draw in range(n_counterparts)
            ]
            moved = chances @ there
            return np.stack([self.scaling.settled(moved, uniforms) for uniforms in drawn])
        upto = np.cumsum(chances, axis=1)
        drawn = [draw_uniforms(features, 1, draw, n_counterparts) for draw in range(n_counterparts)]
        places = [(upto <= uniforms * upto[:, -1:]).sum(1) for uniforms in drawn]
        found: Features = self.targets[np.minimum(np.stack(places), len(self.targets) - 1)]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EntropicMethod:
    """The plan between samples of both groups that is optimal up to some blur.

    Attributes:
        rows: People of each group at most, drawn by the seed.
        epsilon: How much blur, as a share of the median cost of a pair. With less the map follows
            its sample more closely and takes longer to fit; with more, draws of one person differ
            more, which by itself turns decisions.
        barycentric: Take the mean of a person's counterparts instead of drawing one: a function,
            whose answers do not differ by draw. Means lie closer together than people do, and are
            nobody: where features are not numeric each is rounded by itself. So it is not the
            default.
    """

    name: str = "entropic"
    cost: Cost = SQUARED_L2
    quick: bool = False
    rows: int = 2_000
    epsilon: float = 0.01
    barycentric: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise AuditInputError(f"rows: {self.rows} is not 1 or more")
        if not 0 < self.epsilon < math.inf:
            raise AuditInputError(f"epsilon: {self.epsilon:g} is not above 0")

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
        sources, here = distinct_people(source, self.rows, rng)
        targets, there = distinct_people(target, self.rows, rng)
        costs = self.cost.pairwise(scaling.scaled(sources), scaling.scaled(targets))
        epsilon = self.epsilon * _typical(costs)
        weights = here / here.sum(), there / there.sum()
        return EntropicMap(
            scaling=scaling,
            cost=self.cost,
            epsilon=epsilon,
            targets=targets,
            potentials=target_potentials(costs, *weights, epsilon),
            barycentric=self.barycentric,
        )


def _typical(costs: Float) -> float:
    """The median cost; the mean where most pairs are alike, and 1 where all are."""
    return float(np.median(costs)) or float(costs.mean()) or 1.0
