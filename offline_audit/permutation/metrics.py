"""The metrics that a test compares, each a mean over the rows it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import MISSING
from offline_audit.errors import AuditInputError

__all__ = ["METRICS", "Metric", "metric_named"]

Kind = Literal["rate", "mean", "auc"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is compared.

    A rate is Σ hit / Σ counted over rows; both depend on label and decision only. A mean is the
    same with a number that involves the score in place of the hit.

    Attributes:
        name: As a caller writes it.
        kind: How it is computed.
        words: What it says, after "share of" or as a noun.
        counted: Which rows it counts, `[label, decision]` with 0, 1, unknown along each axis.
        hit: Which of those are a success.
        needs: Of `decisions`, `labels` and `scores`.
        given_decision: The one decision that the counted rows have in common, if they do.
    """

    name: str
    kind: Kind
    words: str
    counted: NDArray[np.bool_]
    hit: NDArray[np.bool_]
    needs: tuple[str, ...]
    given_decision: int | None = None

    @property
    def needs_labels(self) -> bool:
        """Whether rows without a label say nothing about it."""
        return "labels" in self.needs


def _cells(*, label: tuple[int, ...], decision: tuple[int, ...]) -> NDArray[np.bool_]:
    found = np.zeros((3, 3), dtype=bool)
    found[np.ix_(label, decision)] = True
    return found


_ANY, _KNOWN = (0, 1, MISSING), (0, 1)
_APPROVED = _cells(label=_ANY, decision=(1,))
_DECLINED = _cells(label=_ANY, decision=(0,))
_RIGHT = _cells(label=(0,), decision=(0,)) | _cells(label=(1,), decision=(1,))
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
            words="share of people who are selected",
            counted=_cells(label=_ANY, decision=_KNOWN),
            hit=_APPROVED,
            needs=("decisions",),
        ),
        Metric(
            name="tpr",
            kind="rate",
            words="share of true positives that are selected",
            counted=_OF_POSITIVES,
            hit=_APPROVED,
            needs=_BOTH,
        ),
        Metric(
            name="fpr",
            kind="rate",
            words="share of true negatives that are selected",
            counted=_OF_NEGATIVES,
            hit=_APPROVED,
            needs=_BOTH,
        ),
        Metric(
            name="fnr",
            kind="rate",
            words="share of true positives that are not selected",
            counted=_OF_POSITIVES,
            hit=_DECLINED,
            needs=_BOTH,
        ),
        Metric(
            name="ppv",
            kind="rate",
            words="share of the selected that are true positives",
            counted=_cells(label=_KNOWN, decision=(1,)),
            hit=_cells(label=(1,), decision=_ANY),
            needs=_BOTH,
            given_decision=1,
        ),
        Metric(
            name="npv",
            kind="rate",
            words="share of those not selected that are true negatives",
            counted=_cells(label=_KNOWN, decision=(0,)),
            hit=_cells(label=(0,), decision=_ANY),
            needs=_BOTH,
            given_decision=0,
        ),
        Metric(
            name="accuracy",
            kind="rate",
            words="share of decisions that match the label",
            counted=_cells(label=_KNOWN, decision=_KNOWN),
            hit=_RIGHT,
            needs=_BOTH,
        ),
        Metric(
            name="mean_score",
            kind="mean",
            words="mean score",
            counted=_ALL,
            hit=~_ALL,
            needs=("scores",),
        ),
        Metric(
            name="calibration_gap",
            kind="mean",
            words="mean by which labels lie above scores",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
        ),
        Metric(
            name="auc",
            kind="auc",
            words="chance that a true positive has a higher score than a true negative",
            counted=_LABELLED,
            hit=_cells(label=(1,), decision=_ANY),
            needs=("labels", "scores"),
        ),
    )
}


def metric_named(name: str) -> Metric:
    """One of `METRICS`.

    Raises:
        AuditInputError: There is no such metric.
    """
    if name not in METRICS:
        raise AuditInputError(f"metric {name!r}: there is none; there are {', '.join(METRICS)}")
    return METRICS[name]
