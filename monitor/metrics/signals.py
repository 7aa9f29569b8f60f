"""Signals as metrics: in words, on their scale, and as distributions in the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Metric
from prometheus_client.metrics_core import SummaryMetricFamily
from prometheus_client.registry import Collector

from monitor.scoring.baseline import SIGNALS, Baseline, Signal

__all__ = ["WORDS", "BaselineSummaries", "shown"]

# What a signal is, for help strings.
WORDS: dict[Signal, str] = {
    "expected_change": "expected change of the classifier's logit for the same person in another "
    "group, the largest over the groups",
    "flip_probability": "probability that the decision would change for the same person in at "
    "least one other group",
    "prediction_sensitivity": "how strongly the classifier reacts to features that reveal the "
    "group",
}
_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


def shown(signal: Signal, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Values of a signal as metrics show them: scores hold the log of prediction sensitivity."""
    values = scores.astype(np.float64)
    return np.exp(values) if signal == "prediction_sensitivity" else values


class BaselineSummaries(Collector):
    """Distributions of the signals in the baseline, one summary per signal."""

    def __init__(self, baseline: Baseline, attributes: Sequence[str]) -> None:
        self._families: list[Metric] = []
        for signal in SIGNALS:
            family = SummaryMetricFamily(
                f"evenhand_baseline_{signal}",
                f"Calibration rows of the bundle by {WORDS[signal]}. Constant while the sidecar "
                "runs.",
            )
            for name in attributes:
                if signal in baseline.scores[name]:
                    _add_summary(family, name, shown(signal, baseline.scores[name][signal]))
            self._families.append(family)

    def collect(self) -> Iterable[Metric]:
        """The metric families, for a scrape."""
        return self._families


def _add_summary(family: SummaryMetricFamily, attribute: str, values: NDArray[np.float64]) -> None:
    # No interpolation, since sensitivities span many orders of magnitude.
    indices = np.minimum((np.array(_QUANTILES) * len(values)).astype(int), len(values) - 1)
    labels = {"attribute": attribute}
    for quantile, value in zip(_QUANTILES, values[indices].tolist(), strict=True):
        family.add_sample(family.name, {**labels, "quantile": f"{quantile:g}"}, value)
    family.add_sample(f"{family.name}_count", labels, len(values))
    family.add_sample(f"{family.name}_sum", labels, float(values.sum()))
