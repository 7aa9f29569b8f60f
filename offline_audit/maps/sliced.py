"""The Gaussian map, then quantile maps along random directions until the shapes agree too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling, Variable
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.gaussian import Affine, bures
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress, TransportMap

__all__ = ["SlicedMap", "SlicedMethod", "SlicedStep"]

Float = NDArray[np.float64]
_GRID = 257
_CALIBRATIONS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedStep:
    """Quantile maps along the directions of one orthonormal basis.

    Attributes:
        basis: A direction a column, `[d, d]`.
        here: Quantiles of what was moved so far along each direction, `[d, grid]`.
        there: Quantiles of the target, `[d, grid]`.
    """

    basis: Float
    here: Float
    there: Float

    @classmethod
    def between(cls, moved: Float, target: Float, basis: Float) -> SlicedStep:
        """From what was moved so far, `[n, d]`, to the target, `[m, d]`."""
        here, there = (_quantiles(x @ basis) for x in (moved, target))
        return cls(basis=basis, here=here, there=there)

    def transport(self, moved: Float) -> Float:
        """One step further, `[n, d]` to `[n, d]`."""
        along = np.ascontiguousarray((moved @ self.basis).T)
        for place, (here, there) in enumerate(zip(self.here, self.there, strict=True)):
            inside = np.clip(along[place], here[0], here[-1])
            # Who is outside of what was seen stays as far outside.
            along[place] += np.interp(inside, here, there) - inside
        return along.T @ self.basis.T


def _quantiles(along: Float) -> Float:
    """On an even grid of ranks from the lowest to the highest, `[n, d]` to `[d, grid]`."""
    ordered = np.sort(np.ascontiguousarray(along.T), axis=1)
    ranks = np.linspace(0, ordered.shape[1] - 1, _GRID)
    below = np.floor(ranks).astype(np.int64)
    above = np.minimum(below + 1, ordered.shape[1] - 1)
    return ordered[:, below] * (1 - (ranks - below)) + ordered[:, above] * (ranks - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMap:
    """An affine map and quantile maps along directions, on scaled features.

    Whatever is not numeric is spread over its unit first, by a draw, so that it has ranks along
    any direction, and ends on the value or category in whose unit it arrives.

    Attributes:
        scaling: By which people are scaled.
        affine: What comes first.
        steps: What follows.
        leanings: What is added to each category before the highest is taken, by its name, `[c]`.
    """

    scaling: Scaling
    affine: Affine
    steps: tuple[SlicedStep, ...]
    leanings: dict[str, Float]

    @property
    def splits(self) -> bool:
        """Whatever is not numeric is spread by a draw."""
        return any(v.kind != "numeric" for v in self.scaling.columns.variables)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [self._transported(features, draw, n_counterparts) for draw in range(n_counterparts)]
        )

    def _transported(self, features: Features, draw: int, n_counterparts: int) -> Features:
        uniforms = draw_uniforms(features, features.shape[1], draw, n_counterparts)
        moved = self.affine.transport(_spread(self.scaling, features, uniforms))
        for step in self.steps:
            moved = step.transport(moved)
        found = moved * self.scaling.scale + self.scaling.mean
        for variable in self.scaling.columns.variables:
            at = list(variable.columns)
            if variable.kind == "category":
                highest = _with_dropped(found[:, at], variable) + self.leanings[variable.name]
                found[:, at] = highest.argmax(1)[:, None] == np.arange(len(at))
            elif variable.kind != "numeric":
                low, high = self.scaling.low[at], self.scaling.high[at]
                found[:, at] = np.floor(np.clip(found[:, at], low, high))
        return found.astype(np.float32)


def _spread(scaling: Scaling, features: Features, uniforms: Float) -> Float:
    """Scaled, with integers, binaries and one-hot columns spread evenly over [value, value + 1)."""
    discrete = [feature.kind != "numeric" for feature in scaling.columns.features]
    return scaling.scaled(features) + uniforms * discrete / scaling.scale


def _with_dropped(values: Float, variable: Variable) -> Float:
    """A category's columns, and 1 for the dropped one, which none of the others reaches then."""
    return np.column_stack([values, np.ones(len(values))]) if variable.dropped else values


def _leaning(values: Float, shares: Float) -> Float:
    """What to add so that each category is the highest as often as the target has it, `[c]`."""
    found = np.zeros(len(shares))
    # Half a person, so that a category nobody has is left alone.
    floor = 0.5 / len(values)
    for number in range(_CALIBRATIONS):
        now = np.bincount((values + found).argmax(1), minlength=len(shares)) / len(values)
        found += np.log((shares + floor) / (now + floor)) * 0.3 / (1 + number / 10)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMethod:
    """Means and covariances are matched, then distributions along random directions.

    Iterative distribution transfer (Pitié, Kokaram and Dahyot 2007) from where the Gaussian map
    ends. The last step is along the features themselves, so that their distributions agree.

    Attributes:
        steps: How many bases; the seed draws them.
    """

    name: str = "sliced"
    cost: Cost = SQUARED_L2
    quick: bool = True
    steps: int = 15

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise AuditInputError(f"steps: {self.steps} is not 1 or more")

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
        # Not by a hash: people who are alike must spread, too.
        here, there = (
            _spread(scaling, group, rng.random(group.shape)) for group in (source, target)
        )
        affine = bures(here, there)
        moved = affine.transport(here)
        bases = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(self.steps - 1)]
        steps = []
        for basis in [*bases, np.eye(d)]:
            steps.append(SlicedStep.between(moved, there, basis))
            moved = steps[-1].transport(moved)
        return SlicedMap(
            scaling=scaling,
            affine=affine,
            steps=tuple(steps),
            leanings=_leanings(scaling, moved * scaling.scale + scaling.mean, target),
        )


def _leanings(scaling: Scaling, moved: Float, target: Features) -> dict[str, Float]:
    found = {}
    for variable in scaling.columns.variables:
        if variable.kind == "category":
            at = list(variable.columns)
            shares = target[:, at].mean(0, dtype=np.float64)
            if variable.dropped:
                shares = np.append(shares, max(0.0, 1 - shares.sum()))
            found[variable.name] = _leaning(_with_dropped(moved[:, at], variable), shares)
    return found
