"""The section of the training-time audit on the classifier itself, as text."""

from __future__ import annotations

import math

from scipy import stats

from monitor.fitting.audit_text import wrapped
from monitor.fitting.performance import ClassifierCheck, Performance, RowsPerformance

__all__ = ["classifier_lines"]

_NO_LABEL = (
    "The spec has no `label`, so the order and scaling of the features could not be checked: a "
    "classifier that gets wrong columns is noticed only if scores are saturated or hardly vary. "
    "Everything below, including who loses, may then be wrong."
)
_TO_CHECK = (
    "Check that the spec lists the features in the order of the classifier's input, that their "
    "values are scaled and encoded as in its training, and that `output` and the threshold are "
    "right. The rest of this audit describes the classifier on the given input, right or wrong."
)


def classifier_lines(check: ClassifierCheck) -> list[str]:
    """Lines about the classifier: warnings, performance, performance by group."""
    lines = ["Classifier", *(wrapped("Warning", warning) for warning in check.warnings)]
    if check.doubt:
        lines.append(wrapped("What to check", _TO_CHECK))
    performance = check.performance
    if performance is None:
        return [*lines, wrapped("Warning", _NO_LABEL), wrapped("Performance", "Not known.")]
    return [
        *lines,
        wrapped("Performance", _overall(performance)),
        wrapped("Calibration", _calibration(performance)),
        *_table(performance),
        *_group_calibration(performance),
    ]


def _overall(performance: Performance) -> str:
    overall = performance.overall
    text = (
        f"{overall.accuracy:.1%} of decisions on {overall.rows:,} held-back rows agree with the "
        f"label; always predicting the more frequent label would reach {performance.majority:.1%}."
    )
    if performance.auc_interval is not None:
        low, high = performance.auc_interval
        text += f" AUC {overall.auc:.3f} (95% interval {low:.3f} to {high:.3f})."
    if performance.unlabelled:
        text += f" {performance.unlabelled:,} rows have no label."
    return (
        f"{text} Whether the classifier was trained on these rows is not known; if it was, these "
        "figures are too good."
    )


def _calibration(performance: Performance) -> str:
    overall = performance.overall
    text = (
        f"The favourable label is predicted with a mean probability of {overall.predicted:.1%} and "
        f"observed in {overall.observed:.1%} of rows; the calibration error is "
        f"{performance.calibration_error:.1%} on average."
    )
    if performance.skill is None:
        return text
    return (
        f"{text} Brier skill against the base rate {performance.skill:.2f} (95% interval "
        f"{performance.skill_low:.2f} to {performance.skill_high:.2f})."
    )


def _table(performance: Performance) -> list[str]:
    """Performance by group; the last two columns are about the favourable label."""
    heading = ("By group", "rows", "accuracy", "AUC", "predicted", "observed")
    rows = [heading]
    for attribute, groups in performance.groups.items():
        rows += [(f"{attribute}: {name}", *_cells(group)) for name, group in groups.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[0] = max(widths[0], 24)
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]


def _group_calibration(performance: Performance) -> list[str]:
    """Sentences on attributes whose groups differ in observed − predicted, beyond noise."""
    lines = []
    for attribute, groups in performance.groups.items():
        gaps = {
            name: group.observed - group.predicted
            for name, group in groups.items()
            if group.gap_error is not None
        }
        if len(gaps) < 2:
            continue
        under, over = max(gaps, key=gaps.__getitem__), min(gaps, key=gaps.__getitem__)
        error = math.hypot(groups[under].gap_error or 0, groups[over].gap_error or 0)
        pairs = math.comb(len(gaps), 2)
        if gaps[under] - gaps[over] > stats.norm.isf(0.025 / pairs) * error:
            parts = " and ".join(
                f"{groups[name].predicted:.1%} for {name} where {groups[name].observed:.1%} was "
                "observed"
                for name in (under, over)
            )
            text = (
                f"The groups of {attribute} differ beyond noise: the classifier predicts the "
                f"favourable label with a mean probability of {parts}."
            )
            lines.append(wrapped("Calibration by group", text))
    return lines


def _cells(group: RowsPerformance) -> tuple[str, str, str, str, str]:
    auc = "–" if group.auc is None else f"{group.auc:.3f}"
    if group.auc_error is not None:
        auc += f" ± {1.96 * group.auc_error:.3f}"
    return (
        f"{group.rows:,}",
        f"{group.accuracy:.1%}",
        auc,
        f"{group.predicted:.1%}",
        f"{group.observed:.1%}",
    )
