"""Protected groups of rows: their names and codes, by one attribute or by several crossed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError, UnknownColumnError
from offline_audit.rendering import some
from offline_audit.validation import UNKNOWN, array_of, is_missing

__all__ = [
    "MOST_GROUPS",
    "By",
    "Crossing",
    "crossed",
    "crossed_name",
    "requested_attributes",
    "requested_crossings",
    "require_names",
    "require_two_groups",
    "similar_names",
    "to_codes",
    "too_few_groups",
    "word_of",
]

Int = NDArray[np.int64]
# Attributes to audit. A tuple means the crossing of its attributes; "pairs" means every attribute
# and every pair of attributes.
By = str | tuple[str, ...] | Sequence[str | tuple[str, ...]] | None

# Largest number of groups of an attribute; more distinct values suggest a quantity or an id.
MOST_GROUPS = 200
_CHUNK = 1_000_000
# Shorter names are treated as codes, which may well differ in one letter.
_SHORTEST_NAME = 4
# How numpy, pandas and Python write a missing value as text.
_MISSING_AS_TEXT = frozenset({"nan", "NaN", "NaT", "None", "<NA>"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Groups of one attribute, or of several crossed.

    Attributes:
        attribute: Name of the attribute; for several, their names joined by ×.
        names: Names of the groups.
        codes: Index of each row's group in `names`, `UNKNOWN` if it is not known, `[n]`.
    """

    attribute: str
    names: tuple[str, ...]
    codes: Int


def to_codes(values: Any, attribute: str) -> tuple[tuple[str, ...], Int]:
    """Sorted names of the groups, and the index of each row's group, `UNKNOWN` if not known.

    None, NaN, NaT, pandas' NA, masked values and blank text are unknown; other text is a name, also
    "nan". The result depends on the values only, not on the container.

    Raises:
        AuditInputError: There are too many distinct values, or a name is not text.
    """
    array = array_of(values, f"groups of {attribute}")
    if array.dtype.kind in "OSU":
        distinct, inverse = _distinct_objects(array, attribute)
    else:
        unique, inverse = np.unique(array, return_inverse=True)
        distinct = unique.tolist()
    try:
        words = ["" if is_missing(value) else word_of(value) for value in distinct]
    except ValueError:
        raise AuditInputError(
            f"groups of {attribute}: a name cannot be decoded; pass text, or bytes in UTF-8"
        ) from None
    names = tuple(sorted({word for word in words if word}))
    if len(names) > MOST_GROUPS:
        raise AuditInputError(
            f"groups of {attribute}: {len(names):,} distinct values (limit {MOST_GROUPS}); bin the "
            "column, or use `correlation_test`"
        )
    index = {name: number for number, name in enumerate(names)}
    codes = np.array([index.get(word, UNKNOWN) for word in words], dtype=np.int64)
    return names, codes[inverse] if len(inverse) else inverse.astype(np.int64)


def _distinct_objects(array: NDArray[Any], attribute: str) -> tuple[list[Any], Int]:
    """Distinct values and the index of each row's value; faster than sorting all rows."""
    indices: dict[Any, int] = {}
    inverse = np.empty(len(array), np.int64)
    try:
        for start in range(0, len(array), _CHUNK):
            values = array[start : start + _CHUNK].tolist()
            chunk = [indices.setdefault(value, len(indices)) for value in values]
            inverse[start : start + _CHUNK] = chunk
    except TypeError:
        raise AuditInputError(f"groups of {attribute}: one name per row is required") from None
    return list(indices), inverse


def require_names(
    names: Iterable[str], expected: Sequence[str] | None, attribute: str
) -> list[str]:
    """Check the names of groups; returns warnings about names that may be mistakes.

    Raises:
        AuditInputError: A name is not expected, or two names differ only in case or spaces.
    """
    listed = list(names)
    if expected is not None:
        unexpected = [name for name in listed if name not in expected]
        if unexpected:
            raise AuditInputError(
                f"groups of {attribute}: unexpected group{'s' * (len(unexpected) > 1)} "
                f"{some([repr(name) for name in unexpected], 10)}; expected: {some(expected, 10)}"
            )
        return []
    pairs = itertools.combinations(listed, 2)
    same = [(one, other) for one, other in pairs if _normalized(one) == _normalized(other)]
    if same:
        raise AuditInputError(
            f"groups of {attribute}: {_pairs(same)} differ only in case or spaces; use one spelling"
        )
    warnings = [
        f"A group of {attribute} is called {name!r}, as missing values are when written as text. "
        "If its rows have no group, pass None instead."
        for name in listed
        if name in _MISSING_AS_TEXT
    ]
    if similar := similar_names(listed):
        alike = _pairs(similar)
        warnings.append(f"Groups of {attribute} have similar names: {alike}. Are they the same?")
    return warnings


