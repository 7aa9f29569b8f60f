"""Unknown groups and labels of a sample, and what they leave open of its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import DECISIONS, Unknowns, known_decisions, one_decision_only
from offline_audit.criteria import Criterion, needs_labels
from offline_audit.identification import GapRange
from offline_audit.projection.cells import Stratum
from offline_audit.projection.sample import Attribute, Sample
from offline_audit.rendering import are, count, some
from offline_audit.units import effective_rows
from offline_audit.validation import UNKNOWN

__all__ = [
    "gap_ranges",
    "label_table",
    "label_warnings",
    "robust_p_value",
    "selective_labels_reason",
    "unknowns_of",
]


def label_table(
    sample: Sample, attribute: Attribute, rows: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Rows by group, label and decision, `[groups + 1, 3, 3]`; the last index is unknown."""
    groups = len(attribute.groups) + 1
    # Code -1, an unknown group or label, is the last index.
    labels = np.full(len(sample.decisions), 2) if sample.labels is None else sample.labels % 3
    cells = (attribute.codes % groups * 3 + labels) * 3 + sample.decisions
    return np.bincount(cells if rows is None else cells[rows], minlength=9 * groups).reshape(
        groups, 3, 3
    )


def unknowns_of(sample: Sample, criterion: Criterion) -> Unknowns:
    """Numbers of rows of unknown group, and without a label if the criterion uses labels."""
    labels = sample.labels if needs_labels(criterion) else None
    return Unknowns(
        rows=len(sample.decisions),
        groups={a.name: int(np.count_nonzero(a.codes == UNKNOWN)) for a in sample.attributes},
        labels=None if labels is None else int(np.count_nonzero(labels == UNKNOWN)),
    )


def gap_ranges(
    sample: Sample, strata: Sequence[Stratum], identified: NDArray[np.bool_], tolerance: float
) -> tuple[GapRange, ...]:
    """What is left open of the gap of each pair of tested groups; empty if all is known."""
    share = 1.0
    if sample.units is not None:
        share = effective_rows(sample.units, len(sample.units)) / len(sample.units)
    unlabelled = sample.labels is not None and (sample.labels == UNKNOWN).any()
    by_label = unlabelled and any(stratum.label is not None for stratum in strata)
    if not by_label and not any((a.codes == UNKNOWN).any() for a in sample.attributes):
        return ()
    ranges = []
    for stratum in strata:
        for index in stratum.attributes:
            attribute = sample.attributes[index]
            table = label_table(sample, attribute, identified)
            pairs = list(combinations((stratum.constraints[i].group for i in stratum.of(index)), 2))
            ranges += [
                GapRange.of(
                    attribute.name,
                    (attribute.groups[one], attribute.groups[other]),
                    (table[one], table[other]),
                    stratum.label,
                    all_known=table[:-1].sum(axis=0),
                    unknown=table[-1],
                    tests=len(pairs),
                    share_independent=share,
                    tolerance=tolerance,
                )
                for one, other in pairs
            ]
    return tuple(ranges)


def robust_p_value(
    p_value: float, ranges: Sequence[GapRange], alpha: float
) -> tuple[float | None, str | None]:
    """The p-value that holds for what coverage leaves open, or the reason why there is none.

    The largest p-value of each pair of groups over the tables that coverage leaves open, corrected
    by Bonferroni for the number of pairs, is valid, and so is its maximum with the p-value of the
    known rows.

    Args:
        p_value: p-value of the known rows.
        ranges: Ranges of all pairs of groups.
        alpha: Significance level.
    """
    if all(part.p_values is None for part in ranges):
        return p_value, None
    ends = [part.p_values or (p_value, p_value) for part in ranges]
    least, largest = (min(1.0, len(ranges) * min(end[i] for end in ends)) for i in (0, 1))
    largest = max(p_value, largest)
    differing = [part.reason for part in ranges if part.differs]
    if differing and min(p_value, least) <= alpha < largest:
        return None, some(differing, 1)
    return largest, None


def selective_labels_reason(sample: Sample, criterion: Criterion) -> str | None:
    """Why rates within labels are not identified in the whole sample; None if they are."""
    if not needs_labels(criterion) or sample.labels is None:
        return None
    table = label_table(sample, sample.attributes[0]).sum(axis=0)
    reason = one_decision_only("", *known_decisions(table), DECISIONS)
    if reason is None:
        return None
    return f"{reason[0].upper()}{reason[1:]}. Statistical parity needs no labels."


def label_warnings(sample: Sample, criterion: Criterion) -> list[str]:
    """A warning about rows without a label."""
    missing = unknowns_of(sample, criterion).labels
    return [f"{count(missing, 'row')} without a label {are(missing)} excluded."] if missing else []
