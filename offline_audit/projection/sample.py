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
from offline_audit.plain_words import count

__all__ = ["Attribute", "Groups", "Sample"]

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
        expected = expected_groups or {}
        if not isinstance(expected, Mapping):
            expected = dict.fromkeys(given, expected)
        attributes, warnings = [], []
        for name, values in given.items():
            names, codes = to_codes(values, str(name))
            warnings += require_names(names, expected.get(name), str(name))
            attributes.append(Attribute(name=str(name), groups=names, codes=codes.astype(np.int32)))
        lengths = {"decisions": len(decided), "distances": len(far)}
        lengths |= {f"groups of {each.name}": len(each.codes) for each in attributes}
        optional = {"labels": told, "units": persons}
        require_length(lengths | {k: len(v) for k, v in optional.items() if v is not None})
        return cls(
            decisions=decided,
            distances=far,
            attributes=tuple(attributes),
            labels=told,
            units=persons,
            warnings=tuple(warnings),
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
    for wrong, what in ((np.isnan(found), "NaN"), (found < 0, "negative")):
        if wrong.any():
            number, where = int(np.count_nonzero(wrong)), int(np.argmax(wrong))
            verb = "is" if number == 1 else "are"
            raise AuditInputError(
                f"distances: {count(number, 'value')} {verb} {what}; the first in row {where}; "
                "a distance to the decision boundary is 0 or more"
            )
    return found
