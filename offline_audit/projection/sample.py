"""The arrays of a projection test, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError
from offline_audit.groups import require_names, to_codes
from offline_audit.rendering import are, count, some
from offline_audit.validation import (
    UNKNOWN,
    binary,
    numbers_of,
    require_length,
    unit_codes,
)

__all__ = ["Attribute", "Groups", "Sample"]

# Largest finite distance: squares and sums of distances must stay finite.
_LARGEST = 1e100

Groups = ArrayLike | Mapping[str, ArrayLike]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """A protected attribute.

    Attributes:
        name: Name of the attribute.
        groups: Names of its groups, in order.
        codes: Index of each row's group, -1 if it is unknown, `[n]`.
    """

    name: str
    groups: tuple[str, ...]
    codes: NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Rows to test.

    Attributes:
        decisions: Decisions, 0 or 1, `[n]`.
        distances: Distances to the decision boundary, 0 or more, `[n]`.
        attributes: Protected attributes, at least one.
        labels: Labels, 0 or 1, -1 if unknown, `[n]`; None if there are none.
        units: Code of each row's person, `[n]`; None if each row is a person.
        warnings: Warnings about the group names.
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
        *,
        groups: Groups,
        decisions: ArrayLike,
        distances: ArrayLike,
        labels: ArrayLike | None = None,
        units: ArrayLike | None = None,
        expected_groups: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    ) -> Sample:
        """Validate the arrays; see `projection_test`.

        Raises:
            AuditInputError: The lengths differ, or a value is invalid.
        """
        decision_codes, checked_distances = _decisions(decisions), _distances(distances)
        label_codes = None if labels is None else _labels(labels)
        person_codes = None if units is None else unit_codes(units).astype(np.intp)
        by_attribute = groups if isinstance(groups, Mapping) else {"group": groups}
        if not by_attribute:
            raise AuditInputError("groups: at least one protected attribute is required")
        expected = _expected(expected_groups, [str(name) for name in by_attribute])
        attributes, warnings = [], []
        for name, values in by_attribute.items():
            names, codes = to_codes(values, str(name))
            warnings += require_names(names, expected.get(str(name)), str(name))
            attributes.append(Attribute(name=str(name), groups=names, codes=codes.astype(np.int32)))
        lengths = {"decisions": len(decision_codes), "distances": len(checked_distances)}
        lengths |= {f"groups of {a.name}": len(a.codes) for a in attributes}
        optional = {"labels": label_codes, "units": person_codes}
        require_length(lengths | {k: len(v) for k, v in optional.items() if v is not None})
        if person_codes is not None:
            for attribute in attributes:
                _require_one_group(person_codes, attribute)
        return cls(
            decisions=decision_codes,
            distances=checked_distances,
            attributes=tuple(attributes),
            labels=label_codes,
            units=person_codes,
            warnings=tuple(warnings),
        )


def _expected(
    names: Sequence[str] | Mapping[str, Sequence[str]] | None, attributes: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Allowed group names by attribute; an attribute that is not there allows any."""
    if names is None:
        return {}
    listed = names if isinstance(names, Mapping) else dict.fromkeys(attributes, names)
    expected = {str(attribute): groups for attribute, groups in listed.items()}
    if unknown := sorted(set(expected) - set(attributes)):
        raise AuditInputError(f"expected_groups: there is no attribute {some(unknown)}")
    for groups in expected.values():
        if isinstance(groups, str | bytes):
            raise AuditInputError("expected_groups: pass a list of names, not a single name")
    return expected


def _require_one_group(units: NDArray[np.intp], attribute: Attribute) -> None:
    """Check that no person has rows in two groups of an attribute."""
    known = attribute.codes >= 0
    if not known.any():
        return
    persons, codes = units[known], attribute.codes[known]
    lowest = np.full(int(persons.max()) + 1, len(attribute.groups), dtype=np.int32)
    highest = np.full(len(lowest), UNKNOWN, dtype=np.int32)
    np.minimum.at(lowest, persons, codes)
    np.maximum.at(highest, persons, codes)
    several = int(np.count_nonzero(lowest < highest))
    if several:
        raise AuditInputError(
            f"units: {count(several, 'unit')} with rows in more than one group of "
            f"{attribute.name}; correct the groups, or exclude those rows"
        )


def _decisions(values: ArrayLike) -> NDArray[np.int8]:
    codes = binary(values, "decisions")
    missing = codes == UNKNOWN
    if missing.any():
        raise AuditInputError(
            f"decisions: {count(int(missing.sum()), 'missing value')}, the first in row "
            f"{int(np.argmax(missing)):,}; exclude rows without a decision"
        )
    return codes.astype(np.int8)


def _labels(values: ArrayLike) -> NDArray[np.int8]:
    return binary(values, "labels").astype(np.int8)


def _distances(values: ArrayLike) -> NDArray[np.float64]:
    distances = numbers_of(values, "distances")
    for wrong, problem in (
        (np.isnan(distances), "NaN"),
        (distances < 0, "negative"),
        (np.isfinite(distances) & (distances > _LARGEST), f"above {_LARGEST:g}"),
    ):
        if wrong.any():
            number = int(np.count_nonzero(wrong))
            raise AuditInputError(
                f"distances: {count(number, 'value')} {are(number)} {problem}, the first in row "
                f"{int(np.argmax(wrong)):,}; a distance must be from 0 to {_LARGEST:g}, or infinite"
            )
    return distances
