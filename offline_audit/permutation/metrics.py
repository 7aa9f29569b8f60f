"""The metrics that can be compared, and whether the known labels identify them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.coverage import known_decisions, one_decision_only, only_labelled_decision
from offline_audit.errors import AuditInputError

__all__ = [
    "FAVOURABLE",
    "LABEL_WORDS",
    "METRICS",
    "SELECTED",
    "UNKNOWN_INDEX",
    "CustomMetric",
    "GroupRows",
    "Metric",
    "Metrics",
    "metric_named",
    "not_identified",
    "requested_metrics",
]

Int = NDArray[np.int64]
Int8 = NDArray[np.int8]
Float = NDArray[np.float64]
Kind = Literal["rate", "mean", "auc"]

# Index of an unknown label or decision in tables of counts, after 0 and 1.
UNKNOWN_INDEX = 2
# Rows with decision 0 and 1.
LABEL_WORDS = ("that were not selected", "that were selected")
# Verbs of the decisions 1 and 0 where nothing is known about them, and where 1 is the favourable.
SELECTED = ("is selected", "is not selected")
FAVOURABLE = ("gets the favourable decision", "gets the unfavourable decision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Definition of a metric.

    A rate is Σ hit / Σ counted over rows; both depend on label and decision only. A mean has a
    value that involves the score instead of the hit.

    Attributes:
        name: Name of the metric.
        kind: Rate of hits, mean of a value, or AUC.
        description: Noun phrase that completes "is the … the same?".
        counted: Rows that the metric counts, `[label, decision]`, with 0, 1, unknown on each axis.
        hit: Rows that are a success, where they are counted.
        needs: Required input, of `decisions`, `labels` and `scores`.
        comparative: Predicate of the group with the higher value; `{more}` and `{higher}` become
            `less` and `lower` for a group with the lower value, `{selected}` and `{not_selected}`
            the verbs of the decisions.
        better: Sign of an effect that is to the advantage of the first group; 0 if the metric does
            not say who is disadvantaged.
        given_decision: The decision that all counted rows have; None if both decisions count.
    """

    name: str
    kind: Kind
    description: str
    counted: NDArray[np.bool_]
    hit: NDArray[np.bool_]
    needs: tuple[str, ...]
    comparative: str
    better: Literal[1, 0, -1] = 0
    given_decision: int | None = None

    @property
    def needs_labels(self) -> bool:
        """Whether only labelled rows count."""
        return "labels" in self.needs

    @property
    def unit(self) -> str:
        """Unit of a difference of the metric."""
        return {"rate": "rate", "mean": "score", "auc": "auc"}[self.kind]

    def direction(
        self, groups: tuple[str, str], effect: float, verbs: tuple[str, str] = SELECTED
    ) -> str:
        """Sentence that says whether the first group has more or less of the metric.

        Args:
            groups: Names of both groups.
            effect: Metric of the first group minus metric of the second.
            verbs: Verbs of the decisions 1 and 0.
        """
        one, other = groups
        more, higher = ("more", "higher") if effect > 0 else ("less", "lower")
        words = {"more": more, "higher": higher, "selected": verbs[0], "not_selected": verbs[1]}
        if effect == 0:
            return f"{one} has the same {self.name} as {other}"
        return f"{one} {self.comparative.format(**words)} than {other}"

    def disadvantaged(self, groups: tuple[str, str], effect: float) -> str | None:
        """The group that an effect disadvantages; None if the metric does not say."""
        sign = self.better * effect
        return None if sign == 0 else groups[0] if sign < 0 else groups[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """Rows of one group, as a custom metric receives them; arrays `[n]`.

    Attributes:
        index: Indices of the rows in the caller's arrays, to look up other columns.
        decisions: 0, 1, or −1 where it is unknown; None if not passed.
        labels: 0, 1, or −1 where it is unknown; None if not passed.
        scores: None if not passed.
    """

    index: Int
    decisions: Int8 | None
    labels: Int8 | None
    scores: Float | None


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """A metric that the caller defines as a function."""

    function: Callable[[GroupRows], float]

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", "metric")

    @property
    def description(self) -> str:
        """Name of the function."""
        return self.name

    @property
    def unit(self) -> str | None:
        """Unit of a difference of the metric; not known."""
        return None

    def direction(self, groups: tuple[str, str], effect: float) -> str:
        """Sentence that says whether the first group has a higher or a lower value."""
        order = "a higher" if effect > 0 else "a lower" if effect < 0 else "the same"
        return f"{groups[0]} has {order} {self.name} {'as' if effect == 0 else 'than'} {groups[1]}"

    @property
    def needs(self) -> tuple[str, ...]:
        """Required input; empty, since it is unknown before the function runs."""
        return ()


Metrics = str | Callable[[GroupRows], float] | Sequence[str | Callable[[GroupRows], float]]


def _cells(*, label: tuple[int, ...], decision: tuple[int, ...]) -> NDArray[np.bool_]:
    cells = np.zeros((3, 3), dtype=bool)
    cells[np.ix_(label, decision)] = True
    return cells


_ANY, _KNOWN = (0, 1, UNKNOWN_INDEX), (0, 1)
_SELECTED = _cells(label=_ANY, decision=(1,))
_NOT_SELECTED = _cells(label=_ANY, decision=(0,))
_CORRECT = _cells(label=(0,), decision=(0,)) | _cells(label=(1,), decision=(1,))
_ALL = _cells(label=_ANY, decision=_ANY)
_LABELLED = _cells(label=_KNOWN, decision=_ANY)
_OF_POSITIVES = _cells(label=(1,), decision=_KNOWN)
_OF_NEGATIVES = _cells(label=(0,), decision=_KNOWN)
_BOTH = ("decisions", "labels")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="selection_rate",
            kind="rate",
            description="share of people who are selected",
            counted=_cells(label=_ANY, decision=_KNOWN),
            hit=_SELECTED,
            needs=("decisions",),
            comparative="{selected} {more} often",
            better=1,
        ),
        Metric(
            name="tpr",
            kind="rate",
            description="share of actual positives that are selected",
            counted=_OF_POSITIVES,
            hit=_SELECTED,
            needs=_BOTH,
            comparative="{selected} {more} often among actual positives",
            better=1,
        ),
        Metric(
            name="fpr",
            kind="rate",
            description="share of actual negatives that are selected",
            counted=_OF_NEGATIVES,
            hit=_SELECTED,
            needs=_BOTH,
            comparative="{selected} {more} often among actual negatives",
            better=1,
        ),
        Metric(
            name="fnr",
            kind="rate",
            description="share of actual positives that are not selected",
            counted=_OF_POSITIVES,
            hit=_NOT_SELECTED,
            needs=_BOTH,
            comparative="{not_selected} {more} often among actual positives",
            better=-1,
        ),
        Metric(
            name="ppv",
            kind="rate",
            description="share of the selected that are actual positives",
            counted=_cells(label=_KNOWN, decision=(1,)),
            hit=_cells(label=(1,), decision=_ANY),
            needs=_BOTH,
            comparative="has a {higher} share of actual positives among the selected",
            given_decision=1,
        ),
        Metric(
            name="npv",
            kind="rate",
            description="share of those not selected that are actual negatives",
            counted=_cells(label=_KNOWN, decision=(0,)),
            hit=_cells(label=(0,), decision=_ANY),
            needs=_BOTH,
            comparative="has a {higher} share of actual negatives among those not selected",
            given_decision=0,
        ),
        Metric(
            name="accuracy",
            kind="rate",
            description="share of decisions that match the label",
            counted=_cells(label=_KNOWN, decision=_KNOWN),
            hit=_CORRECT,
            needs=_BOTH,
            comparative="gets decisions that match the label {more} often",
        ),
        Metric(
            name="mean_score",
            kind="mean",
            description="mean score",
            counted=_ALL,
            hit=~_ALL,
            needs=("scores",),
            comparative="has a {higher} mean score",
            better=1,
        ),
        Metric(
            name="calibration_gap",
            kind="mean",
            description="mean difference of label and score",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
            comparative="has a {higher} mean difference of label and score",
            better=-1,
        ),
        Metric(
            name="auc",
            kind="auc",
            description="probability that a positive has a higher score than a negative",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
            comparative="has a {higher} AUC",
        ),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of `METRICS` with this name.

    Raises:
        AuditInputError: There is no such metric.
    """
    if name not in METRICS:
        raise AuditInputError(f"metrics: unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return METRICS[name]


def requested_metrics(metrics: Metrics) -> list[Metric | CustomMetric]:
    """The metrics that a caller requests by name or as functions.

    Raises:
        AuditInputError: There is none, a name is unknown, or one is neither a name nor a function.
    """
    one = isinstance(metrics, str) or callable(metrics)
    listed: Any = [metrics] if one else metrics
    if not isinstance(listed, Iterable):
        raise _not_a_metric(listed)
    listed = list(listed)
    if not listed:
        raise AuditInputError("metrics: at least one metric is needed")
    for metric in listed:
        if not isinstance(metric, str) and not callable(metric):
            raise _not_a_metric(metric)
    return [metric_named(m) if isinstance(m, str) else CustomMetric(m) for m in listed]


def _not_a_metric(value: Any) -> AuditInputError:
    return AuditInputError(
        f"metrics: must be names from METRICS or functions; got {type(value).__name__}"
    )


def not_identified(metric: Metric, table: Int, sides: Sequence[tuple[str, Int]]) -> str | None:
    """The reason why the metric is not identified, for all rows or for one side; None if it is.

    With labels for one decision only, a TPR is 0 or 1 by construction, whatever the model does.

    Args:
        metric: The metric.
        table: Rows by group, label and decision, `[groups + 1, 3, 3]`.
        sides: Name and group indices of each side of the comparison.
    """
    if not metric.needs_labels:
        return None
    # Per side too: one small group without labels would hardly show in the table of all rows.
    parts = [("", table), *((f" of {name}", table[members]) for name, members in sides)]
    for of_group, part in parts:
        counts = known_decisions(part.sum(axis=0))
        if int(only_labelled_decision(*counts)) != metric.given_decision:
            reason = one_decision_only(of_group, *counts, LABEL_WORDS, metric.name)
            if reason is not None:
                return reason
    return None
