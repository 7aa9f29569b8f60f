"""Labels by group and decision of a FlipTest: whether they identify flips within labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.coverage import known_decisions, one_decision_only
from offline_audit.errors import AuditInputError
from offline_audit.identification import GapRange
from offline_audit.units import effective_rows
from offline_audit.validation import UNKNOWN

if TYPE_CHECKING:
    from offline_audit.fliptest.sample import Sample

__all__ = ["unidentified", "validated_counts"]

_DECISIONS = ("with the unfavourable decision", "with the favourable decision")


def unidentified(
    sample: Sample,
    groups: tuple[int, int],
    label: int | None,
    decisions: NDArray[np.int8],
    tests: int,
) -> tuple[str | None, tuple[str, ...]]:
    """Reason why labels do not identify the flips of two groups, or None; and warnings.

    Args:
        sample: The rows.
        groups: Indices of the groups.
        label: Label within which rows are transported; None for rows of any label.
        decisions: Decisions, also on rows without a label; -1 if unknown, `[n]`.
        tests: Number of pairs that are compared.
    """
    if sample.labels is None:
        return None, ()
    names = sample.groups[groups[0]], sample.groups[groups[1]]
    one, other = (_label_table(sample, group, decisions) for group in groups)
    for name, table in zip(names, (one, other), strict=True):
        if not table[:2].any():
            return f"no label of {name} is known.", ()
        reason = one_decision_only(f" of {name}", *known_decisions(table), _DECISIONS)
        if reason is not None:
            return f"{reason}.", ()
    nobody = np.zeros((3, 3), dtype=np.int64)
    gap = GapRange.of(
        sample.attribute,
        names,
        (one, other),
        label,
        all_known=one,
        unknown=nobody,
        tests=tests,
        share_independent=_share_independent(sample, groups)
        * min(_share_decided(sample, group, decisions) for group in groups),
    )
    return gap.reason if gap.decisive else None, gap.warnings


def validated_counts(
    counts: Mapping[str, ArrayLike], names: Sequence[str]
) -> dict[str, NDArray[np.int64]]:
    """Rows of each group by label and decision, `[3, 3]`, checked.

    Raises:
        AuditInputError: A group is missing, or its counts are not whole numbers `[3, 3]`.
    """
    tables = {str(name): np.asarray(table) for name, table in dict(counts).items()}
    for name in names:
        table = tables.get(name, np.zeros(0))
        if table.shape != (3, 3) or table.dtype.kind not in "iu" or (table < 0).any():
            raise AuditInputError(
                "label_counts: every group needs rows by label and decision, whole numbers [3, 3]; "
                f"{name!r} has none"
            )
    return {name: tables[name].astype(np.int64) for name in names}


def _label_table(sample: Sample, group: int, decisions: NDArray[np.int8]) -> NDArray[np.int64]:
    """Rows of a group by label and decision, `[3, 3]`; the last index is unknown.

    Rows on which the model did not decide are counted by the shares of those with the same
    label.

    Args:
        sample: The rows.
        group: Index of the group.
        decisions: Decisions, also on rows without a label; -1 if unknown, `[n]`.
    """
    if sample.label_counts is not None:
        return sample.label_counts[sample.groups[group]]
    counts = np.zeros((3, 3))
    for index, label in enumerate((0, 1, UNKNOWN)):
        rows = sample.rows(group, label)
        decided = np.bincount(decisions[rows][decisions[rows] >= 0], minlength=2)
        counts[index, :2] = decided * len(rows) / max(decided.sum(), 1)
    return np.rint(counts).astype(np.int64)


def _share_independent(sample: Sample, groups: tuple[int, int]) -> float:
    """Effective units per row of two groups; 1 if every row is its own unit."""
    if sample.units is None:
        return 1.0
    units = sample.units[np.isin(sample.codes, groups)]
    return effective_rows(units, len(units)) / len(units)


def _share_decided(sample: Sample, group: int, decisions: NDArray[np.int8]) -> float:
    """Smallest share of a group's rows with the same label on which the model decided."""
    if sample.label_counts is not None:
        return 1.0
    parts = [decisions[sample.rows(group, label)] >= 0 for label in (0, 1, UNKNOWN)]
    return min((float(part.mean()) for part in parts if part.any()), default=1.0)
