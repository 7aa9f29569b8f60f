"""The arrays that a projection test is given, checked: what cannot be used is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.checked_arrays import (
    MISSING,
    binary,
    numbers_of,
    require_length,
    unit_codes,
)
from offline_audit.errors import AuditInputError
from offline_audit.group_names import UNKNOWN, require_names, to_codes
from offline_audit.plain_words import count, some

__all__ = ["Attribute", "Groups", "Sample"]

# Squares and sums of distances must stay finite.
_LARGEST = 1e100

Groups = ArrayLike | Mapping[str, ArrayLike]


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
        warnings: What is odd about them.
    """

    decisions: NDArray[np.int8]
    distances: NDArray[np.float64]
    attributes: tuple[Attribute, ...]
    labels: NDArray[np.int8] | None
    units: NDArray[np.intp] | None
    warnings: tuple[str, ...] = ()

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
        decided, far = _decisions(decisions), _distances(distances)
        told = None if labels is None else _labels(labels)
        persons = None if units is None else unit_codes(units).astype(np.intp)
        given = groups if isinstance(groups, Mapping) else {"group": groups}
        if not given:
            raise AuditInputError("groups: no protected attribute was given")
        expected = _expected(expected_groups, [str(name) for name in given])
        attributes, warnings = [], []
        for name, values in given.items():
            names, codes = to_codes(values, str(name))
            warnings += require_names(names, expected.get(str(name)), str(name))
            attributes.append(Attribute(name=str(name), groups=names, codes=codes.astype(np.int32)))
        lengths = {"decisions": len(decided), "distances": len(far)}
        lengths |= {f"groups of {each.name}": len(each.codes) for each in attributes}
        optional = {"labels": told, "units": persons}
        require_length(lengths | {k: len(v) for k, v in optional.items() if v is not None})
        if persons is not None:
            for attribute in attributes:
                _require_whole(persons, attribute)
        return cls(
            decisions=decided,
            distances=far,
            attributes=tuple(attributes),
            labels=told,
            units=persons,
            warnings=tuple(warnings),
        )


def _expected(
    names: Sequence[str] | Mapping[str, Sequence[str]] | None, attributes: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Names that the groups of each attribute may have; none for an attribute: any."""
    if names is None:
        return {}
    listed = names if isinstance(names, Mapping) else dict.fromkeys(attributes, names)
    expected = {str(attribute): groups for attribute, groups in listed.items()}
    if unknown := sorted(set(expected) - set(attributes)):
        raise AuditInputError(f"expected_groups: no attribute {some(unknown)}")
    for groups in expected.values():
        if isinstance(groups, str | bytes):
            raise AuditInputError("expected_groups: a list of names is wanted, not one name")
    return expected


def _require_whole(units: NDArray[np.intp], attribute: Attribute) -> None:
    known = attribute.codes >= 0
    if not known.any():
        return
    persons, codes = units[known], attribute.codes[known]
    lowest = np.full(int(persons.max()) + 1, len(attribute.groups), dtype=np.int32)
    highest = np.full(len(lowest), UNKNOWN, dtype=np.int32)
    np.minimum.at(lowest, persons, codes)
    np.maximum.at(highest, persons, codes)
    torn = int(np.count_nonzero(lowest < highest))
    if torn:
        raise AuditInputError(
            f"units: {torn:,} have rows in more than one group of {attribute.name}; a person is in "
            "one group, or leave those rows out"
        )


def _decisions(values: ArrayLike) -> NDArray[np.int8]:
    found = binary(values, "decisions")
    if unknown := int(np.count_nonzero(found == MISSING)):
        raise AuditInputError(
            f"decisions: {count(unknown, 'row')} without, the first {np.argmax(found == MISSING)}; "
            "leave such rows out"
        )
    return found.astype(np.int8)


def _labels(values: ArrayLike) -> NDArray[np.int8]:
    found = binary(values, "labels")
    return np.where(found == MISSING, UNKNOWN, found).astype(np.int8)


def _distances(values: ArrayLike) -> NDArray[np.float64]:
    found = numbers_of(values, "distances")
    for wrong, what in (
        (np.isnan(found), "NaN"),
        (found < 0, "negative"),
        (np.isfinite(found) & (found > _LARGEST), f"above {_LARGEST:g}"),
    ):
        if wrong.any():
            number, where = int(np.count_nonzero(wrong)), int(np.argmax(wrong))
            verb = "is" if number == 1 else "are"
            raise AuditInputError(
                f"distances: {count(number, 'value')} {verb} {what}; the first in row {where}; "
                f"a distance to the decision boundary is 0 to {_LARGEST:g}, or infinite"
            )
    return found
