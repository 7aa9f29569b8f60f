"""Rows unlike the training rows: their scores would be extrapolations, so they get none.

A classifier returns a number for any row, and the maps move it somewhere. Unscaled or misordered
columns, two categories at once, or values far outside the training data would so look as fair as
any other row. Every row is therefore checked, in the compiled pass:

- *one-hot*: each one-hot group has one 1; or at most one, if a category was dropped and training
  rows have it;
- *value*: flags and integers are whole numbers, and a column of few, evenly spaced values, such as
  a scaled integer, has one of these;
- *range*: flags are between 0 and 1, and other values at most a margin outside the range of the
  training rows;
- *combination*: columns that depend on each other have values that go together.

All limits are learned from the training rows, so that few ordinary rows fail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monitor.bundle.features import Feature, OneHotGroup
from monitor.errors import BundleError
from monitor.npz import damaged_file, read_npz, write_npz
from monitor.scoring.robust import OrdinaryRange
from monitor.scoring.scores import FIRST_OF_REASON, Reason

__all__ = ["InputCheck"]

# Margin outside the range of the training rows, as a share of twice the distance of the median from
# their 1% or 99% quantile, and its product with the square root of the number of rows.
_MARGIN, _MARGIN_OF_ROWS = 0.05, 10.0
# A column of evenly spaced values has at most this many, and new rows rarely have a new value.
_MOST_VALUES, _NEW_VALUES = 256, 0.01
# Largest distance from such a value, in units of their distance; clients round differently.
_EVEN = 0.02
# Rounding of the largest value of a column by the client, relative to it.
_ROUNDING = 1e-5
# Columns take part in combinations if the others explain this share of their variance.
_EXPLAINED = 0.3
_ROWS_PER_COLUMN = 20
# Share of training rows within the limit of the distance, and the factor of the limit.
_WITHIN, _FARTHER = 0.999, 1.2
_INFINITE = math.inf
# Rows that are checked at once.
_PART = 8192


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class InputCheck:
    """What ordinary rows of d columns look like.

    Attributes:
        low: Lowest value of each column, `[d]`.
        high: Highest value, `[d]`.
        origin: A value of each column of evenly spaced values, `[d]`.
        rate: Reciprocal of their distance, `[d]`; 0 for a column of any values.
        rounding: Largest distance from such a value, in units of their distance, `[d]`.
        members: Whether a column belongs to a one-hot group, 0 or 1, `[g, d]`.
        least: Smallest number of ones in each one-hot group, `[g]`.
        related: Columns that depend on each other, int64 `[c]`.
        centre: Mean of these columns, `[c]`.
        whitening: Matrix that makes them uncorrelated with variance 1, `[c, c]`.
        limit: Largest squared distance from the mean, `[1]`.
    """

    low: Tensor
    high: Tensor
    origin: Tensor
    rate: Tensor
    rounding: Tensor
    members: Tensor
    least: Tensor
    related: Tensor
    centre: Tensor
    whitening: Tensor
    limit: Tensor

    @classmethod
    def fit(
        cls,
        rows: NDArray[np.float32],
        features: Sequence[Feature],
        one_hot_groups: Sequence[OneHotGroup],
    ) -> Self:
        """Learn what training rows `[n, d]` look like; wild rows are ignored."""
        ordinary = OrdinaryRange.of(rows)
        rows = rows[~ordinary.wild(rows).any(1)]
        kinds = np.array([feature.kind for feature in features])
        flags = np.isin(kinds, ("binary", "onehot"))
        low, high = _range(rows, ordinary)
        low[flags], high[flags] = 0.0, 1.0
        origin, rate, rounding = _even_spacing(rows, kinds == "numeric")
        position = {feature.name: column for column, feature in enumerate(features)}
        members = np.zeros((len(one_hot_groups), len(features)), np.float32)
        for index, group in enumerate(one_hot_groups):
            members[index, [position[name] for name in group.features]] = 1
        related = _related(rows, np.flatnonzero(np.isin(kinds, ("numeric", "integer"))))
        centre, whitening, limit = _distance(rows[:, related])
        arrays: dict[str, NDArray[Any]] = {
            "low": low,
            "high": high,
            "origin": origin,
            "rate": rate,
            "rounding": rounding,
            "members": members,
            # A dropped category that no training row has stands for categories that are not listed.
            "least": (rows @ members.T).min(0, initial=1).clip(0, 1),
            "related": related,
            "centre": centre,
            "whitening": whitening,
            "limit": limit,
        }
        return cls(**{name: _tensor(array) for name, array in arrays.items()})

    def codes(self, features: Tensor) -> Tensor:
        """Why each row `[n, d]` is unlike the training rows, as a code `[n]`; 0 if it is not.

        A code is `FIRST_OF_REASON` times a `Reason`, plus the index of the column, or of the
        one-hot group. Of several reasons it has the largest.
        """
        number = torch.arange(features.shape[1], dtype=torch.float32)
        # Comparisons with NaN are false.
        inside = (features >= self.low) & (features <= self.high)
        step = (features - self.origin) * self.rate
        valid = (step - step.round()).abs() <= self.rounding
        wrong = torch.where(valid, 0.0, number + Reason.VALUE * FIRST_OF_REASON)
        wrong = torch.where(inside, wrong, number + Reason.RANGE * FIRST_OF_REASON)
        codes = wrong.amax(1)
        if len(self.least):
            total = (features[:, None] * self.members).sum(2)
            group = torch.arange(len(self.least), dtype=torch.float32)
            wrong = (total > 1) | (total < self.least)
            by_group = torch.where(wrong, group + Reason.ONE_HOT * FIRST_OF_REASON, 0.0)
            codes = torch.maximum(codes, by_group.amax(1))
        if len(self.related):
            scaled = (features[:, self.related] - self.centre)[:, None] * self.whitening
            far = scaled.sum(2).square().sum(1) > self.limit
            code = float(Reason.COMBINATION * FIRST_OF_REASON)
            codes = torch.maximum(codes, torch.where(far, code, 0.0))
        finite = torch.isfinite(features).all(1)
        return torch.where(finite, codes, float(Reason.NOT_FINITE * FIRST_OF_REASON))

    def reasons(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        """`Reason` of many rows `[n, d]`, `[n]`."""
        codes = torch.cat([self.codes(part) for part in torch.from_numpy(rows).split(_PART)])
        return codes.numpy().astype(np.int64) // FIRST_OF_REASON

    def to_npz(self) -> bytes:
        """Contents of `inputs.npz`."""
        return write_npz(
            {}, {field.name: getattr(self, field.name).numpy() for field in fields(self)}
        )

    @classmethod
    def from_npz(cls, data: bytes, width: int, groups: int) -> Self:
        """Read the contents of `inputs.npz`, for a number of columns and one-hot groups.

        Raises:
            BundleError: They are damaged.
        """
        try:
            _, arrays = read_npz(data)
            _check(arrays, width, groups)
        except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
            raise BundleError(damaged_file("inputs.npz", error)) from None
        return cls(**{field.name: torch.from_numpy(arrays[field.name]) for field in fields(cls)})


def _tensor(array: NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array.astype(np.float32) if array.dtype.kind == "f" else array)


def _range(
    rows: NDArray[np.float32], ordinary: OrdinaryRange
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest and highest value of every column, `[d]` each, with the margin of its side."""
    first, centre, last = np.quantile(rows, [0.01, 0.5, 0.99], axis=0)
    margin = 2 * max(_MARGIN, _MARGIN_OF_ROWS / math.sqrt(len(rows)))
    rounding = _ROUNDING * np.maximum(np.abs(ordinary.low), np.abs(ordinary.high))
    low = ordinary.low - margin * (centre - first) - rounding
    high = ordinary.high + margin * (last - centre) + rounding
    # Amounts of which none is negative.
    return np.where(ordinary.low >= 0, np.maximum(low, -rounding), low), high


