"""Repair of dependence between variables, after each variable has the target's distribution.

A map of single features gives transported rows the target's margins but leaves the dependence
between features as in the source. Where a test finds that pairs of variables depend on each other
differently, the rows are moved further: in normal scores, by one-dimensional quantile maps along
random directions (sliced transport), each direction only if the two samples differ along it. A
variable whose own distribution does not differ between the groups stays; only its partner moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from offline_audit.maps.columns import Columns, Features, Variable, category_codes
from offline_audit.maps.gaussian import Affine, bures

__all__ = ["BinnedRows", "NormalScores", "Repair", "fit_repair", "some_rows"]

Float = NDArray[np.float64]
# Values per variable that normal scores store.
_MOST_VALUES = 20_000
# Bins of an ordered variable, of about equal numbers of rows.
_BINS = 5
# Cells of a pair's table with fewer rows, in both samples together, are pooled.
_RARE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalScores:
    """Normal scores of one variable: z = Φ⁻¹(rank); a tied value covers an interval of ranks.

    Attributes:
        variable: The variable.
        values: Sorted values of the sample; for a category, positions of its codes in `order`.
        order: For a category, the position of each code, `[1 + c]`; None for other kinds.
    """

    variable: Variable
    values: Float
    order: NDArray[np.intp] | None

    @classmethod
    def of(
        cls, sample: Features, variable: Variable, order: NDArray[np.intp] | None = None
    ) -> NormalScores:
        """The scores of a sample `[n, d]`; a category requires an order of its codes."""
        values = _values(sample, variable, order)
        if len(values) > _MOST_VALUES:
            values = np.quantile(values, np.linspace(0, 1, _MOST_VALUES), method="inverted_cdf")
        return cls(variable=variable, values=np.sort(values), order=order)

    def scores(self, features: Features, uniforms: Float) -> Float:
        """Scores of rows `[n, d]`; uniforms `[n]` choose a rank within the interval of a tie."""
        values, n = _values(features, self.variable, self.order), len(self.values)
        low = np.searchsorted(self.values, values, "left")
        high = np.searchsorted(self.values, values, "right")
        rank = low + uniforms * (high - low)
        # Half a rank from the ends, because Φ⁻¹(0) and Φ⁻¹(1) are infinite.
        return np.asarray(ndtri(np.clip(rank / n, 0.5 / n, 1 - 0.5 / n)))

    def write(self, features: Features, scores: Float, rows: NDArray[np.bool_]) -> None:
        """Set the variable in the selected rows to the values with these scores, in place."""
        n = len(self.values)
        rank = ndtr(scores[rows]) * n
        at = list(self.variable.columns)
        if self.variable.kind == "numeric":
            features[rows, at[0]] = np.interp(rank, np.arange(n) + 0.5, self.values)
            return
        # No interpolation: only values of the sample are valid.
        values = self.values[np.clip(rank.astype(np.intp), 0, n - 1)]
        if self.order is None:
            features[rows, at[0]] = values
            return
        codes = np.argsort(self.order)[values.astype(np.intp)]
        features[np.ix_(np.flatnonzero(rows), np.array(at))] = codes[:, None] == np.arange(len(at))


def _values(features: Features, variable: Variable, order: NDArray[np.intp] | None) -> Float:
    if order is None:
        return features[:, variable.columns[0]].astype(np.float64)
    return order[category_codes(features, variable)].astype(np.float64)


# Level of the Kolmogorov–Smirnov test of a direction; a step moves only directions that differ.
_DIRECTION_LEVEL = 0.05
# Rows per group to which steps are fitted.
_FIT_ROWS = 10_000
# Largest numbers of steps and of bases tried; consecutive bases without a difference that end it.
_STEPS, _TRIES, _UNCHANGED = 15, 60, 3
_GRID = np.linspace(0, 1, 257)[1:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """Displacements along the directions of a basis.

    Attributes:
        basis: Orthonormal basis; columns are directions, `[m, m]`.
        quantiles: Quantiles before the step along each direction, `[q, m]`.
        shifts: Displacements at those quantiles, `[q, m]`; zero if the direction does not differ.
    """

    basis: Float
    quantiles: Float
    shifts: Float

    def shift(self, scores: Float) -> Float:
        """Displacements of scores, `[n, m]` to `[n, m]`."""
        along = scores @ self.basis
        shift = np.zeros_like(along)
        for column in np.flatnonzero(self.shifts.any(0)):
            shift[:, column] = np.interp(
                along[:, column], self.quantiles[:, column], self.shifts[:, column]
            )
        return np.asarray(shift @ self.basis.T)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """Map from rows with the target's margins to rows with the target's dependence as well.

    Attributes:
        pairs: Indices of the pairs of variables whose dependence differs.
        variables: Indices of all variables in those pairs.
        free: Which of them may move, bool `[m]`.
        scores: Their normal scores in the target.
        affine: First step if all variables may move; None otherwise.
        steps: Sliced steps.
        margins: Quantiles of the scores after the steps, `[q, m]`. The last step maps them back to
            normal quantiles, so that the margins stay those of the target.
    """

    pairs: tuple[tuple[int, int], ...]
    variables: tuple[int, ...]
    free: NDArray[np.bool_]
    scores: tuple[NormalScores, ...]
    affine: Affine | None
    steps: tuple[_Step, ...]
    margins: Float

    def transport(self, features: Features, uniforms: Float) -> Features:
        """Repaired rows, `[n, d]` to `[n, d]`; uniforms `[n, m]` as in `NormalScores.scores`."""
        before = _scores(self.scores, features, uniforms)
        after = before if self.affine is None else self.affine.transport(before)
        for step in self.steps:
            after = after + step.shift(after) * self.free
        transported = features.copy()
        normal = ndtri(_GRID)
        for index in np.flatnonzero(self.free):
            margin, moved = self.margins[:, index], after[:, index]
            # Scores beyond the grid keep their distance from it.
            inside = np.clip(moved, margin[0], margin[-1])
            restored = np.interp(inside, margin, normal) + (moved - inside)
            changed = moved != before[:, index]
            self.scores[index].write(transported, restored, changed)
        return transported


def fit_repair(
    transported: Features,
    target: Features,
    columns: Columns,
    pairs: Sequence[tuple[int, int]],
    moved: Sequence[str],
    seed: int,
) -> Repair:
    """Fit the steps of a repair.

    Args:
        transported: Rows with the target's margins, `[n, d]`.
        target: Rows of the target, `[m, d]`.
        columns: Description of the columns.
        pairs: Indices of the pairs of variables whose dependence differs.
        moved: Names of the variables whose margins differed between the groups.
        seed: Seed of the directions and of the ranks within ties.
    """
    transported, target = (
        rows[some_rows(len(rows), _FIT_ROWS, seed)] for rows in (transported, target)
    )
    variables = tuple(sorted({index for pair in pairs for index in pair}))
    differing = {index for index in variables if columns.variables[index].name in moved}
    # Of a pair, only variables whose margins differ may move; if neither differs, both may.
    free = {index for pair in pairs for index in (differing & set(pair) or pair)}
    scores = tuple(
        NormalScores.of(
            target, columns.variables[index], _category_order(target, columns, index, pairs)
        )
        for index in variables
    )
    may_move = np.array([index in free for index in variables])
    # Random ranks instead of a hash of the row: duplicates must spread over the ranks of a tie.
    rng = np.random.default_rng([seed, 1])
    source_scores, target_scores = (
        _scores(scores, rows, rng.random((len(rows), len(variables))))
        for rows in (transported, target)
    )
    affine = bures(source_scores, target_scores) if may_move.all() else None
    after = source_scores if affine is None else affine.transport(source_scores)
    steps, after = _fit_steps(after, target_scores, may_move, np.random.default_rng(seed))
    return Repair(
        pairs=tuple(pairs),
        variables=variables,
        free=may_move,
        scores=scores,
        affine=affine,
        steps=tuple(steps),
        margins=np.quantile(after, _GRID, axis=0),
    )


def _fit_steps(
    source: Float, target: Float, free: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[list[_Step], Float]:
    """Steps until several consecutive random bases show no difference, and the moved scores."""
    width, unchanged, steps = source.shape[1], 0, list[_Step]()
    # Effective sample size of the two-sample test.
    size = round(len(source) * len(target) / (len(source) + len(target)))
    critical = float(stats.kstwo.isf(_DIRECTION_LEVEL, max(size, 1)))
    for _ in range(_TRIES):
        if unchanged >= _UNCHANGED or len(steps) >= _STEPS:
            break
        basis = np.linalg.qr(rng.standard_normal((width, width)))[0]
        along, target_along = np.sort(source @ basis, 0), np.sort(target @ basis, 0)
        differs = np.array(
            [_ks_statistic(along[:, c], target_along[:, c]) > critical for c in range(width)]
        )
        if not differs.any():
            unchanged += 1
            continue
        unchanged = 0
        quantiles = np.quantile(along, _GRID, axis=0)
        shifts = np.where(differs, np.quantile(target_along, _GRID, axis=0) - quantiles, 0.0)
        step = _Step(basis=basis, quantiles=quantiles, shifts=shifts)
        source = source + step.shift(source) * free
        steps.append(step)
    return steps, source


def some_rows(n: int, most: int, seed: int) -> NDArray[np.intp]:
    """Sorted indices of a random sample of n rows; of all rows if there are at most `most`."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))


