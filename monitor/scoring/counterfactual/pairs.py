"""Tests of which pairs of variables depend on each other differently in two samples.

A variable is an ordered feature or a one-hot group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.features import Feature, OneHotGroup

__all__ = ["BinnedRows", "Variables"]

Float = NDArray[np.float64]
Index = NDArray[np.intp]
# Probability that any pair of variables is found to differ if none does.
_LEVEL = 0.01
# Bins of an ordered variable, of about equal numbers of rows.
_BINS = 5
# Cells of a pair's table with fewer rows, in both samples together, are pooled.
_RARE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """Columns of the variables: ordered features first, then one-hot groups.

    Attributes:
        ordered: Columns of the ordered features.
        categories: Columns of each one-hot group.
    """

    ordered: Sequence[int]
    categories: Sequence[Sequence[int]]

    @classmethod
    def of(cls, features: Sequence[Feature], one_hot_groups: Sequence[OneHotGroup]) -> Variables:
        """The variables of columns with these names and kinds, in the order of the columns."""
        position = {feature.name: column for column, feature in enumerate(features)}
        return cls(
            ordered=[position[feature.name] for feature in features if feature.kind != "onehot"],
            categories=[[position[name] for name in group.features] for group in one_hot_groups],
        )

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

    def differing(self, first: NDArray[np.bool_], level: float = _LEVEL) -> list[tuple[int, int]]:
        """Pairs of variables whose joint distribution differs between two parts of the rows.

        χ² test of homogeneity over the cells of each pair, with Bonferroni's correction.

        Args:
            first: Whether a row is in the first part, bool `[n]`; the others are in the second.
            level: Probability of any rejection if no pair differs.
        """
        pairs, statistic, degrees = self.statistics(first)
        p_values = stats.chi2.sf(statistic, degrees)
        rejected = p_values < level / max(len(p_values), 1)
        return [
            (int(i), int(j)) for i, j in zip(pairs[0][rejected], pairs[1][rejected], strict=True)
        ]

    def statistics(self, first: NDArray[np.bool_]) -> tuple[tuple[Index, Index], Float, Float]:
        """Both variables of every pair, χ² of homogeneity, and its degrees of freedom, `[p]` each.

        Args:
            first: Whether a row is in the first part, bool `[n]`; the others are in the second.
        """
        # Products of indicators count the rows in every cell of every pair at once.
        counts = [part.T @ part for part in (self.indicators[first], self.indicators[~first])]
        sizes = float(first.sum()), float((~first).sum())
        statistic, cells = self._homogeneity(
            counts[0].astype(float), counts[1].astype(float), sizes
        )
        pairs = np.triu_indices(len(statistic), 1)
        return pairs, statistic[pairs], np.maximum(cells[pairs] - 1, 1)

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