def _even_spacing(
    rows: NDArray[np.float32], numeric: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Origin, rate and rounding of every column, `[d]` each: rate 0 for any values."""
    width = rows.shape[1]
    # Flags and integers.
    origin, rate, rounding = np.zeros(width), np.where(numeric, 0.0, 1.0), np.zeros(width)
    for column in np.flatnonzero(numeric).tolist():
        values, counts = np.unique(rows[:, column].astype(np.float64), return_counts=True)
        # About the probability that a new row has a new value (Good 1953).
        is_new = ((counts == 1).sum() + 1) / len(rows)
        if not 2 < len(values) <= _MOST_VALUES or is_new > _NEW_VALUES:
            continue
        distance = np.diff(values).min()
        steps = (values - values[0]) / distance
        error = (
            np.abs(steps - np.round(steps)).max() + np.spacing(np.float32(values[-1])) / distance
        )
        if steps[-1] <= _MOST_VALUES and error < _EVEN:
            # All values together give the distance more precisely than two.
            distance = (values[-1] - values[0]) / round(steps[-1])
            origin[column], rate[column], rounding[column] = values[0], 1 / distance, _EVEN
    return origin, rate, rounding


def _related(rows: NDArray[np.float32], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns that others explain in part: 1 − 1 / (Σ_jj Σ⁻¹_jj) is R² of a regression on them."""
    columns = columns[rows[:, columns].std(0) > 0] if len(columns) else columns
    if len(columns) < 2 or len(rows) < _ROWS_PER_COLUMN * len(columns):
        return columns[:0]
    correlation = np.corrcoef(rows[:, columns].T.astype(np.float64))
    inverse = np.linalg.inv(correlation + 1e-6 * np.eye(len(columns)))
    related = columns[1 - 1 / np.diag(inverse) >= _EXPLAINED]
    return related if len(related) > 1 else columns[:0]


def _distance(
    rows: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean `[c]`, whitening matrix `[c, c]` and limit of the squared distance `[1]` of rows."""
    width = rows.shape[1]
    if width == 0:
        return np.zeros(0), np.zeros((0, 0)), np.full(1, _INFINITE)
    wide = rows.astype(np.float64)
    centre, spread = wide.mean(0), wide.std(0)
    correlation = np.corrcoef(wide.T) + 1e-6 * np.eye(width)
    values, vectors = np.linalg.eigh(correlation)
    whitening = (vectors / np.sqrt(values)).T / spread
    squared = (((wide - centre) @ whitening.T) ** 2).sum(1)
    limit = np.quantile(squared, _WITHIN, method="higher") * _FARTHER**2
    return centre, whitening, np.array([limit])


def _check(arrays: Mapping[str, NDArray[Any]], d: int, groups: int) -> None:
    """Raise ValueError if the arrays are not consistent."""
    c = len(arrays["related"])
    shapes: dict[str, tuple[type, tuple[int, ...]]] = {
        "low": (np.float32, (d,)),
        "high": (np.float32, (d,)),
        "origin": (np.float32, (d,)),
        "rate": (np.float32, (d,)),
        "rounding": (np.float32, (d,)),
        "members": (np.float32, (groups, d)),
        "least": (np.float32, (groups,)),
        "related": (np.int64, (c,)),
        "centre": (np.float32, (c,)),
        "whitening": (np.float32, (c, c)),
        "limit": (np.float32, (1,)),
    }
    for name, (kind, shape) in shapes.items():
        array = arrays[name]
        if array.dtype != kind or array.shape != shape:
            raise ValueError(
                f"{name}: expected {np.dtype(kind)} {shape}, got {array.dtype} {array.shape}"
            )
        if kind is np.float32 and np.isnan(array).any():
            raise ValueError(f"{name} must not contain NaN")
    if not ((arrays["related"] >= 0) & (arrays["related"] < d)).all():
        raise ValueError("related has columns that do not exist")
