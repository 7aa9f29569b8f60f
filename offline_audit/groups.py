"""Names of protected groups: what is unknown, what looks like a slip of the pen, who is crossed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError, UnknownColumnError
from offline_audit.rendering import count, some
from offline_audit.validation import array_of, is_missing

__all__ = [
    "MOST_GROUPS",
    "UNKNOWN",
    "By",
    "Crossing",
    "crossed",
    "crossed_name",
    "look_alikes",
    "only_labelled_decision",
    "requested_attributes",
    "requested_crossings",
    "require_names",
    "to_codes",
    "too_few_groups",
    "uneven_labels",
    "word_of",
]

Int = NDArray[np.int64]
# Attributes to audit; a tuple stands for the crossing of its attributes, "pairs" for every
# attribute and every pair of them.
By = str | tuple[str, ...] | Sequence[str | tuple[str, ...]] | None

# The code of rows whose group is not known.
UNKNOWN = -1
# So many groups of one attribute at most: more is a quantity, or an id.
MOST_GROUPS = 200
_CHUNK = 1_000_000
# Names shorter than this are codes, which may well differ in one letter.
_SHORTEST_NAME = 4
# Difference of the labelled shares of the two decisions above which labels are uneven.
_UNEVEN_LABELS = 0.1


def to_codes(values: Any, attribute: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names in order, and the place of each row's name among them; −1 where it is not known.

    Raises:
        AuditInputError: So many groups that the attribute must be something else.
    """
    given = array_of(values, f"groups of {attribute}")
    if given.dtype.kind in "OSU":
        distinct, inverse = _distinct_words(given, attribute)
    else:
        found, inverse = np.unique(given, return_inverse=True)
        distinct = found.tolist()
    try:
        words = ["" if is_missing(value) else word_of(value) for value in distinct]
    except ValueError:
        raise AuditInputError(
            f"groups of {attribute}: a name is not readable; give text, or bytes of UTF-8"
        ) from None
    names = tuple(sorted({word for word in words if word}))
    if len(names) > MOST_GROUPS:
        raise AuditInputError(
            f"groups of {attribute}: {len(names):,} different values are no groups; a quantity "
            "belongs into `correlation_test`, or into bands"
        )
    place = {name: number for number, name in enumerate(names)}
    codes = np.array([place.get(word, UNKNOWN) for word in words], dtype=np.int64)
    return names, codes[inverse] if len(inverse) else inverse.astype(np.int64)


def _distinct_words(given: NDArray[Any], attribute: str) -> tuple[list[Any], NDArray[np.int64]]:
    """Values that occur, and the place of each row's; sorting all of them would take longer."""
    places: dict[Any, int] = {}
    inverse = np.empty(len(given), np.int64)
    try:
        for start in range(0, len(given), _CHUNK):
            listed = given[start : start + _CHUNK].tolist()
            found = [places.setdefault(value, len(places)) for value in listed]
            inverse[start : start + _CHUNK] = found
    except TypeError:
        raise AuditInputError(f"groups of {attribute}: one name a row is needed") from None
    return list(places), inverse


def require_names(
    names: Iterable[str], expected: Sequence[str] | None, attribute: str
) -> list[str]:
    """Warnings about names that look alike.

    Raises:
        AuditInputError: A name is none of those expected, or two differ only in case or spaces.
    """
    found = list(names)
    if expected is not None:
        strangers = [name for name in found if name not in expected]
        if strangers:
            raise AuditInputError(
                f"groups of {attribute}: {count(len(strangers), 'name')} not expected: "
                f"{some([repr(name) for name in strangers], 10)}; expected are {some(expected, 10)}"
            )
        return []
    same = [pair for pair in itertools.combinations(found, 2) if _plain(pair[0]) == _plain(pair[1])]
    if same:
        raise AuditInputError(
            f"groups of {attribute}: {_pairs(same)} differ only in case or spaces; write them alike"
        )
    close = look_alikes(found)
    return [f"Groups of {attribute} look alike: {_pairs(close)}. Are they the same?"] * bool(close)


