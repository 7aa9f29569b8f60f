"""Arrays that a caller gives, checked: what is wrong, and where, never whose value it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count

__all__ = [
    "MISSING",
    "array_of",
    "binary",
    "finite",
    "is_missing",
    "numbers_of",
    "require_length",
    "unit_codes",
]

# How a label or a decision that is not known is coded, after 0 and 1.
MISSING = 2
# Its cube is still a number.
_LARGEST = 1e100

Int = NDArray[np.int64]
Float = NDArray[np.float64]


def array_of(values: Any, name: str) -> NDArray[Any]:
    """An array `[n]` in which what is missing still shows.

    numpy makes the word "nan" of NaN among words, and drops masks; so lists that hold more than
    numbers are read value by value, and what a mask covers becomes None.

    Raises:
        AuditInputError: It is not one value a row.
    """
    if values is None:
        raise AuditInputError(f"{name}: one value a row is needed, not None")
    try:
        given = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray):
            given = _without(given, np.ma.getmaskarray(values))
        elif given.dtype.kind in "SU" and not isinstance(values, np.ndarray):
            given = np.asarray(values, dtype=object)
        elif given.dtype.kind == "U" and (given == "nan").any():
            # What numpy makes of NaN among words.
            given = _without(given, given == "nan")
    except (ValueError, TypeError):
        raise AuditInputError(f"{name}: one value a row is needed") from None
    if given.ndim != 1:
        raise AuditInputError(
            f"{name}: one value a row is needed, not an array of {given.ndim} axes"
        )
    return given


def _without(values: NDArray[Any], lost: NDArray[np.bool_]) -> NDArray[Any]:
    found = values.astype(object)
    found[lost] = None
    return found


def is_missing(value: Any) -> bool:
    """None, NaN, NaT and pandas' NA; the last three equal nothing, not even themselves."""
    if value is None:
        return True
    equal = value == value
    return equal is not True and not (isinstance(equal, np.bool_) and bool(equal))


def binary(values: Any, name: str) -> Int:
    """Zeros and ones; 2 where None or NaN stands for what is not known.

    Raises:
        AuditInputError: Anything else is among them.
    """
    given = array_of(values, name)
    if given.dtype.kind in "biu" and len(given) and _all_0_or_1(given):
        return given.astype(np.int64)
    numbers = numbers_of(given, name)
    missing = np.isnan(numbers)
    wrong = ~missing & (numbers != 0) & (numbers != 1)
    if wrong.any():
        raise AuditInputError(
            f"{name}: {count(int(wrong.sum()), 'value')} neither 0 nor 1, the first in row "
            f"{int(np.argmax(wrong)):,}; None or NaN stands for what is not known"
        )
    return np.where(missing, MISSING, numbers).astype(np.int64)


def finite(values: Any, name: str, limits: tuple[float, float] | None = None) -> Float:
    """Numbers, all of them finite and within limits.

    Raises:
        AuditInputError: Some are not.
    """
    numbers = numbers_of(values, name)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        raise AuditInputError(
            f"{name}: {count(int(wrong.sum()), 'value')} missing or infinite, the first in row "
            f"{int(np.argmax(wrong)):,}; leave those rows out, and say so where you report"
        )
    if np.abs(numbers).max(initial=0.0) > _LARGEST:
        raise AuditInputError(f"{name}: numbers beyond 1e100 cannot be squared; give them smaller")
    if limits is not None:
        outside = (numbers < limits[0]) | (numbers > limits[1])
        if outside.any():
            raise AuditInputError(
                f"{name}: {count(int(outside.sum()), 'value')} outside {limits[0]:g} to "
                f"{limits[1]:g}, the first in row {int(np.argmax(outside)):,}; "
                "`score_limits=None` takes any numbers"
            )
    return numbers


def unit_codes(values: Any) -> Int:
    """A number from 0 on for each unit, such as a person, that rows belong to.

    Raises:
        AuditInputError: A row belongs to none.
    """
    given = array_of(values, "units")
    if given.dtype.kind == "O":
        ids: dict[Any, int] = {}
        listed = given.tolist()
        try:
            lost = [place for place, value in enumerate(listed) if is_missing(value)]
            codes = [ids.setdefault(value, len(ids)) for value in listed]
        except (TypeError, ValueError):
            raise AuditInputError("units: one id a row is needed") from None
        if lost:
            raise AuditInputError(f"units: {count(len(lost), 'row')} without, first {lost[0]:,}")
        return np.array(codes, dtype=np.int64)
    if given.dtype.kind == "f" and np.isnan(given).any():
        lost_rows = np.isnan(given)
        raise AuditInputError(
            f"units: {count(int(lost_rows.sum()), 'row')} without, first {np.argmax(lost_rows):,}"
        )
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def require_length(lengths: dict[str, int]) -> int:
    """The length that all arrays have.

    Raises:
        AuditInputError: They differ, or there are no rows.
    """
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise AuditInputError(f"arrays of different length: {told}")
    found = next(iter(lengths.values()))
    if found == 0:
        raise AuditInputError("no rows were given")
    return found


def numbers_of(values: Any, name: str) -> Float:
    """Numbers, NaN where None stands.

    Raises:
        AuditInputError: Something else is among them, or it is not one value a row.
    """
    given = array_of(values, name)
    if given.dtype.kind in "biuf":
        return given.astype(np.float64)
    try:
        return np.array([_number(value) for value in given.tolist()], dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # Not its text, which quotes the value.
        raise AuditInputError(f"{name}: not all values are numbers") from None


def _all_0_or_1(values: NDArray[Any]) -> bool:
    return bool(values.min() >= 0 and values.max() <= 1)


def _number(value: Any) -> float:
    # pandas' NA is no float, and pandas need not be installed.
    if value is None or type(value).__name__ == "NAType":
        return float("nan")
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)
