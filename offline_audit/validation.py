"""Checks of arrays and options; messages name the argument and the row, never a person's value."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count, some

__all__ = [
    "UNKNOWN",
    "array_of",
    "binary",
    "finite",
    "is_missing",
    "is_whole",
    "numbers_of",
    "ordered_columns",
    "require_alpha",
    "require_confidence_level",
    "require_length",
    "require_whole",
    "unit_codes",
]

# Code of an unknown group, label or decision in every array of codes.
UNKNOWN = -1
# Largest accepted number: its cube is still finite.
_LARGEST = 1e100
# Names of columns that a message lists.
_MOST_NAMES = 12

Int = NDArray[np.int64]
Float = NDArray[np.float64]


def ordered_columns(frame: Any, names: Sequence[str], ignored: Collection[str] = ()) -> list[Any]:
    """Columns of a data frame by name, in this order, as the frame names them.

    Args:
        frame: Data frame.
        names: Required columns.
        ignored: Further columns that the frame may have, such as groups and labels.

    Raises:
        AuditInputError: A column is missing, appears twice, or is neither required nor ignored.
    """
    present = [str(column) for column in frame.columns]
    missing = [name for name in names if name not in present]
    extra = [name for name in present if name not in names and name not in ignored]
    twice = sorted({name for name in names if present.count(name) > 1})
    problems = [
        *([f"no column {some(missing, _MOST_NAMES)}"] if missing else []),
        *([f"the model has no feature {some(extra, _MOST_NAMES)}"] if extra else []),
        *([f"two columns are named {some(twice, _MOST_NAMES)}"] if twice else []),
    ]
    if problems:
        raise AuditInputError(
            f"features: {'; '.join(problems)}; the features are {some(names, _MOST_NAMES)}"
        )
    return [frame.columns[present.index(name)] for name in names]


def require_alpha(alpha: Any) -> float:
    """The significance level, checked.

    Raises:
        AuditInputError: It is not a number between 0 and 1.
    """
    if not _is_number(alpha) or not 0 < alpha < 1:
        raise AuditInputError(f"alpha: must be a number between 0 and 1, not {_shown(alpha)}")
    return float(alpha)


def require_confidence_level(confidence_level: Any) -> float:
    """The confidence level of an interval, checked.

    Raises:
        AuditInputError: It is not a number from 0.5 to below 1.
    """
    if not _is_number(confidence_level) or not 0.5 <= confidence_level < 1:
        raise AuditInputError(
            "confidence_level: must be from 0.5 to below 1, such as 0.95, not "
            f"{_shown(confidence_level)}"
        )
    return float(confidence_level)


def require_whole(name: str, value: Any, least: int) -> int:
    """A whole number, such as a seed or a number of resamples, checked.

    Raises:
        AuditInputError: It is not a whole number, or is below `least`.
    """
    # As in scipy, 100.0 is a whole number too.
    whole = is_whole(value) or (isinstance(value, float) and value.is_integer())
    if not whole or value < least:
        raise AuditInputError(
            f"{name}: must be a whole number of at least {least}, not {_shown(value)}"
        )
    return int(value)


def is_whole(value: Any) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def array_of(values: Any, name: str) -> NDArray[Any]:
    """The values as an array `[n]` in which missing values can still be recognized.

    numpy converts NaN in a list of strings to the string "nan", and drops masks. Therefore lists of
    strings become arrays of objects, and masked values become None. Text is never a missing value:
    in an array of strings, "nan" may be a name.

    Raises:
        AuditInputError: There is not one value per row.
    """
    if values is None:
        raise AuditInputError(f"{name}: one value per row is required, not None")
    try:
        array = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray):
            array = _with_none(array, np.ma.getmaskarray(values))
        elif array.dtype.kind in "SU" and not isinstance(values, np.ndarray):
            array = np.asarray(values, dtype=object)
        elif array.dtype.kind == "T":
            # numpy's strings of variable width, which may have a missing value.
            array = array.astype(object)
    except (ValueError, TypeError):
        raise AuditInputError(f"{name}: one value per row is required") from None
    if array.ndim != 1:
        raise AuditInputError(
            f"{name}: one value per row is required, not an array of {array.ndim} axes"
        )
    return array


def _with_none(values: NDArray[Any], missing: NDArray[np.bool_]) -> NDArray[Any]:
    objects = values.astype(object)
    objects[missing] = None
    return objects


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA."""
    if value is None:
        return True
    # NaN, NaT and NA do not equal themselves.
    equal = value == value
    return equal is not True and not (isinstance(equal, np.bool_) and bool(equal))


