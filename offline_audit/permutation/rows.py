"""Rows of traffic as arrays: checked, and read by the tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import (
    MISSING,
    binary,
    finite,
    require_length,
    unit_codes,
)
from offline_audit.errors import AuditInputError
from offline_audit.group_names import require_names, to_codes, word_of
from offline_audit.permutation.crossing import Crossing, Intersections, wanted_crossings

__all__ = [
    "Expected",
    "Rows",
    "expected_of",
    "require_expected",
    "require_expected_kind",
    "rows_of",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
# Names of the groups that there may be; by attribute, if there are several.
Expected = Sequence[str | int] | Mapping[str, Sequence[str | int]]

# Rows beyond this share that repeat another one exactly ask for a word about units.
_MANY_REPEATS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of traffic, all arrays `[n]`.

    Attributes:
        crossings: Groups by attribute, then by intersections.
        decisions: 0, 1, or 2 where it is not known; None if none were given.
        labels: The same of labels.
        scores: None if none were given.
        units: Number of the unit that each row belongs to; None if each row is one.
        warnings: What is odd about them.
    """

    crossings: tuple[Crossing, ...]
    decisions: Int | None
    labels: Int | None
    scores: Float | None
    units: Int | None
    warnings: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many."""
        return len(self.crossings[0].codes)

    def table(self, crossing: Crossing) -> Int:
        """Counts by group, label and decision, `[groups + 1, 3, 3]`; the last group is unknown."""
        groups = len(crossing.names) + 1
        cell = (np.where(crossing.codes < 0, groups - 1, crossing.codes) * 3 + self.label) * 3
        return np.bincount(cell + self.decision, minlength=groups * 9).reshape(groups, 3, 3)

    @property
    def label(self) -> Int:
        """Labels, or what stands for no labels."""
        return np.full(self.n, MISSING) if self.labels is None else self.labels

    @property
    def decision(self) -> Int:
        """Decisions, or what stands for none."""
        return np.full(self.n, MISSING) if self.decisions is None else self.decisions


def rows_of(
    *,
    groups: Any,
    decisions: Any = None,
    labels: Any = None,
    scores: Any = None,
    units: Any = None,
    intersections: Intersections = False,
    expected: Expected | None = None,
    score_limits: tuple[float, float] | None = (0.0, 1.0),
) -> Rows:
    """Check arrays.

    Raises:
        AuditInputError: Something is not what it should be.
    """
    by_attribute = dict(groups) if isinstance(groups, Mapping) else {"group": groups}
    if not by_attribute:
        raise AuditInputError("groups: no attribute was given")
    require_expected_kind(expected, by_attribute)
    warnings: list[str] = []
    attributes = {}
    for attribute, values in by_attribute.items():
        names, codes = to_codes(values, attribute)
        warnings += require_names(names, expected_of(expected, attribute), attribute)
        attributes[attribute] = Crossing(attribute=attribute, names=names, codes=codes)
    made: dict[str, Any] = {
        "decisions": None if decisions is None else binary(decisions, "decisions"),
        "labels": None if labels is None else binary(labels, "labels"),
        "scores": None if scores is None else finite(scores, "scores", score_limits),
        "units": None if units is None else unit_codes(units),
    }
    lengths = {f"groups of {name}": len(each.codes) for name, each in attributes.items()}
    require_length(lengths | {name: len(a) for name, a in made.items() if a is not None})
    crossings = tuple(wanted_crossings(attributes, intersections))
    rows = Rows(crossings=crossings, **made, warnings=())
    if rows.units is not None:
        _require_one_group(rows)
    elif rows.scores is not None:
        warnings += _repeats(rows)
    return Rows(crossings=crossings, **made, warnings=tuple(warnings))


def expected_of(expected: Expected | None, attribute: str) -> Sequence[str] | None:
    """Names expected of one attribute, as words."""
    names = expected.get(attribute) if isinstance(expected, Mapping) else expected
    return None if names is None else [word_of(name) for name in names]


def require_expected(expected: Expected | None, names: Mapping[str, Sequence[str]]) -> None:
    """Groups of each attribute are among those expected.

    Raises:
        AuditInputError: Some are not, or what is expected is no list of names.
    """
    require_expected_kind(expected, names)
    for attribute, found in names.items():
        listed = expected_of(expected, attribute)
        if listed is not None:
            require_names(found, listed, attribute)


def require_expected_kind(expected: Any, attributes: Iterable[str]) -> None:
    """A list of names, or such lists by attribute.

    Raises:
        AuditInputError: It is something else, or names an attribute that is not there.
    """
    if expected is None:
        return
    listed = list(expected.values()) if isinstance(expected, Mapping) else [expected]
    if any(isinstance(n, str | bytes) or not isinstance(n, Iterable) for n in listed):
        raise AuditInputError("expected: a list of names is needed, or one for each attribute")
    if isinstance(expected, Mapping):
        known = list(attributes)
        for attribute in expected:
            if attribute not in known:
                raise AuditInputError(
                    f"expected: there is no attribute {attribute!r}; there are {', '.join(known)}"
                )


def _require_one_group(rows: Rows) -> None:
    assert rows.units is not None
    for crossing in rows.crossings:
        lowest = np.full(int(rows.units.max()) + 1, len(crossing.names))
        highest = np.full(len(lowest), -1)
        np.minimum.at(lowest, rows.units, crossing.codes)
        np.maximum.at(highest, rows.units, crossing.codes)
        torn = int(np.count_nonzero(lowest != highest))
        if torn:
            raise AuditInputError(
                f"units: {torn:,} have rows in more than one group of {crossing.attribute}; "
                "a unit changes groups as a whole"
            )


def _repeats(rows: Rows) -> list[str]:
    """Whether most rows are copies of another one: the same person, asked about again."""
    assert rows.scores is not None
    codes = [crossing.codes for crossing in rows.crossings]
    # A score with few values repeats by itself.
    _, place, times = np.unique(rows.scores, return_inverse=True, return_counts=True)
    if len(times) < rows.n / 20 or len(times) == rows.n:
        return []
    whole = np.stack([place, rows.label, rows.decision, *codes])
    distinct = np.unique(whole, axis=1).shape[1]
    if 1 - distinct / rows.n <= _MANY_REPEATS:
        return []
    share = 100 * (1 - distinct / rows.n)
    warning = (
        f"{share:.0f}% of the rows repeat another one in score, label, decision and group. If they "
        "are the same people, give `units`, or p-values will be too small."
    )
    return [warning]
