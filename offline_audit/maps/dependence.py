"""Which pairs of variables hang together otherwise in two samples with equal margins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features

__all__ = ["BinnedPeople", "category_places"]

Float = NDArray[np.float64]
# Bins of an ordered variable, each with about as many people.
_BINS = 5
# Cells of a pair's table that fewer people are in, in both samples together, count as one cell.
_RARE = 10


def category_places(features: Features, variable: Variable) -> NDArray[np.intp]:
    """Place of each row's category among the variable's columns, the dropped one last, `[n]`."""
    columns = features[:, list(variable.columns)]
    found: NDArray[np.intp] = np.where(columns.any(1), columns.argmax(1), columns.shape[1])
    return found


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
