"""Fitting of the repair of dependence: which variables depend on each other differently, and how.

A variable is an ordered feature or a one-hot group. Rows of one group, transported feature by
feature, are compared with rows of the other: every pair of variables by a χ² test over the cells of
its bins. Of a pair that differs

- if a causal order is given, the later of two ordered features moves, given the earlier;
- otherwise the variable whose own distribution differs moves, given the other (its predictor);
- if that is so for both ordered features, or for neither, the data do not identify which of them
  the group affects. There are two repairs, one for each direction, and scores average over both;
- an ordered feature moves given a category; a category does not move further.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.scoring.counterfactual.repair import Repair, scores_of_ranks

__all__ = ["ROWS", "BinnedRows", "Variables", "fit_repair"]

Float = NDArray[np.float64]
# Rows per group to which the repair is fitted; more change little.
ROWS = 20_000
# Probability that any pair of variables is repaired if none differs.
_LEVEL = 0.01
# Bins of an ordered variable in the tests, of about equal numbers of rows.
_BINS = 5
# Cells of a pair's table with fewer rows, in both samples together, are pooled.
_RARE = 10
# Quantile levels between which μ and log σ are linear in an ordered predictor.
_KNOTS = (0.01, 0.1, 0.25, 0.4, 0.6, 0.75, 0.9, 0.99)
# Ridge penalty per row, relative to the variance of a score.
_RIDGE = 1e-3
_RESIDUAL_GRID = np.linspace(0, 1, 33)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Columns of the variables: ordered features first, then one-hot groups.

    Attributes:
        ordered: Columns of the ordered features.
        categories: Columns of each one-hot group.
    """

    ordered: Sequence[int]
    categories: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.ordered) + len(self.categories)

    def is_category(self, index: int) -> bool:
        """Whether a variable is a one-hot group."""
        return index >= len(self.ordered)

    def columns(self, index: int) -> list[int]:
        """Columns of a variable."""
        if self.is_category(index):
            return list(self.categories[index - len(self.ordered)])
        return [self.ordered[index]]


# Variables with their predictors, for a pair of groups.
_Predictors = dict[int, set[int]]