def similar_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that differ by one inserted, deleted, replaced or swapped letter."""
    pairs = itertools.combinations(names, 2)
    return [pair for pair in pairs if _one_typo(*map(_normalized, pair))]


def too_few_groups(names: Sequence[str], attributes: str | Sequence[str]) -> str | None:
    """Reason why groups cannot be compared: fewer than two are known. None if two or more are.

    Args:
        names: Names of the known groups.
        attributes: Protected attribute, or the attributes of a crossing.
    """
    if len(names) > 1:
        return None
    attribute = attributes if isinstance(attributes, str) else crossed_name(attributes)
    known = f"only {names[0]} is known" if names else "none is known"
    return f"At least two groups of {attribute} are needed; {known}."


def require_two_groups(names: Sequence[str], attribute: str) -> None:
    """Check that there are groups to compare.

    Raises:
        AuditInputError: Fewer than two groups are known.
    """
    if reason := too_few_groups(names, attribute):
        raise AuditInputError(f"groups: {reason}")


def crossed_name(names: Iterable[str]) -> str:
    """Name of a crossing of attributes, or of a group of it."""
    return " × ".join(names)


def crossed(parts: Sequence[Crossing]) -> Crossing:
    """Crossing of several attributes; only combinations of groups that occur."""
    known = np.all([part.codes != UNKNOWN for part in parts], axis=0)
    # At least 1, since an attribute may have no known group at all.
    sizes = tuple(max(len(part.names), 1) for part in parts)
    flat = np.ravel_multi_index([np.where(known, part.codes, 0) for part in parts], sizes)
    occurring = np.unique(flat[known])
    codes = np.where(known, np.searchsorted(occurring, flat), UNKNOWN)
    combinations = zip(*(axis.tolist() for axis in np.unravel_index(occurring, sizes)), strict=True)
    names = tuple(
        crossed_name(part.names[index] for part, index in zip(parts, indices, strict=True))
        for indices in combinations
    )
    return Crossing(
        attribute=crossed_name(part.attribute for part in parts), names=names, codes=codes
    )


def requested_crossings(attributes: Mapping[str, Crossing], by: By) -> list[Crossing]:
    """Attributes and crossings that `by` requests, in its order.

    Raises:
        UnknownColumnError: `by` names an attribute that does not exist.
    """
    requested = requested_attributes(by, list(attributes))
    return [
        attributes[names[0]] if len(names) == 1 else crossed([attributes[n] for n in names])
        for names in requested
    ]


def requested_attributes(by: By, attributes: Sequence[str]) -> list[tuple[str, ...]]:
    """Attributes of each requested crossing; a single attribute is a tuple of one.

    Raises:
        AuditInputError: `by` is not a name, a tuple or a list of these.
        UnknownColumnError: `by` names an attribute that does not exist.
    """
    single = [(name,) for name in attributes]
    if by is None:
        return list(single)
    if by == "pairs" and "pairs" not in attributes:
        return [*single, *itertools.combinations(attributes, 2)]
    entries: Any = [by] if isinstance(by, str | tuple) else by
    if not isinstance(entries, Iterable):
        raise AuditInputError("by: must be an attribute, a tuple of attributes, or a list of these")
    requested = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]
    if not requested or not all(requested):
        raise AuditInputError("by: at least one attribute is required")
    for name in itertools.chain.from_iterable(requested):
        if name not in attributes:
            raise UnknownColumnError(
                f"by: no protected attribute {name!r}; choose from "
                f"{', '.join(attributes) or 'none'}"
            )
    return requested


def word_of(value: Any) -> str:
    """Name of a group as text; empty if it is blank."""
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    word = value.decode() if isinstance(value, bytes) else str(value)
    return word if word.strip() else ""


def _normalized(name: str) -> str:
    return " ".join(name.casefold().split())


def _one_typo(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _SHORTEST_NAME or len(long) - len(short) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(short, long)) if a != b), len(short))  # noqa: B905
    # Names that differ in a digit are numbered, not misspelt.
    if any(ch.isdigit() for ch in (*short[start : start + 1], *long[start : start + 1])):
        return False
    rest = short[start + (len(short) == len(long)) :]
    swapped = len(short) == len(long) and sorted(short) == sorted(long)
    return rest == long[start + 1 :] or (
        swapped and sum(a != b for a, b in zip(short, long, strict=True)) == 2
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return some([f"{one!r} and {other!r}" for one, other in pairs], 10)
