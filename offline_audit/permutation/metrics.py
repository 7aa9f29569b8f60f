"""The metrics that can be compared, each a mean over the rows that it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError

__all__ = ["METRICS", "UNKNOWN_INDEX", "Metric", "metric_named"]

Kind = Literal["rate", "mean", "auc"]

# Index of an unknown label or decision in tables of counts, after 0 and 1.
UNKNOWN_INDEX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Definition of a metric.

    A rate is Σ hit / Σ counted over rows; both depend on label and decision only. A mean has a
    value that involves the score instead of the hit.

    Attributes:
        name: Name as a caller writes it.
        kind: How it is computed.
        description: Noun phrase that completes "is the … the same?".
        counted: Rows that the metric counts, `[label, decision]`, with 0, 1, unknown on each axis.
        hit: Rows that are a success, where they are counted.
        needs: Required input, of `decisions`, `labels` and `scores`.
        comparative: What is said of the group with the higher value; `more` and `higher` in braces
            become `less` and `lower` for the other group.
        given_decision: The one decision that the counted rows have in common, if they do.
    """

    name: str
    kind: Kind
    description: str
    counted: NDArray[np.bool_]
    hit: NDArray[np.bool_]
    needs: tuple[str, ...]
    comparative: str
    given_decision: int | None = None

    @property
    def needs_labels(self) -> bool:
        """Whether only labelled rows count."""
        return "labels" in self.needs

    @property
    def unit(self) -> str:
        """Unit of a difference of the metric."""
        return {"rate": "rate", "mean": "score", "auc": "auc"}[self.kind]

    def direction(self, group: str, effect: float) -> str:
        """In words, who has more of the metric."""
        if effect == 0:
            return "no difference"
        words = ("more", "higher") if effect > 0 else ("less", "lower")
        return f"{group} {self.comparative.format(more=words[0], higher=words[1])}"


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
            comparative="gets the favourable decision {more} often",
        ),
        Metric(
            name="tpr",
            kind="rate",
            description="share of true positives that are selected",
            counted=_OF_POSITIVES,
            hit=_SELECTED,
            needs=_BOTH,
            comparative="gets the favourable decision {more} often among true positives",
        ),
        Metric(
            name="fpr",
            kind="rate",
            description="share of true negatives that are selected",
            counted=_OF_NEGATIVES,
            hit=_SELECTED,
            needs=_BOTH,
            comparative="gets the favourable decision {more} often among true negatives",
        ),
        Metric(
            name="fnr",
            kind="rate",
            description="share of true positives that are not selected",
            counted=_OF_POSITIVES,
            hit=_NOT_SELECTED,
            needs=_BOTH,
            comparative="gets the unfavourable decision {more} often among true positives",
        ),
        Metric(
            name="ppv",
            kind="rate",
            description="share of the selected that are true positives",
            counted=_cells(label=_KNOWN, decision=(1,)),
            hit=_cells(label=(1,), decision=_ANY),
            needs=_BOTH,
            comparative="has a {higher} share of true positives among the selected",
            given_decision=1,
        ),
        Metric(
            name="npv",
            kind="rate",
            description="share of those not selected that are true negatives",
            counted=_cells(label=_KNOWN, decision=(0,)),
            hit=_cells(label=(0,), decision=_ANY),
            needs=_BOTH,
            comparative="has a {higher} share of true negatives among those not selected",
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
        ),
        Metric(
            name="calibration_gap",
            kind="mean",
            description="mean difference of label and score",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
            comparative="has a {higher} mean difference of label and score",
        ),
        Metric(
            name="auc",
            kind="auc",
            description="probability that a true positive has a higher score than a true negative",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
            comparative="has a {higher} AUC",
        ),
    )
}


def metric_named(name: str) -> Metric:
    """One of `METRICS`.

    Raises:
        AuditInputError: There is no such metric.
    """
    if name not in METRICS:
        raise AuditInputError(f"metrics: unknown metric {name!r}; choose from {', '.join(METRICS)}")
    return METRICS[name]
