"""Variables of any kind as normal scores of their ranks in one sample, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from offline_audit.maps.columns import Variable
from offline_audit.maps.dependence import category_places
from offline_audit.maps.transport_map import Features

__all__ = ["NormalScores"]

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
