"""The arrays that a projection test is given, checked: what cannot be used is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError
from offline_audit.plain_words import count, some

__all__ = ["Attribute", "Groups", "Sample"]

Groups = ArrayLike | Mapping[str, ArrayLike]

_UNKNOWN = -1
_MOST_GROUPS = 200
_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A protected attribute.

    Attributes:
        name: As it was given.
        groups: Names of its groups, in order.
        codes: Place of each row's group; -1 where it is not known.
    """

    name: str
    groups: tuple[str, ...]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Rows to test.

    Attributes:
        decisions: 0 or 1, `[n]`.
        distances: To the decision boundary, 0 or more, `[n]`.
        attributes: One or more.
        labels: 0 or 1, and -1 where it is not known, `[n]`; None if none were given.
        units: Number of the person whose row it is, `[n]`; None if each row is a person.
    """

    decisions: NDArray[np.int8]
    distances: NDArray[np.float64]
    attributes: tuple[Attribute, ...]
    labels: NDArray[np.int8] | None
    units: NDArray[np.intp] | None

    @classmethod
    def read(
        cls,
        decisions: ArrayLike,
        distances: ArrayLike,
        groups: Groups,
        *,
        labels: ArrayLike | None = None,
        units: ArrayLike | None = None,
        expected_groups: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    ) -> Sample:
        """Check the arrays.

        Raises:
            AuditInputError: Lengths differ, or a value is none that the test takes.
        """
        decided = _zeros_and_ones("decisions", decisions, missing=False)
        n = len(decided)
        if n == 0:
            raise AuditInputError("decisions: there are no rows")
        given = groups if isinstance(groups, Mapping) else {"group": groups}
        if not given:
            raise AuditInputError("groups: no protected attribute was given")
        expected = expected_groups or {}
        if not isinstance(expected, Mapping):
            expected = dict.fromkeys(given, expected)
        return cls(
            decisions=decided,
            distances=_distances(distances, n),
            attributes=tuple(
                _attribute(str(name), values, n, expected.get(name))
                for name, values in given.items()
            ),
            labels=None if labels is None else _labels(labels, n),
            units=None if units is None else _units(units, n),
        )


def _array(name: str, values: ArrayLike, n: int | None = None) -> NDArray[Any]:
    found = np.asarray(values)
    if found.ndim != 1:
        raise AuditInputError(f"{name}: one value a row is wanted, not shape {found.shape}")
    if n is not None and len(found) != n:
        raise AuditInputError(f"{name}: {count(len(found), 'value')} for {count(n, 'decision')}")
    return found


def _numbers(name: str, found: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        raise AuditInputError(f"{name}: not all values are numbers") from None


def _zeros_and_ones(
    name: str, values: ArrayLike, *, missing: bool, n: int | None = None
) -> NDArray[np.int8]:
    """0 and 1 as they are; where values may be missing, None, NaN and -1 as -1."""
    found = _array(name, values, n)
    if found.dtype == np.bool_:
        return found.astype(np.int8)
    least = _UNKNOWN if missing else 0
    if found.dtype.kind in "iu" and len(found) and found.min() >= least and found.max() <= 1:
        return found.astype(np.int8)
    numbers = _numbers(name, found)
    known = (numbers == 0) | (numbers == 1)
    gone = np.isnan(numbers) | (numbers == _UNKNOWN) if missing else np.zeros(1, dtype=bool)
    wrong = int(np.count_nonzero(~(known | gone)))
    if wrong:
        where = int(np.argmin(known | gone))
        also = ", or None, NaN or -1 where it is not known" if missing else ""
        verb = "is" if wrong == 1 else "are"
        raise AuditInputError(
            f"{name}: {count(wrong, 'value')} {verb} not 0 or 1{also}; the first in row {where}"
        )
    return np.where(known, numbers == 1, _UNKNOWN).astype(np.int8)


def _labels(values: ArrayLike, n: int) -> NDArray[np.int8]:
    return _zeros_and_ones("labels", values, missing=True, n=n)


def _distances(values: ArrayLike, n: int) -> NDArray[np.float64]:
    found = _numbers("distances", _array("distances", values, n))
    for wrong, what in ((np.isnan(found), "NaN"), (found < 0, "negative")):
        if wrong.any():
            number, where = int(np.count_nonzero(wrong)), int(np.argmax(wrong))
            verb = "is" if number == 1 else "are"
            raise AuditInputError(
                f"distances: {count(number, 'value')} {verb} {what}; the first in row {where}; "
                "a distance to the decision boundary is 0 or more"
            )
    return found


def _attribute(name: str, values: ArrayLike, n: int, expected: Sequence[str] | None) -> Attribute:
    found = _array(f"groups of {name}", values, n)
    words = {value: _word(value) for value in _distinct(found)}
    names = sorted({word for word in words.values() if word.strip()})
    if len(names) > _MOST_GROUPS:
        raise AuditInputError(
            f"groups of {name}: {len(names):,} different values; "
            f"groups are {_MOST_GROUPS:,} at most: is this a continuous attribute?"
        )
    places = {value: names.index(word) for value, word in words.items() if word.strip()}
    if found.dtype.kind == "O":
        codes = np.fromiter((places.get(v, _UNKNOWN) for v in found.tolist()), np.int32, n)
    else:
        codes = np.full(n, _UNKNOWN, dtype=np.int32)
        for value, place in places.items():
            codes[found == value] = place
    sizes = np.bincount(codes[codes != _UNKNOWN], minlength=len(names))
    if expected is not None:
        _refuse_unexpected(name, names, sizes, [_word(value) for value in expected])
    _refuse_lookalikes(name, names, sizes)
    return Attribute(name=name, groups=tuple(names), codes=codes)


def _distinct(found: NDArray[Any]) -> list[Any]:
    """Values that are there, without those that stand for nothing."""
    if found.dtype.kind == "f":
        return list(np.unique(found[~np.isnan(found)]).tolist())
    if found.dtype.kind in "OSU":
        seen: dict[Any, None] = {}
        for start in range(0, len(found), _CHUNK):
            seen.update(dict.fromkeys(found[start : start + _CHUNK].tolist()))
        return [value for value in seen if not _missing(value)]
    return list(np.unique(found).tolist())


def _missing(value: Any) -> bool:
    # NaN is not equal to itself; whether pandas' NA is, it does not say.
    return value is None or (value == value) is not True


def _word(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def _refuse_unexpected(
    name: str, names: Sequence[str], sizes: NDArray[np.intp], expected: Sequence[str]
) -> None:
    strange = [
        f"{g!r} ({count(int(s), 'row')})"
        for g, s in zip(names, sizes, strict=True)
        if g not in expected
    ]
    if strange:
        raise AuditInputError(
            f"groups of {name}: {some(strange, 10)} not among the expected groups "
            f"{some([repr(g) for g in expected], 10)}"
        )


def _refuse_lookalikes(name: str, names: Sequence[str], sizes: NDArray[np.intp]) -> None:
    """Groups that differ in case or in spaces only are one group with a typo."""
    alike: dict[str, list[str]] = {}
    for group, size in zip(names, sizes, strict=True):
        alike.setdefault("".join(group.casefold().split()), []).append(
            f"{group!r} ({count(int(size), 'row')})"
        )
    doubled = [" and ".join(same) for same in alike.values() if len(same) > 1]
    if doubled:
        raise AuditInputError(
            f"groups of {name}: {some(doubled, 10)} differ in case or spaces only; "
            "write each group in one way"
        )


def _units(values: ArrayLike, n: int) -> NDArray[np.intp]:
    found = _array("units", values, n)
    if found.dtype.kind == "O":
        if any(map(_missing, found.tolist())):
            raise AuditInputError("units: some are missing; name the person of every row")
        places: dict[Any, int] = {}
        return np.array([places.setdefault(v, len(places)) for v in found.tolist()], dtype=np.intp)
    if found.dtype.kind == "f" and np.isnan(found).any():
        raise AuditInputError("units: some are missing; name the person of every row")
    return np.unique(found, return_inverse=True)[1].astype(np.intp)
