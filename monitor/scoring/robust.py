"""Ranges and spreads that a few wild rows do not move.

A mean, a standard deviation or the ends of a quantile function follow one row as far as it goes: an
income of 1e8 among incomes of 1e4 is enough. Values that lie three times as far from the median as
all but one in 500 rows are therefore replaced by the median: at the end of the range, where few
rows are, they would outweigh the rows that belong there. Data without such values are not changed
at all, so their figures are exactly the mean and the standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["OrdinaryRange", "robust_spread", "without_tails"]

# Share of rows that may be wild without an effect on the range.
_WILD_SHARE = 0.002
# Deviations from the median that are no longer ordinary, and that are reported as wild, in
# multiples of the largest deviation of the other rows. Log-normal columns have correct values
# between the two.
_FAR, _WILD = 3.0, 10.0
# Share of rows in either tail of a column, and the fewest rows on a side of the median with a tail.
_TAIL, _FEWEST = 0.0005, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OrdinaryRange:
    """Range of the ordinary values of every column.

    Attributes:
        low: Lowest ordinary value, float32 `[d]`.
        high: Highest ordinary value, float32 `[d]`.
        centre: Median, of an even number of values the lower one of the middle, `[d]`.
        far: Distance from the median beyond which a value is not ordinary, `[d]`.
    """

    low: NDArray[np.float32]
    high: NDArray[np.float32]
    centre: NDArray[np.float64]
    far: NDArray[np.float64]

    @classmethod
    def of(cls, features: NDArray[np.float32]) -> Self:
        """Range of every column of rows `[n, d]`."""
        width = features.shape[1]
        low, high = np.zeros(width, np.float32), np.zeros(width, np.float32)
        centre, far = np.zeros(width), np.zeros(width)
        for column, values in enumerate(features.T):
            centre[column] = np.quantile(values, 0.5, method="lower")
            deviations = np.abs(values - centre[column])
            far[column] = _FAR * _ordinary_deviation(deviations)
            ordinary = values[deviations <= far[column]]
            low[column], high[column] = ordinary.min(), ordinary.max()
        return cls(low=low, high=high, centre=centre, far=far)

    def ordinary(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows `[n, d]` with values that are not ordinary replaced by the median.

        New rows may lie somewhat outside the range; their values stay.
        """
        far = np.abs(features - self.centre) > self.far
        return np.where(far, self.centre.astype(np.float32), features)

    def wild(self, features: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Whether values are so far outside the range that they must be errors, `[n, d]`."""
        wild: NDArray[np.bool_] = np.abs(features - self.centre) > self.far * (_WILD / _FAR)
        return wild


def robust_spread(values: NDArray[np.float32]) -> float:
    """Standard deviation of values `[n]` without the effect of wild ones."""
    column = values[:, None]
    return float(OrdinaryRange.of(column).ordinary(column).std(ddof=1, dtype=np.float64))


def without_tails(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """Values between which all but one in 2,000 rows lie on either side, `[d]` each.

    A model that is trained on rows clipped to them does not depend on a single row at the edge of
    the data. On a side of the median with fewer than five rows there is nothing to learn.
    """
    limits = np.empty((2, features.shape[1]), np.float32)
    for column, values in enumerate(features.T):
        centre = np.quantile(values, 0.5, method="lower")
        for side, sign in enumerate((-1, 1)):
            distances = sign * (values - centre)
            distances = np.sort(distances[distances > 0])[::-1]
            left_out = min(math.ceil(_TAIL * len(values)), len(distances) // 2)
            reach = distances[left_out] if len(distances) >= _FEWEST else 0.0
            limits[side, column] = centre + sign * reach
    return limits[0], limits[1]


def _ordinary_deviation(deviations: NDArray[np.float64]) -> float:
    """Largest deviation from the median `[n]` of all rows but those that may be wild.

    Most values of a rare category or a zero-inflated column equal the median. At most half of the
    others are left out, so that a rare value keeps its distance.
    """
    different = int(np.count_nonzero(deviations))
    if different == 0:
        return 0.0
    left_out = min(math.ceil(_WILD_SHARE * len(deviations)), different // 2)
    index = len(deviations) - 1 - left_out
    return float(np.partition(deviations, index)[index])
