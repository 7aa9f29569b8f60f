"""The sliced map: the Gaussian map, then quantile maps along random directions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling, Variable
from offline_audit.maps.gaussian import Affine, bures
from offline_audit.maps.transport_map import (
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
    draw_uniforms,
)

__all__ = ["SlicedMap", "SlicedMethod", "SlicedStep"]

Float = NDArray[np.float64]
# Points of a quantile function.
_GRID = 257
# Iterations that fit the offsets of categories.
_OFFSET_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedStep:
    """Quantile maps along the directions of one orthonormal basis.

    Attributes:
        basis: Orthonormal basis; columns are directions, `[d, d]`.
        before: Quantiles of the moved rows before the step along each direction, `[d, grid]`.
        target: Quantiles of the target along each direction, `[d, grid]`.
    """

    basis: Float
    before: Float
    target: Float

    @classmethod
    def between(cls, moved: Float, target: Float, basis: Float) -> SlicedStep:
        """The step from rows moved so far, `[n, d]`, to the target, `[m, d]`."""
        return cls(basis=basis, before=_quantiles(moved @ basis), target=_quantiles(target @ basis))

    def transport(self, moved: Float) -> Float:
        """Rows after the step, `[n, d]` to `[n, d]`."""
        along = np.ascontiguousarray((moved @ self.basis).T)
        for index, (before, target) in enumerate(zip(self.before, self.target, strict=True)):
            inside = np.clip(along[index], before[0], before[-1])
            # Values outside the fitted range keep their distance from it.
            along[index] += np.interp(inside, before, target) - inside
        return along.T @ self.basis.T


def _quantiles(along: Float) -> Float:
    """Quantiles on an even grid of ranks, both ends included, `[n, d]` to `[d, grid]`."""
    ordered = np.sort(np.ascontiguousarray(along.T), axis=1)
    ranks = np.linspace(0, ordered.shape[1] - 1, _GRID)
    below = np.floor(ranks).astype(np.int64)
    above = np.minimum(below + 1, ordered.shape[1] - 1)
    return ordered[:, below] * (1 - (ranks - below)) + ordered[:, above] * (ranks - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMap:
    """An affine map of scaled features, followed by quantile maps along directions.

    Values that are not numeric get a uniform number in [0, 1) added first, so that they have ranks
    along any direction. Integers and binaries are rounded down at the end; of a category the
    column with the largest value is taken.

    Attributes:
        scaling: Scaling of the features.
        affine: First step.
        steps: Sliced steps.
        offsets: Added to the columns of a category before the largest is taken, by the name of
            the variable, `[c]`. They give each category its share in the target.
    """

    scaling: Scaling
    affine: Affine
    steps: tuple[SlicedStep, ...]
    offsets: dict[str, Float]

    @property
    def splits(self) -> bool:
        """True if any variable is not numeric, because those are jittered at random."""
        return any(v.kind != "numeric" for v in self.scaling.columns.variables)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [self._transported(features, draw, n_counterparts) for draw in range(n_counterparts)]
        )

    def _transported(self, features: Features, draw: int, n_counterparts: int) -> Features:
        uniforms = draw_uniforms(features, features.shape[1], draw, n_counterparts)
        moved = self.affine.transport(_jittered(self.scaling, features, uniforms))
        for step in self.steps:
            moved = step.transport(moved)
        transported = moved * self.scaling.scale + self.scaling.mean
        for variable in self.scaling.columns.variables:
            at = list(variable.columns)
            if variable.kind == "category":
                values = _with_dropped(transported[:, at], variable) + self.offsets[variable.name]
                transported[:, at] = values.argmax(1)[:, None] == np.arange(len(at))
            elif variable.kind != "numeric":
                low, high = self.scaling.low[at], self.scaling.high[at]
                transported[:, at] = np.floor(np.clip(transported[:, at], low, high))
        return transported.astype(np.float32)


def _jittered(scaling: Scaling, features: Features, uniforms: Float) -> Float:
    """Scaled features; values that are not numeric are uniform over [value, value + 1)."""
    discrete = [feature.kind != "numeric" for feature in scaling.columns.features]
    return scaling.scaled(features) + uniforms * discrete / scaling.scale


def _with_dropped(values: Float, variable: Variable) -> Float:
    """The columns of a category, with 1 for the dropped category.

    A row of the dropped category has values below 1 in all other columns.
    """
    return np.column_stack([values, np.ones(len(values))]) if variable.dropped else values


def _category_offsets(values: Float, shares: Float) -> Float:
    """Offsets with which each category is the largest as often as in the target, `[c]`."""
    offsets = np.zeros(len(shares))
    # Half a row, so that the logarithm of an empty category is finite.
    floor = 0.5 / len(values)
    for number in range(_OFFSET_STEPS):
        current = np.bincount((values + offsets).argmax(1), minlength=len(shares)) / len(values)
        # Decreasing steps, because shares jump as rows change category.
        offsets += np.log((shares + floor) / (current + floor)) * 0.3 / (1 + number / 10)
    return offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMethod:
    """Matches means and covariances, then distributions along random directions.

    Iterative distribution transfer (Pitié, Kokaram and Dahyot 2007), started from the Gaussian map.
    The last step is along the features themselves, so that their distributions agree.

    Attributes:
        steps: Number of steps, each with its own basis.
    """

    name: str = "sliced"
    cost: Cost = SQUARED_L2
    quick: bool = True
    steps: int = 15

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise AuditInputError(f"steps: must be at least 1; got {self.steps}")

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
        rng, d = np.random.default_rng(seed), len(columns)
        scaling = Scaling.of(source, target, columns)
        # Random numbers instead of a hash of the row: duplicates must spread, too.
        jittered_source, jittered_target = (
            _jittered(scaling, group, rng.random(group.shape)) for group in (source, target)
        )
        affine = bures(jittered_source, jittered_target)
        moved = affine.transport(jittered_source)
        bases = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(self.steps - 1)]
        steps = []
        for basis in [*bases, np.eye(d)]:
            steps.append(SlicedStep.between(moved, jittered_target, basis))
            moved = steps[-1].transport(moved)
        return SlicedMap(
            scaling=scaling,
            affine=affine,
            steps=tuple(steps),
            offsets=_offsets(scaling, moved * scaling.scale + scaling.mean, target),
        )


def _offsets(scaling: Scaling, moved: Float, target: Features) -> dict[str, Float]:
    """Offsets of all categories, by the names of the variables."""
    offsets = {}
    for variable in scaling.columns.variables:
        if variable.kind == "category":
            at = list(variable.columns)
            shares = target[:, at].mean(0, dtype=np.float64)
            if variable.dropped:
                shares = np.append(shares, max(0.0, 1 - shares.sum()))
            offsets[variable.name] = _category_offsets(
                _with_dropped(moved[:, at], variable), shares
            )
    return offsets
