"""Repair how variables hang together, after their margins were matched one by one.

Carried people have the target's margins, but the source's ties between features. Where those differ
(pairs of variables, tested), they are moved on in normal scores by sliced steps: along random
directions one-dimensional quantile maps, each only if the two samples differ along it. Variables
that do not differ between the groups on their own stay: what differs is how the others hang on
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.dependence import BinnedPeople, category_places
from offline_audit.maps.gaussian import Affine, bures
from offline_audit.maps.transport_map import Features

__all__ = ["LinkedPairs", "NormalScores", "Repair", "fit_repair", "judged_people"]

Float = NDArray[np.float64]
# Values of the sample that are kept.
_MOST = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalScores:
    """One variable: z = Φ⁻¹(rank), where a value that many share stands for a stretch of ranks.

    Attributes:
        variable: Which one.
        held: The sample's values in order; of a category the places in the order of categories.
        order: For a category, the place in that order of each of its places, `[1 + c]`.
    """

    variable: Variable
    held: Float
    order: NDArray[np.intp] | None

    @classmethod
    def of(
        cls, sample: Features, variable: Variable, order: NDArray[np.intp] | None = None
    ) -> NormalScores:
        """From a sample `[n, d]`; a category needs an order of its places."""
        values = _values(sample, variable, order)
        if len(values) > _MOST:
            values = np.quantile(values, np.linspace(0, 1, _MOST), method="inverted_cdf")
        return cls(variable=variable, held=np.sort(values), order=order)

    def scores(self, features: Features, uniforms: Float) -> Float:
        """Of people `[n, d]`; uniforms say where in a shared value's ranks each stands, `[n]`."""
        values, n = _values(features, self.variable, self.order), len(self.held)
        low = np.searchsorted(self.held, values, "left")
        high = np.searchsorted(self.held, values, "right")
        rank = low + uniforms * (high - low)
        return np.asarray(ndtri(np.clip(rank / n, 0.5 / n, 1 - 0.5 / n)))

    def write(self, features: Features, scores: Float, rows: NDArray[np.bool_]) -> None:
        """Give the rows the values with these scores, in place."""
        n = len(self.held)
        rank = ndtr(scores[rows]) * n
        at = list(self.variable.columns)
        if self.variable.kind == "numeric":
            features[rows, at[0]] = np.interp(rank, np.arange(n) + 0.5, self.held)
            return
        found = self.held[np.clip(rank.astype(np.intp), 0, n - 1)]
        if self.order is None:
            features[rows, at[0]] = found
            return
        places = np.argsort(self.order)[found.astype(np.intp)]
        features[np.ix_(np.flatnonzero(rows), np.array(at))] = places[:, None] == np.arange(len(at))


def _values(features: Features, variable: Variable, order: NDArray[np.intp] | None) -> Float:
    if order is None:
        return features[:, variable.columns[0]].astype(np.float64)
    return order[category_places(features, variable)].astype(np.float64)