def look_alikes(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that one letter too many, too few or wrong keeps apart."""
    return [pair for pair in itertools.combinations(names, 2) if _one_slip(*map(_plain, pair))]


def too_few_groups(names: Sequence[str], attributes: str | Sequence[str]) -> str | None:
    """Why groups cannot be compared: fewer than two are known; None if there are two or more.

    Args:
        names: Names of the known groups.
        attributes: Protected attribute, or those that are crossed.
    """
    if len(names) > 1:
        return None
    attribute = attributes if isinstance(attributes, str) else crossed_name(attributes)
    known = f"only {names[0]} is known" if names else "none is known"
    return f"Two groups of {attribute} are needed, and {known}."


def only_labelled_decision(
    rows: NDArray[np.integer], labelled: NDArray[np.integer]
) -> NDArray[np.int64]:
    """The decision whose rows alone have labels, although both decisions occur; -1 if none.

    Labels are then selective, and rates within labels are not identified: among labelled rows they
    are 0 or 1 by construction.

    Args:
        rows: Numbers of rows with decision 0 and with decision 1, `[..., 2]`.
        labelled: Numbers of those rows whose label is known, `[..., 2]`.
    """
    has_labels = labelled > 0
    selective = (rows > 0).all(axis=-1) & (has_labels.sum(axis=-1) == 1)
    return np.where(selective, has_labels.argmax(axis=-1), UNKNOWN)


def uneven_labels(
    rows: NDArray[np.integer], labelled: NDArray[np.integer], *, standard_errors: float = 0.0
) -> NDArray[np.bool_]:
    """Whether the labelled shares of the two decisions differ by more than ten percentage points.

    Rates within labels are then biased, unless labels are missing at random.

    Args:
        rows: Numbers of rows with decision 0 and with decision 1, `[..., 2]`. With no row of a
            decision the result is False.
        labelled: Numbers of those rows whose label is known, `[..., 2]`.
        standard_errors: Number of standard errors that the difference must exceed, too.
    """
    # At least one row, so that empty decisions divide by 1 instead of 0.
    n = np.maximum(rows, 1)
    difference = np.abs(labelled[..., 0] / n[..., 0] - labelled[..., 1] / n[..., 1])
    pooled = labelled.sum(axis=-1) / n.sum(axis=-1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n).sum(axis=-1))
    uneven = (difference > _UNEVEN_LABELS) & (difference > standard_errors * error)
    return np.asarray(uneven & (rows > 0).all(axis=-1))


def crossed_name(names: Iterable[str]) -> str:
    """Of a group that several attributes define together."""
    return " × ".join(names)


def word_of(value: Any) -> str:
    """A group's name as text; empty if it is blank."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    word = value.decode() if isinstance(value, bytes) else str(value)
    return word if word.strip() else ""


def _plain(name: str) -> str:
    return " ".join(name.casefold().split())


def _one_slip(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if len(short) < _SHORTEST_NAME or len(long) - len(short) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(short, long)) if a != b), len(short))  # noqa: B905
    # A digit that differs is a number, not a slip.
    if any(ch.isdigit() for ch in (*short[start : start + 1], *long[start : start + 1])):
        return False
    rest = short[start + (len(short) == len(long)) :]
    swapped = len(short) == len(long) and sorted(short) == sorted(long)
    return rest == long[start + 1 :] or (
        swapped and sum(a != b for a, b in zip(short, long, strict=True)) == 2
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return some([f"{one!r} and {other!r}" for one, other in pairs], 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Groups of one attribute, or of several together.

    Attributes:
        attribute: Name of the attribute; of several, their names joined by ×.
        names: Names of the groups.
        codes: Index of each row's group in `names`, `[n]`; -1 if unknown.
    """

    attribute: str
    names: tuple[str, ...]
    codes: Int


def crossed(parts: Sequence[Crossing]) -> Crossing:
    """Groups that several attributes define together; only those that occur."""
    known = np.all([part.codes != UNKNOWN for part in parts], axis=0)
    sizes = tuple(len(part.names) for part in parts)
    flat = np.ravel_multi_index([np.where(known, part.codes, 0) for part in parts], sizes)
    found = np.unique(flat[known])
    codes = np.where(known, np.searchsorted(found, flat), UNKNOWN)
    places = zip(*(axis.tolist() for axis in np.unravel_index(found, sizes)), strict=True)
    names = tuple(
        crossed_name(part.names[place] for part, place in zip(parts, each, strict=True))
        for each in places
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
        raise AuditInputError(
            "by: an attribute, a tuple of attributes or a list of these is needed"
        )
    requested = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]
    if not requested or not all(requested):
        raise AuditInputError("by: at least one attribute is needed")
    for name in itertools.chain.from_iterable(requested):
        if name not in attributes:
            raise UnknownColumnError(
                f"by: no protected attribute {name!r}; there is: {', '.join(attributes) or 'none'}"
            )
    return requested