def _ks_statistic(one: Float, other: Float) -> float:
    """Kolmogorov–Smirnov statistic of two sorted samples without ties."""
    ranks = np.searchsorted(one, other) / len(one)
    return float(np.abs(ranks - (np.arange(len(other)) + 0.5) / len(other)).max())


def _scores(scores: Sequence[NormalScores], features: Features, uniforms: Float) -> Float:
    return np.column_stack(
        [
            variable_scores.scores(features, uniforms[:, index])
            for index, variable_scores in enumerate(scores)
        ]
    )


def _category_order(
    target: Features, columns: Columns, index: int, pairs: Sequence[tuple[int, int]]
) -> NDArray[np.intp] | None:
    """Position of each category code, so that similar categories are adjacent; None if no category.

    Categories are ordered along the first axis of a correspondence analysis of the category
    against the bins of the variables it is paired with.
    """
    variable = columns.variables[index]
    if variable.kind != "category":
        return None
    binned = BinnedRows.of(target, columns)
    partners = {other for pair in pairs if index in pair for other in pair} - {index}
    partner_bins = binned.indicators[:, np.isin(binned.owner, list(partners))]
    codes = category_codes(target, variable)
    category_indicators = (codes[:, None] == np.arange(len(variable.columns) + 1)).astype(
        np.float64
    )
    table = category_indicators.T @ partner_bins
    expected = np.outer(table.sum(1), table.sum(0)) / max(table.sum(), 1.0)
    # Pearson residuals, whose singular vectors are the axes.
    residual = np.divide(
        table - expected, np.sqrt(expected), out=np.zeros_like(table), where=expected > 0
    )
    left, _, _ = np.linalg.svd(residual, full_matrices=False)
    weights = np.sqrt(np.maximum(table.sum(1), 1.0))
    # argsort of argsort: the rank of each category.
    return np.argsort(np.argsort(left[:, 0] / weights, kind="stable"), kind="stable")


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
    def of(cls, rows: Features, columns: Columns) -> BinnedRows:
        """Bins of about equal numbers of rows; each category is a bin."""
        codes = [_bin_codes(rows, variable) for variable in columns.variables]
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


def _bin_codes(rows: Features, variable: Variable) -> NDArray[np.intp]:
    if variable.kind == "category":
        return category_codes(rows, variable)
    values = rows[:, variable.columns[0]]
    inner = np.linspace(0, 1, _BINS + 1)[1:-1]
    # Tied quantiles give fewer bins.
    edges = np.unique(np.quantile(values, inner, method="inverted_cdf"))
    return np.searchsorted(edges, values, "left")
