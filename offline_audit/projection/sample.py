"""The arrays and options of a projection test, validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.criteria import CRITERIA, Criterion, check_criterion, needs_labels
from offline_audit.duplicates import UNITS_REMEDY, duplicate_warning, joined_codes
from offline_audit.errors import AuditInputError
from offline_audit.groups import require_names, to_codes
from offline_audit.rendering import are, count, some
from offline_audit.units import require_one_group
from offline_audit.validation import (
    UNKNOWN,
    binary,
    numbers_of,
    require_length,
    unit_codes,
)

__all__ = [
    "Attribute",
    "Groups",
    "Law",
    "Options",
    "Sample",
    "favoured_groups",
    "validate_options",
]

# Largest finite distance: squares and sums of distances must stay finite.
_LARGEST = 1e100

Groups = ArrayLike | Mapping[str, ArrayLike]
Law = Literal["standardized", "curve", "kernel"]


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
        warnings: Warnings about group names that differ by one letter.
    """

    decisions: NDArray[np.int8]
    distances: NDArray[np.float64]
    attributes: tuple[Attribute, ...]
    labels: NDArray[np.int8] | None
    units: NDArray[np.intp] | None
    warnings: tuple[str, ...] = ()

    def rows_compared(self, criterion: Criterion) -> int:
        """Number of rows with a known group, and with a label if the criterion needs one."""
        known = np.any([attribute.codes >= 0 for attribute in self.attributes], axis=0)
        if needs_labels(criterion) and self.labels is not None:
            labels = [label for label in CRITERIA[criterion] if label is not None]
            known &= np.isin(self.labels, labels)
        return int(known.sum())

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
                require_one_group(person_codes, attribute.codes, attribute.name)
        else:
            joined = joined_codes([attribute.codes for attribute in attributes])
            columns: list[NDArray[Any]] = [checked_distances, decision_codes, joined]
            columns += [] if label_codes is None else [label_codes]
            warning = duplicate_warning(columns, UNITS_REMEDY)
            warnings += [] if warning is None else [warning]
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
    """Allowed group names by attribute; an attribute without an entry allows any name."""
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


def _decisions(values: ArrayLike) -> NDArray[np.int8]:
    """Decisions, validated, `[n]`."""
    codes = binary(values, "decisions")
    missing = codes == UNKNOWN
    if missing.any():
        raise AuditInputError(
            f"decisions: {count(int(missing.sum()), 'missing value')}, the first in row "
            f"{int(np.argmax(missing)):,}; exclude rows without a decision"
        )
    return codes.astype(np.int8)


def _labels(values: ArrayLike) -> NDArray[np.int8]:
    """Labels, validated, -1 if unknown, `[n]`."""
    return binary(values, "labels").astype(np.int8)


def _distances(values: ArrayLike) -> NDArray[np.float64]:
    """Distances, validated, `[n]`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a test; see `projection_test`.

    Attributes:
        favoured: Index of the favoured group of each attribute; None if it has none.
    """

    criterion: Criterion
    tolerance: float
    favoured: tuple[int | None, ...]
    law: Law
    bandwidth: float | None
    alpha: float
    smallest_cell: int
    smallest_expected: float
    seed: int

    @property
    def one_sided(self) -> bool:
        """Whether an attribute has a favoured group."""
        return any(group is not None for group in self.favoured)


def favoured_groups(
    sample: Sample, favoured: str | Mapping[str, str] | None
) -> tuple[int | None, ...]:
    """Index of the favoured group of each attribute; None if it has none.

    Raises:
        AuditInputError: There is no such attribute or group.
    """
    by_attribute = favoured or {}
    if not isinstance(by_attribute, Mapping):
        if len(sample.attributes) > 1:
            raise AuditInputError(
                "favoured: there are several attributes; pass {attribute: group} instead of a name"
            )
        by_attribute = {sample.attributes[0].name: by_attribute}
    unknown = set(by_attribute) - {attribute.name for attribute in sample.attributes}
    if unknown:
        names = some([attribute.name for attribute in sample.attributes], 9)
        raise AuditInputError(
            f"favoured: there is no attribute {some(sorted(unknown))}; there are {names}"
        )
    indices: list[int | None] = []
    for attribute in sample.attributes:
        group = by_attribute.get(attribute.name)
        if group is not None and str(group) not in attribute.groups:
            raise AuditInputError(
                f"favoured: {attribute.name} has no group {group!r}; "
                f"there are {some(attribute.groups, 9)}"
            )
        indices.append(None if group is None else attribute.groups.index(str(group)))
    return tuple(indices)


def validate_options(options: Options, sample: Sample) -> None:
    """Check the options against each other and against the sample.

    Raises:
        AuditInputError: An option is out of range, or contradicts another one.
    """
    check_criterion(options.criterion)
    if options.law not in ("standardized", "curve", "kernel"):
        raise AuditInputError(
            f"law: unknown law {options.law!r}; use one of standardized, curve, kernel"
        )
    if not 0 <= options.tolerance < 1:
        raise AuditInputError(
            f"tolerance: must be at least 0 and below 1, not {options.tolerance:g}"
        )
    if not 0 < options.alpha < 1:
        raise AuditInputError(f"alpha: must be between 0 and 1, not {options.alpha:g}")
    if options.bandwidth is not None and not options.bandwidth > 0:
        raise AuditInputError(f"bandwidth: must be positive, not {options.bandwidth:g}")
    for name in ("smallest_cell", "smallest_expected"):
        if getattr(options, name) < 1:
            raise AuditInputError(f"{name}: must be at least 1, not {getattr(options, name):g}")
    if needs_labels(options.criterion) and sample.labels is None:
        raise AuditInputError(f"labels: required by the criterion {options.criterion}")
    if options.law == "kernel" and (options.tolerance > 0 or options.one_sided):
        two_groups = len(sample.attributes) == 1 and len(sample.attributes[0].groups) == 2
        if not (two_groups and options.one_sided and len(CRITERIA[options.criterion]) == 1):
            raise AuditInputError(
                'law: with a tolerance, "kernel" needs two groups, one of them favoured, and a '
                'criterion with a single label; use law="standardized"'
            )