def binary(values: Any, name: str) -> Int:
    """Zeros and ones, `UNKNOWN` where a value is None or NaN, `[n]`.

    Raises:
        AuditInputError: There is any other value.
    """
    array = array_of(values, name)
    if array.dtype.kind in "biu" and len(array) and array.min() >= 0 and array.max() <= 1:
        return array.astype(np.int64)
    numbers = numbers_of(array, name)
    missing = np.isnan(numbers)
    wrong = ~missing & (numbers != 0) & (numbers != 1)
    if wrong.any():
        raise AuditInputError(
            f"{name}: {count(int(wrong.sum()), 'value')} neither 0 nor 1, the first in row "
            f"{int(np.argmax(wrong)):,}; use None or NaN for an unknown value"
        )
    return np.where(missing, UNKNOWN, numbers).astype(np.int64)


def finite(values: Any, name: str, limits: tuple[float, float] | None = None) -> Float:
    """Finite numbers within limits, `[n]`.

    Raises:
        AuditInputError: A value is missing, infinite or outside the limits.
    """
    numbers = numbers_of(values, name)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        raise AuditInputError(
            f"{name}: {count(int(wrong.sum()), 'value')} missing or infinite, the first in row "
            f"{int(np.argmax(wrong)):,}; exclude those rows, and report that they were excluded"
        )
    if np.abs(numbers).max(initial=0.0) > _LARGEST:
        raise AuditInputError(f"{name}: numbers beyond 1e100 would overflow; rescale them")
    if limits is not None:
        outside = (numbers < limits[0]) | (numbers > limits[1])
        if outside.any():
            raise AuditInputError(
                f"{name}: {count(int(outside.sum()), 'value')} outside {limits[0]:g} to "
                f"{limits[1]:g}, the first in row {int(np.argmax(outside)):,}; pass "
                "`score_limits=None` to accept any number"
            )
    return numbers


def unit_codes(values: Any) -> Int:
    """Code from 0 of the unit, such as a person, that each row belongs to, `[n]`.

    Raises:
        AuditInputError: A row has no unit.
    """
    array = array_of(values, "units")
    if array.dtype.kind == "O":
        ids: dict[Any, int] = {}
        listed = array.tolist()
        try:
            missing = [row for row, v in enumerate(listed) if is_missing(v) or _is_nan_text(v)]
            codes = [ids.setdefault(value, len(ids)) for value in listed]
        except (TypeError, ValueError):
            raise AuditInputError("units: one id per row is required") from None
        if missing:
            raise _units_missing(len(missing), missing[0])
        return np.array(codes, dtype=np.int64)
    unknown = np.isnan(array) if array.dtype.kind == "f" else np.zeros(0, bool)
    if array.dtype.kind == "U":
        unknown = array == "nan"
    if unknown.any():
        raise _units_missing(int(unknown.sum()), int(np.argmax(unknown)))
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _units_missing(rows: int, first: int) -> AuditInputError:
    return AuditInputError(
        f"units: {count(rows, 'row')} without a unit, the first is row {first:,}; None, NaN and "
        "the text 'nan' are no units"
    )


def _is_nan_text(value: Any) -> bool:
    # As a unit, all missing ids that numpy has converted to text would be one person.
    return isinstance(value, str) and value == "nan"


def require_length(lengths: dict[str, int]) -> int:
    """The length that all arrays have.

    Raises:
        AuditInputError: The lengths differ, or there are no rows.
    """
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise AuditInputError(f"arrays have different lengths: {listed}")
    length = next(iter(lengths.values()))
    if length == 0:
        raise AuditInputError("arrays have no rows; pass at least one row")
    return length


def numbers_of(values: Any, name: str) -> Float:
    """Numbers, NaN where a value is None, `[n]`.

    Raises:
        AuditInputError: A value is not a number, or there is not one value per row.
    """
    array = array_of(values, name)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    try:
        return np.array([_number(value) for value in array.tolist()], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # The text of the error would quote the value.
        raise AuditInputError(f"{name}: not all values are numbers") from None


def _number(value: Any) -> float:
    # pandas' NA cannot be converted to float, and pandas need not be installed.
    if value is None or type(value).__name__ == "NAType":
        return float("nan")
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def _is_number(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and not math.isnan(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