def fit_repair(
    members: Sequence[NDArray[np.float32]],
    transported: Mapping[tuple[int, int], NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    differs: NDArray[np.bool_],
    order: Sequence[float] | None = None,
) -> tuple[tuple[Repair, ...], ...]:
    """Fit the repair between all groups.

    Args:
        members: Rows of each group, `[n, d]`, at most `ROWS` of them.
        transported: Those rows of s, transported to t feature by feature, by (s, t), `[n, d]`.
        ranks: Rank in [0, 1] of each member's ordered features in its own group, `[n, o]`.
        variables: Columns of the variables.
        differs: Whether the distribution of a variable differs between two groups, `[k, k, v]`.
        order: Position of each variable in the causal order, NaN if it is not known, `[v]`.

    Returns:
        Repairs in the order in which they are applied, for each causal order that is averaged over:
        none if nothing needs repair, two if the data do not identify the order, otherwise one.
    """
    known = np.full(len(variables), np.nan) if order is None else np.asarray(order, float)
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for s, t in combinations(range(len(members)), 2):
        both = ((s, t), (t, s))
        tested = [_differing_pairs(transported[a, b], members[b], variables) for a, b in both]
        pairs[s, t] = sorted(set(tested[0]) | set(tested[1]))
    alternatives = [
        {
            (s, t): _predictors(pairs[s, t], variables, differs[s, t], known, later_moves=later)
            for s, t in pairs
        }
        for later in (True, False)
    ]
    if alternatives[0] == alternatives[1]:
        alternatives.pop()
    repairs = (
        tuple(_fit_levels(members, ranks, variables, predictors)) for predictors in alternatives
    )
    return tuple(levels for levels in repairs if levels)


def _predictors(
    pairs: Sequence[tuple[int, int]],
    variables: Variables,
    differs: NDArray[np.bool_],
    order: Float,
    *,
    later_moves: bool,
) -> _Predictors:
    """Which variables move, and given which others; see the module's docstring.

    Args:
        pairs: Pairs of variables whose dependence differs.
        variables: Columns of the variables.
        differs: Whether the distribution of a variable differs, `[v]`.
        order: Position of each variable in the causal order, NaN if it is not known, `[v]`.
        later_moves: Whether the later variable of a pair moves if neither the order nor the
            distributions tell.
    """
    predictors: _Predictors = {}
    for first, second in pairs:
        # A category is never the first of a mixed pair: categories follow the ordered features.
        if variables.is_category(first):
            continue
        if variables.is_category(second):
            if differs[first] or not differs[second]:
                predictors.setdefault(first, set()).add(second)
            continue
        # Comparisons with NaN are false.
        if order[first] < order[second] or order[second] < order[first]:
            second_moves = order[first] < order[second]
        elif differs[first] != differs[second]:
            second_moves = bool(differs[second])
        else:
            second_moves = later_moves
        moved, given = (second, first) if second_moves else (first, second)
        predictors.setdefault(moved, set()).add(given)
    return predictors


def _fit_levels(
    members: Sequence[NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    predictors: Mapping[tuple[int, int], _Predictors],
) -> Iterator[Repair]:
    """Repairs in an order such that predictors are repaired before what they predict."""
    union: _Predictors = {}
    for part in predictors.values():
        for index, own in part.items():
            union.setdefault(index, set()).update(own)
    waiting = dict(union)
    while waiting:
        ready = [i for i in sorted(waiting) if not waiting[i] & waiting.keys()]
        # Pairs of groups can disagree on a direction; then one of a cycle comes first.
        ready = ready or [min(waiting)]
        yield _fit_level(members, ranks, variables, {i: union[i] for i in ready}, predictors)
        for index in ready:
            del waiting[index]


def _fit_level(
    members: Sequence[NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    own: _Predictors,
    predictors: Mapping[tuple[int, int], _Predictors],
) -> Repair:
    count, free = len(members), list(own)
    ramps = _Ramps.of(np.concatenate(list(members)), variables, own)
    scores = [scores_of_ranks(torch.from_numpy(r[:, free])).numpy() for r in ranks]
    moments = [ramps.fit(rows, z) for rows, z in zip(members, scores, strict=True)]
    tables = []
    for rows, z, fitted in zip(members, scores, moments, strict=True):
        mean, scale = ramps.moments(rows, fitted)
        tables.append(np.quantile((z - mean) / scale, _RESIDUAL_GRID, axis=0).T)
    repaired = np.zeros((count, count, len(free)), bool)
    for (s, t), part in predictors.items():
        repaired[s, t] = repaired[t, s] = [index in part for index in free]
    return Repair(
        free=torch.tensor([variables.ordered[index] for index in free]),
        repaired=torch.from_numpy(repaired),
        columns=torch.from_numpy(ramps.columns),
        start=torch.from_numpy(ramps.start.astype(np.float32)),
        slope=torch.from_numpy(ramps.slope.astype(np.float32)),
        weight=torch.from_numpy(np.stack([m[1:] for m in moments]).astype(np.float32)),
        bias=torch.from_numpy(np.stack([m[0] for m in moments]).astype(np.float32)),
        residuals=torch.from_numpy(np.stack(tables).astype(np.float32)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ramps:
    """Ramps min(max((x − start) · slope, 0), 1) of the predictors.

    Attributes:
        columns: Column that each ramp reads, `[b]`.
        start: Start of each ramp, `[b]`.
        slope: Reciprocal of its width, `[b]`.
        used: Whether a variable that moves has the ramp as a predictor, bool `[m, b]`.
    """

    columns: NDArray[np.int64]
    start: Float
    slope: Float
    used: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: NDArray[np.float32], variables: Variables, predictors: _Predictors) -> _Ramps:
        """Ramps between quantiles of ordered predictors; one per category."""
        ramps: list[tuple[int, float, float, int]] = []
        for index in sorted(set().union(*predictors.values())):
            for column in variables.columns(index):
                if variables.is_category(index):
                    ramps.append((column, 0.0, 1.0, index))
                    continue
                knots = np.unique(np.quantile(rows[:, column], _KNOTS).astype(float))
                for low, high in pairwise(knots.tolist()):
                    ramps.append((column, low, 1 / (high - low), index))
        owner = np.array([ramp[3] for ramp in ramps], int)
        return cls(
            columns=np.array([ramp[0] for ramp in ramps], np.int64),
            start=np.array([ramp[1] for ramp in ramps], float),
            slope=np.array([ramp[2] for ramp in ramps], float),
            used=np.array([np.isin(owner, list(own)) for own in predictors.values()], bool).reshape(
                len(predictors), len(owner)
            ),
        )

    def design(self, rows: NDArray[np.float32]) -> Float:
        """A column of ones, then the ramps of rows `[n, d]`, `[n, 1 + b]`."""
        ramps = np.clip((rows[:, self.columns] - self.start) * self.slope, 0, 1)
        return np.column_stack([np.ones(len(rows)), ramps])

    def fit(self, rows: NDArray[np.float32], scores: Float) -> Float:
        """Coefficients of μ and log σ of scores `[n, m]`, `[1 + b, 2m]`."""
        design, width = self.design(rows), scores.shape[1]
        coefficients = np.zeros((design.shape[1], 2 * width))
        for index, used in enumerate(self.used):
            if not used.any():
                continue
            own = np.r_[0, 1 + np.flatnonzero(used)]
            part = design[:, own]
            coefficients[own, index] = _ridge(part, scores[:, index])
            residual = scores[:, index] - part @ coefficients[own, index]
            # Half of the log of a square; the constant bias of its mean cancels in the residuals.
            log_scale = 0.5 * np.log(residual**2 + 1e-3)
            coefficients[own, width + index] = _ridge(part, log_scale)
        return coefficients

    def moments(self, rows: NDArray[np.float32], coefficients: Float) -> tuple[Float, Float]:
        """μ and σ of the scores of rows, `[n, m]` each."""
        both = self.design(rows) @ coefficients
        width = both.shape[1] // 2
        return both[:, :width], np.exp(both[:, width:])


def _ridge(design: Float, values: Float) -> Float:
    """Ridge regression with an intercept in the first column, which is not penalized."""
    penalty = _RIDGE * len(design) * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    gram, moment = design.T @ design + penalty, design.T @ values
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-10)[0])


def _differing_pairs(
    one: NDArray[np.float32], other: NDArray[np.float32], variables: Variables
) -> list[tuple[int, int]]:
    binned = BinnedRows.of(np.concatenate([one, other]), variables)
    return binned.differing(np.arange(len(one) + len(other)) < len(one), _LEVEL)


@dataclass(frozen=True, kw_only=True)
class BinnedRows:
    """Rows with each variable binned, as indicator columns.

    Attributes:
        indicators: 1 in the bins of a row, 0 elsewhere, float32 `[n, c]`.
        owner: Index of the variable of each bin, `[c]`.
    """

    indicators: NDArray[np.float32]
    owner: NDArray[np.intp]

    @classmethod
    def of(cls, rows: NDArray[np.float32], variables: Variables) -> BinnedRows:
        """Bins of about equal numbers of rows; each category is a bin."""
        codes = [_bin_codes(rows, variables, index) for index in range(len(variables))]
        sizes = [int(code.max(initial=0)) + 1 for code in codes]
        starts = np.cumsum([0, *sizes])
        indicators = np.zeros((len(rows), starts[-1]), np.float32)
        for code, start in zip(codes, starts, strict=False):
            indicators[np.arange(len(rows)), start + code] = 1.0
        return cls(indicators=indicators, owner=np.repeat(np.arange(len(sizes)), sizes))

    def differing(self, first: NDArray[np.bool_], level: float) -> list[tuple[int, int]]:
        """Pairs of variables whose joint distribution differs between two parts of the rows.

        χ² test of homogeneity over the cells of each pair, with Bonferroni's correction.

        Args:
            first: Whether a row is in the first part, bool `[n]`; the others are in the second.
            level: Probability of any rejection if no pair differs.
        """
        # Products of indicators count the rows in every cell of every pair at once.
        counts = [part.T @ part for part in (self.indicators[first], self.indicators[~first])]
        sizes = float(first.sum()), float((~first).sum())
        statistic, cells = self._homogeneity(
            counts[0].astype(float), counts[1].astype(float), sizes
        )
        pairs = np.triu_indices(len(statistic), 1)
        p_values = stats.chi2.sf(statistic[pairs], np.maximum(cells[pairs] - 1, 1))
        rejected = p_values < level / max(len(p_values), 1)
        return [
            (int(i), int(j)) for i, j in zip(pairs[0][rejected], pairs[1][rejected], strict=True)
        ]

    def _homogeneity(
        self, first: Float, second: Float, sizes: tuple[float, float]
    ) -> tuple[Float, Float]:
        """χ² of every pair of variables, and the number of its cells, `[v, v]` each."""
        blocks = (self.owner[:, None] == np.arange(self.owner.max() + 1)).astype(float)

        def block_sums(values: Float) -> Float:
            return np.asarray(blocks.T @ values @ blocks)

        rare = first + second < _RARE
        pooled = _chi2_terms(
            block_sums(np.where(rare, first, 0.0)), block_sums(np.where(rare, second, 0.0)), sizes
        )
        common = _chi2_terms(np.where(rare, 0.0, first), np.where(rare, 0.0, second), sizes)
        has_pooled = block_sums(np.where(rare, first + second, 0.0)) > 0
        return block_sums(common) + pooled, block_sums((~rare).astype(float)) + has_pooled


def _chi2_terms(first: Float, second: Float, sizes: tuple[float, float]) -> Float:
    """Terms of χ² for two samples with these counts: (√(n₂/n₁) a − √(n₁/n₂) b)² / (a + b)."""
    ratio = np.sqrt(sizes[1] / sizes[0])
    gap = ratio * first - second / ratio
    total = first + second
    return np.asarray(np.divide(gap**2, total, out=np.zeros_like(gap), where=total > 0))


def _bin_codes(rows: NDArray[np.float32], variables: Variables, index: int) -> NDArray[np.intp]:
    columns = rows[:, variables.columns(index)]
    if variables.is_category(index):
        codes: NDArray[np.intp] = np.where(columns.any(1), columns.argmax(1), columns.shape[1])
        return codes
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    # Tied quantiles give fewer bins.
    edges = np.unique(np.quantile(columns[:, 0], inner, method="inverted_cdf"))
    return np.searchsorted(edges, columns[:, 0], "left")
