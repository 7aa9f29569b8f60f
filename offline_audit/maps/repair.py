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

from offline_audit.maps.columns import Columns, Features, Variable, category_places
from offline_audit.maps.gaussian import Affine, bures

__all__ = ["BinnedPeople", "NormalScores", "Repair", "fit_repair", "some_rows"]

Float = NDArray[np.float64]
# Values of the sample that are kept.
_MOST = 20_000
# Bins of an ordered variable, each with about as many people.
_BINS = 5
# Cells of a pair's table that fewer people are in, in both samples together, count as one cell.
_RARE = 10


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


# Of a direction's Kolmogorov–Smirnov test: below it the step leaves the direction alone.
_DIRECTION_LEVEL = 0.05
# People of each group on whom steps are learned.
_LEARNED = 10_000
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
    here, there = (some_rows(len(people), _LEARNED, seed) for people in (pushed, target))
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


def some_rows(n: int, most: int, seed: int) -> NDArray[np.intp]:
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


@dataclass(frozen=True, kw_only=True)
class BinnedPeople:
    """Indicators of the bin that each person is in, variable by variable.

    Attributes:
        indicators: 1 in the bins that a person is in, float32 `[n, c]`.
        owner: Variable of each bin, `[c]`.
    """

    indicators: NDArray[np.float32]
    owner: NDArray[np.intp]

    @classmethod
    def of(cls, people: Features, columns: Columns) -> BinnedPeople:
        """Bins hold about as many people each; categories are their own bins."""
        codes = [_codes(people, variable) for variable in columns.variables]
        sizes = [int(code.max(initial=0)) + 1 for code in codes]
        starts = np.cumsum([0, *sizes])
        indicators = np.zeros((len(people), starts[-1]), np.float32)
        for code, start in zip(codes, starts, strict=False):
            indicators[np.arange(len(people)), start + code] = 1.0
        return cls(indicators=indicators, owner=np.repeat(np.arange(len(sizes)), sizes))

    def differing(self, first: NDArray[np.bool_], level: float) -> list[tuple[int, int]]:
        """Pairs of variables whose joint bins are filled otherwise in the two parts.

        χ² of homogeneity over the cells of each pair; the level is shared by all pairs
        (Bonferroni).

        Args:
            first: Who is in the first part, bool `[n]`; the others are in the second.
            level: Chance that any pair is found where none differs.
        """
        here, there = (part.T @ part for part in (self.indicators[first], self.indicators[~first]))
        sizes = float(first.sum()), float((~first).sum())
        statistic, cells = self._homogeneity(here.astype(float), there.astype(float), sizes)
        pairs = np.triu_indices(len(statistic), 1)
        p_values = stats.chi2.sf(statistic[pairs], np.maximum(cells[pairs] - 1, 1))
        called = p_values < level / max(len(p_values), 1)
        return [(int(i), int(j)) for i, j in zip(pairs[0][called], pairs[1][called], strict=True)]

    def _homogeneity(
        self, here: Float, there: Float, sizes: tuple[float, float]
    ) -> tuple[Float, Float]:
        """χ² of every pair of variables, and how many cells it sums over, `[v, v]` each."""
        blocks = (self.owner[:, None] == np.arange(self.owner.max() + 1)).astype(float)

        def summed(values: Float) -> Float:
            return np.asarray(blocks.T @ values @ blocks)

        rare = here + there < _RARE
        pooled = _cell(summed(np.where(rare, here, 0.0)), summed(np.where(rare, there, 0.0)), sizes)
        kept = _cell(np.where(rare, 0.0, here), np.where(rare, 0.0, there), sizes)
        together = summed(np.where(rare, here + there, 0.0)) > 0
        return summed(kept) + pooled, summed((~rare).astype(float)) + together


def _cell(here: Float, there: Float, sizes: tuple[float, float]) -> Float:
    """What cells add to χ² of two samples with these counts."""
    ratio = np.sqrt(sizes[1] / sizes[0])
    gap = ratio * here - there / ratio
    total = here + there
    return np.asarray(np.divide(gap**2, total, out=np.zeros_like(gap), where=total > 0))


def _codes(people: Features, variable: Variable) -> NDArray[np.intp]:
    if variable.kind == "category":
        return category_places(people, variable)
    values = people[:, variable.columns[0]]
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    edges = np.unique(np.quantile(values, inner, method="inverted_cdf"))
    return np.searchsorted(edges, values, "left")