# Chance that any pair of variables is repaired where none differs.
_LEVEL = 0.01
# Of a direction's Kolmogorov–Smirnov test: below it the step leaves the direction alone.
_DIRECTION_LEVEL = 0.05
# People of each group on whom pairs are judged, and steps learned.
_JUDGED, _LEARNED = 20_000, 10_000
_STEPS, _TRIES, _QUIET = 15, 60, 3
_GRID = np.linspace(0, 1, 257)[1:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Displacements along the directions of a basis.

    Attributes:
        basis: Columns are directions, `[m, m]`.
        places: Quantiles of the people before the step along each, `[q, m]`.
        shifts: What people there are moved by, `[q, m]`; zero where the direction stays.
    """

    basis: Float
    places: Float
    shifts: Float

    def shift(self, scores: Float) -> Float:
        along = scores @ self.basis
        moved = np.zeros_like(along)
        for column in np.flatnonzero(self.shifts.any(0)):
            moved[:, column] = np.interp(
                along[:, column], self.places[:, column], self.shifts[:, column]
            )
        return np.asarray(moved @ self.basis.T)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Moves people whose margins are right until their variables hang together as the target's.

    Attributes:
        pairs: Places of the variables that hung together otherwise.
        variables: Places of the variables that take part.
        free: Which of them may move, bool `[m]`.
        scores: Their normal scores in the target.
        affine: The first step where all may move.
        steps: The others.
        margins: Quantiles of the moved scores, which are normal again in the end, `[q, m]`.
    """

    pairs: tuple[tuple[int, int], ...]
    variables: tuple[int, ...]
    free: NDArray[np.bool_]
    scores: tuple[NormalScores, ...]
    affine: Affine | None
    steps: tuple[_Step, ...]
    margins: Float

    def transport(self, features: Features, uniforms: Float) -> Features:
        """People `[n, d]` moved on; uniforms `[n, m]` as in `NormalScores.scores`."""
        before = _scores(self.scores, features, uniforms)
        after = before if self.affine is None else self.affine.transport(before)
        for step in self.steps:
            after = after + step.shift(after) * self.free
        transported = features.copy()
        normal = ndtri(_GRID)
        for place in np.flatnonzero(self.free):
            margin, moved = self.margins[:, place], after[:, place]
            # Beyond the grid as far beyond as before.
            inside = np.clip(moved, margin[0], margin[-1])
            settled = np.interp(inside, margin, normal) + (moved - inside)
            changed = moved != before[:, place]
            self.scores[place].write(transported, settled, changed)
        return transported


class LinkedPairs:
    """Pairs of variables that hang together otherwise in two parts of some people.

    Args:
        people: With equal margins in all parts, `[n, d]`.
        columns: What the columns are.
        seed: Of the choice among many people.
    """

    def __init__(self, people: Features, columns: Columns, seed: int = 0) -> None:
        self._chosen = _some(len(people), 2 * _JUDGED, seed)
        self._people = BinnedPeople.of(people[self._chosen], columns)

    def between(self, first: NDArray[np.bool_]) -> list[tuple[int, int]]:
        """For a split in two, bool `[n]`."""
        return self._people.differing(first[self._chosen], _LEVEL)


def judged_people(people: Features, seed: int) -> Features:
    """As many as pairs are judged on, `[n, d]`; all where they are few."""
    return people if len(people) <= _JUDGED else people[_some(len(people), _JUDGED, seed)]


def fit_repair(
    pushed: Features,
    target: Features,
    columns: Columns,
    pairs: Sequence[tuple[int, int]],
    moved: Sequence[str],
    seed: int,
) -> Repair:
    """Learn the steps.

    Args:
        pushed: People with the target's margins, `[n, d]`.
        target: The target, `[m, d]`.
        columns: What the columns are.
        pairs: Of variables, that hang together otherwise.
        moved: Names of the variables whose margins differed between the groups.
        seed: Of the directions, and of where people stand among those with the same value.
    """
    here, there = (_some(len(people), _LEARNED, seed) for people in (pushed, target))
    pushed, target = pushed[here], target[there]
    places = tuple(sorted({place for pair in pairs for place in pair}))
    named = {place for place in places if columns.variables[place].name in moved}
    free = {place for pair in pairs for place in (named & set(pair) or pair)}
    scores = tuple(
        NormalScores.of(
            target, columns.variables[place], _category_order(target, columns, place, pairs)
        )
        for place in places
    )
    may_move = np.array([place in free for place in places])
    # Not by a hash of the row: people who are alike must not stand together.
    anywhere = np.random.default_rng([seed, 1])
    source, wanted = (
        _scores(scores, people, anywhere.random((len(people), len(places))))
        for people in (pushed, target)
    )
    affine = bures(source, wanted) if may_move.all() else None
    after = source if affine is None else affine.transport(source)
    steps, after = _learn(after, wanted, may_move, np.random.default_rng(seed))
    return Repair(
        pairs=tuple(pairs),
        variables=places,
        free=may_move,
        scores=scores,
        affine=affine,
        steps=tuple(steps),
        margins=np.quantile(after, _GRID, axis=0),
    )


def _learn(
    here: Float, wanted: Float, free: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[list[_Step], Float]:
    """Steps until no direction of several bases in turn shows a difference."""
    width, quiet, steps = here.shape[1], 0, list[_Step]()
    size = round(len(here) * len(wanted) / (len(here) + len(wanted)))
    critical = float(stats.kstwo.isf(_DIRECTION_LEVEL, max(size, 1)))
    for _ in range(_TRIES):
        if quiet >= _QUIET or len(steps) >= _STEPS:
            break
        basis = np.linalg.qr(rng.standard_normal((width, width)))[0]
        mine, theirs = np.sort(here @ basis, 0), np.sort(wanted @ basis, 0)
        differs = np.array([_gap(mine[:, c], theirs[:, c]) > critical for c in range(width)])
        if not differs.any():
            quiet += 1
            continue
        quiet = 0
        places = np.quantile(mine, _GRID, axis=0)
        shifts = np.where(differs, np.quantile(theirs, _GRID, axis=0) - places, 0.0)
        step = _Step(basis=basis, places=places, shifts=shifts)
        here = here + step.shift(here) * free
        steps.append(step)
    return steps, here


def _some(n: int, most: int, seed: int) -> NDArray[np.intp]:
    """Places of some people, all where they are few."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _gap(one: Float, other: Float) -> float:
    """Kolmogorov–Smirnov statistic of two sorted samples without ties."""
    ranks = np.searchsorted(one, other) / len(one)
    return float(np.abs(ranks - (np.arange(len(other)) + 0.5) / len(other)).max())


def _scores(scores: Sequence[NormalScores], features: Features, uniforms: Float) -> Float:
    return np.column_stack(
        [each.scores(features, uniforms[:, place]) for place, each in enumerate(scores)]
    )


def _category_order(
    target: Features, columns: Columns, place: int, pairs: Sequence[tuple[int, int]]
) -> NDArray[np.intp] | None:
    """Categories in the order of what they hang together with; None for other kinds.

    The first axis of a correspondence analysis of the category against its partners' bins.
    """
    variable = columns.variables[place]
    if variable.kind != "category":
        return None
    people = BinnedPeople.of(target, columns)
    partners = {other for pair in pairs if place in pair for other in pair} - {place}
    beside = people.indicators[:, np.isin(people.owner, list(partners))]
    places = category_places(target, variable)
    own = (places[:, None] == np.arange(len(variable.columns) + 1)).astype(np.float64)
    table = own.T @ beside
    expected = np.outer(table.sum(1), table.sum(0)) / max(table.sum(), 1.0)
    residual = np.divide(
        table - expected, np.sqrt(expected), out=np.zeros_like(table), where=expected > 0
    )
    left, _, _ = np.linalg.svd(residual, full_matrices=False)
    shares = np.sqrt(np.maximum(table.sum(1), 1.0))
    return np.argsort(np.argsort(left[:, 0] / shares, kind="stable"), kind="stable")
