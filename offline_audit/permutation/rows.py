"""Rows of traffic as validated arrays, with the group of each row by attribute or crossing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.groups import (
    By,
    Crossing,
    requested_crossings,
    require_names,
    to_codes,
    word_of,
)
from offline_audit.permutation.metrics import UNKNOWN_INDEX
from offline_audit.rendering import count
from offline_audit.validation import UNKNOWN, binary, finite, require_length, unit_codes

__all__ = [
    "ExpectedGroups",
    "Rows",
    "expected_names",
    "require_expected",
    "rows_of",
]

Int = NDArray[np.int64]
Int8 = NDArray[np.int8]
Float = NDArray[np.float64]
# Names of all possible groups; by attribute, if there are several.
ExpectedGroups = Sequence[str | int] | Mapping[str, Sequence[str | int]]

# A share of duplicate rows above this suggests that `units` are missing.
_DUPLICATE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of traffic, all arrays `[n]`.

    Attributes:
        crossings: Groups by attribute or crossing, in the requested order.
        decisions: 0, 1, or −1 where it is unknown; None if not given.
        labels: 0, 1, or −1 where it is unknown; None if not given.
        scores: None if not given.
        units: Number of the unit that each row belongs to; None if every row is its own unit.
        warnings: Reservations about the data.
    """

    crossings: tuple[Crossing, ...]
    decisions: Int8 | None
    labels: Int8 | None
    scores: Float | None
    units: Int | None
    warnings: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.crossings[0].codes)

    @property
    def label_index(self) -> Int:
        """Index of each label in tables of counts: 0, 1, or 2 where it is unknown, `[n]`."""
        return self._indices(self.labels)

    @property
    def decision_index(self) -> Int:
        """Index of each decision in tables of counts: 0, 1, or 2 where it is unknown, `[n]`."""
        return self._indices(self.decisions)

    def _indices(self, codes: Int8 | None) -> Int:
        if codes is None:
            return np.full(self.n, UNKNOWN_INDEX)
        return np.where(codes == UNKNOWN, UNKNOWN_INDEX, codes.astype(np.int64))

    def table(self, crossing: Crossing) -> Int:
        """Counts by group, label and decision, `[groups + 1, 3, 3]`; the last group is unknown."""
        groups = len(crossing.names) + 1
        group = np.where(crossing.codes == UNKNOWN, groups - 1, crossing.codes)
        cell = (group * 3 + self.label_index) * 3 + self.decision_index
        return np.bincount(cell, minlength=groups * 9).reshape(groups, 3, 3)


def rows_of(
    *,
    groups: Any,
    decisions: Any = None,
    labels: Any = None,
    scores: Any = None,
    units: Any = None,
    by: By = None,
    expected_groups: ExpectedGroups | None = None,
    score_limits: tuple[float, float] | None = (0.0, 1.0),
) -> Rows:
    """Validate arrays.

    Raises:
        AuditInputError: An array or an option is invalid.
    """
    by_attribute = dict(groups) if isinstance(groups, Mapping) else {"group": groups}
    if not by_attribute:
        raise AuditInputError("groups: the mapping is empty; at least one attribute is needed")
    _require_expected_type(expected_groups, by_attribute)
    warnings: list[str] = []
    attributes = {}
    for attribute, values in by_attribute.items():
        names, codes = to_codes(values, attribute)
        warnings += require_names(names, expected_names(expected_groups, attribute), attribute)
        attributes[attribute] = Crossing(attribute=attribute, names=names, codes=codes)
    arrays: dict[str, Any] = {
        "decisions": None if decisions is None else _binary_codes(decisions, "decisions"),
        "labels": None if labels is None else _binary_codes(labels, "labels"),
        "scores": None if scores is None else finite(scores, "scores", score_limits),
        "units": None if units is None else unit_codes(units),
    }
    lengths = {f"groups of {name}": len(each.codes) for name, each in attributes.items()}
    require_length(lengths | {name: len(a) for name, a in arrays.items() if a is not None})
    crossings = tuple(requested_crossings(attributes, by))
    rows = Rows(crossings=crossings, **arrays, warnings=())
    if rows.units is not None:
        _require_one_group(rows)
    elif rows.scores is not None:
        warnings += _duplicate_warnings(rows)
    return Rows(crossings=crossings, **arrays, warnings=tuple(warnings))


def _binary_codes(values: Any, name: str) -> Int8:
    return binary(values, name).astype(np.int8)


def expected_names(expected_groups: ExpectedGroups | None, attribute: str) -> list[str] | None:
    """Expected group names of one attribute, as text; None where any name is accepted."""
    if isinstance(expected_groups, Mapping):
        names = expected_groups.get(attribute)
    else:
        names = expected_groups
    return None if names is None else [word_of(name) for name in names]


def require_expected(
    expected_groups: ExpectedGroups | None, names: Mapping[str, Sequence[str]]
) -> list[str]:
    """Check the group names of each attribute; returns warnings about similar names.

    Raises:
        AuditInputError: A name is not expected, or `expected_groups` has the wrong type.
    """
    _require_expected_type(expected_groups, names)
    return [
        warning
        for attribute, known in names.items()
        for warning in require_names(known, expected_names(expected_groups, attribute), attribute)
    ]


def _require_expected_type(expected_groups: Any, attributes: Iterable[str]) -> None:
    if expected_groups is None:
        return
    by_attribute = isinstance(expected_groups, Mapping)
    lists = list(expected_groups.values()) if by_attribute else [expected_groups]
    if any(isinstance(n, str | bytes) or not isinstance(n, Iterable) for n in lists):
        raise AuditInputError(
            "expected_groups: must be a list of names, or a mapping from attributes to such lists"
        )
    if by_attribute:
        known = list(attributes)
        for attribute in expected_groups:
            if attribute not in known:
                raise AuditInputError(
                    f"expected_groups: unknown attribute {attribute!r}; choose from "
                    f"{', '.join(known)}"
                )


def _require_one_group(rows: Rows) -> None:
    assert rows.units is not None
    for crossing in rows.crossings:
        lowest = np.full(int(rows.units.max()) + 1, len(crossing.names))
        highest = np.full(len(lowest), -1)
        np.minimum.at(lowest, rows.units, crossing.codes)
        np.maximum.at(highest, rows.units, crossing.codes)
        split = int(np.count_nonzero(lowest != highest))
        if split:
            raise AuditInputError(
                f"units: {count(split, 'unit')} with rows in more than one group of "
                f"{crossing.attribute}; all rows of a unit must be in the same group"
            )


def _duplicate_warnings(rows: Rows) -> list[str]:
    """Warn if most rows duplicate another one: probably requests about the same person."""
    assert rows.scores is not None
    codes = [crossing.codes for crossing in rows.crossings]
    # Scores with few distinct values repeat by themselves.
    _, index, times = np.unique(rows.scores, return_inverse=True, return_counts=True)
    if len(times) < rows.n / 20 or len(times) == rows.n:
        return []
    whole = np.stack([index, rows.label_index, rows.decision_index, *codes])
    distinct = np.unique(whole, axis=1).shape[1]
    if 1 - distinct / rows.n <= _DUPLICATE_SHARE:
        return []
    share = 100 * (1 - distinct / rows.n)
    warning = (
        f"{share:.0f}% of the rows duplicate another row in score, label, decision and group. If "
        "they belong to the same people, pass `units`; otherwise p-values are too small."
    )
    return [warning]
