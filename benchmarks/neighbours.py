"""Nearest past inputs with another decision: the rule of monitors that need no groups.

A decision raises an alarm at ε if a past input within ε got another decision, so the distance to
the nearest such input determines the alarms at every ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree  # type: ignore[import-untyped, unused-ignore]
from scipy.spatial.distance import cdist  # type: ignore[import-untyped, unused-ignore]
from sklearn.metrics import roc_curve  # type: ignore[import-untyped, unused-ignore]

__all__ = [
    "Alarm",
    "Norm",
    "alarm_at",
    "best_alarm",
    "neighbour_distances",
    "standardised",
    "tpr_at",
    "unit_range",
]

Floats = NDArray[np.floating]
Bool = NDArray[np.bool_]
Norm = Literal["infinity", "l2"]

_METRIC = {"infinity": "chebyshev", "l2": "euclidean"}
_ORDER = {"infinity": np.inf, "l2": 2.0}
_BLOCK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Rates of a yes-or-no alarm.

    Attributes:
        epsilon: Largest distance of a neighbour.
        share: Share of decisions with an alarm.
        true_positive_rate: Share of true flips with an alarm.
        false_positive_rate: Share of the other decisions with an alarm.
    """

    epsilon: float
    share: float
    true_positive_rate: float
    false_positive_rate: float

    @property
    def auc(self) -> float:
        """AUC of an alarm that has two values."""
        return (1 + self.true_positive_rate - self.false_positive_rate) / 2


def neighbour_distances(
    rows: Floats, decisions: Bool, *, start: int = 0, norm: Norm = "infinity", block: int = _BLOCK
) -> NDArray[np.float64]:
    """Distance of each row to the nearest earlier row with another decision; ∞ if there is none.

    Args:
        rows: Scaled inputs in the order of the stream, `[n, d]`.
        decisions: Decisions, `[n]`.
        start: Index of the first row to compute a distance for; all rows before it are past inputs.
        norm: Norm of the differences.
        block: Number of rows per search tree.

    Returns:
        Distances `[n - start]`.
    """
    nearest = np.full(len(rows), np.inf)
    for first in range(start, len(rows), block):
        last = min(first + block, len(rows))
        here = np.arange(first, last)
        for decision in (False, True):
            queries = here[decisions[here] == decision]
            others = np.flatnonzero(decisions[:first] != decision)
            if len(queries) and len(others):
                tree = cKDTree(rows[others])
                nearest[queries] = tree.query(rows[queries], p=_ORDER[norm])[0]
        # Earlier rows of the same block.
        within = cdist(rows[here], rows[here], _METRIC[norm])
        comparable = np.tri(len(here), k=-1, dtype=bool)
        comparable &= decisions[here][:, None] != decisions[here]
        within[~comparable] = np.inf
        nearest[here] = np.minimum(nearest[here], within.min(1))
    return nearest[start:]


def alarm_at(epsilon: float, distances: Floats, flips: Bool) -> Alarm:
    """Rates of the alarm at ε.

    Args:
        epsilon: Neighbours are closer than this.
        distances: Distances to the nearest past input with another decision, `[n]`.
        flips: True flips, `[n]`.
    """
    alarms = distances < epsilon
    return Alarm(
        epsilon=epsilon,
        share=float(alarms.mean()),
        true_positive_rate=float(alarms[flips].mean()),
        false_positive_rate=float(alarms[~flips].mean()),
    )


def best_alarm(distances: Floats, flips: Bool) -> Alarm:
    """The alarm with the highest AUC over every ε, which is chosen with knowledge of the flips."""
    false, true, thresholds = roc_curve(flips, -distances)
    # The first threshold is infinite: no alarm.
    largest = -thresholds[1:][np.argmax(true[1:] - false[1:])]
    return alarm_at(float(np.nextafter(largest, np.inf)), distances, flips)


def tpr_at(false_positive_rate: float, score: Floats, flips: Bool) -> float:
    """True positive rate of a score `[n]` at a false positive rate, interpolated."""
    false, true, _ = roc_curve(flips, score)
    return float(np.interp(false_positive_rate, false, true))


def unit_range(rows: Floats, reference: Floats) -> NDArray[np.float32]:
    """Columns scaled so that those of the reference rows fill [0, 1]."""
    low, high = reference.min(0), reference.max(0)
    scaled: NDArray[np.float32] = ((rows - low) / _positive(high - low)).astype(np.float32)
    return scaled


def standardised(rows: Floats, reference: Floats) -> NDArray[np.float32]:
    """Columns scaled by mean and standard deviation of the reference rows."""
    centred = rows - reference.mean(0)
    scaled: NDArray[np.float32] = (centred / _positive(reference.std(0))).astype(np.float32)
    return scaled


def _positive(spread: Floats) -> Floats:
    """Spread of each column, 1 where a column is constant."""
    return np.where(spread > 0, spread, 1)
