"""Alarms of `benchmarks.detection`: on traffic like the baseline's, and after a change of model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from benchmarks.subject import People, Society, Subject, fine_tune, fit_subject, train_classifier
from monitor import World
from monitor.scoring.baseline import SIGNALS, Baseline, Signal
from monitor.scoring.scores import Scores

__all__ = [
    "ALARM_SIGNALS",
    "ALPHAS",
    "INJECTED",
    "TUNED",
    "Change",
    "alarms",
    "changes",
    "fewer_women",
]

ALPHAS = (0.01, 0.05)
# The margin does not depend on groups; it shows alarms that are unrelated to fairness.
_MARGIN = cast("Signal", "margin")
ALARM_SIGNALS = (*SIGNALS, _MARGIN)
TUNED, INJECTED = "fair, fine-tuned", "fair, bias injected"

_LEAST_FLIPS = 0.10
_MOST_EPOCHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Alarms for a classifier that changed after its baseline was taken.

    Attributes:
        name: Description of the change.
        before: Share of true flips when the baseline was taken.
        after: Share of true flips when alarms were counted.
        epochs: Epochs of fine-tuning between the two.
        rates: Share of predictions with an alarm, by signal and at each of `ALPHAS`.
    """

    name: str
    before: float
    after: float
    epochs: int
    rates: dict[Signal, list[float]]


def alarms(before: Scores, after: Scores, attribute: str) -> dict[Signal, list[int]]:
    """Number of predictions above a baseline, by signal and at each of `ALPHAS`."""
    hard_flips = before.attributes[attribute].hard_flips.double().numpy()
    baseline = Baseline.from_scores(
        {attribute: _signals(before, attribute)}, {attribute: hard_flips}
    )
    counts = {}
    for signal, values in _signals(after, attribute).items():
        p_values = baseline.p_values(attribute, signal, values)
        counts[signal] = [int((p_values <= alpha).sum()) for alpha in ALPHAS]
    return counts


def changes(*, learn: int, baseline: int, judged: int, seed: int) -> Iterator[Change]:
    """A fair classifier fine-tuned, one biased through proxies, and one that was biased before."""
    sizes = (learn, baseline, judged)
    fair = _Watched(World(label_bias=0.0), sizes, seed)
    fresh = fair.society.people(learn, seed=seed + 2)
    yield fair.change(TUNED, fresh, fresh.labels, 0.0)
    yield fair.change(INJECTED, fresh, fewer_women(fresh, seed), _LEAST_FLIPS)
    biased = _Watched(World(), sizes, seed)
    fresh = biased.society.people(learn, seed=seed + 2)
    yield biased.change("biased, more injected", fresh, fewer_women(fresh, seed), 0.0)


class _Watched:
    """A classifier of the world with its baseline for sex, and new people to score."""

    def __init__(self, society: Society, sizes: tuple[int, int, int], seed: int) -> None:
        learn, baseline, judged = sizes
        self.society, self.seed = society, seed
        self.attribute = next(a for a in society.attributes if a.name == "sex")
        people = society.people(learn, seed=seed)
        self.classifier = train_classifier(people, seed=seed)
        self.subject: Subject = fit_subject(
            society, self.classifier, people, seed=seed, attributes=[self.attribute]
        )
        self.traffic = society.people(judged, seed=seed + 1)
        self.baseline = self.subject.scores(society.people(baseline, seed=seed + 3).features)

    def change(
        self, name: str, people: People, labels: NDArray[np.int8], least_flips: float
    ) -> Change:
        """Fine-tune for one epoch, or until the share of true flips reaches a minimum."""
        classifier: nn.Module = self.classifier
        before = after = self._flips(classifier)
        epochs = 0
        while epochs == 0 or (after < least_flips and epochs < _MOST_EPOCHS):
            epochs += 1
            classifier = fine_tune(classifier, people.features, labels, seed=self.seed + epochs)
            after = self._flips(classifier)
        scores = self.subject.replaced(classifier).scores(self.traffic.features)
        counts = alarms(self.baseline, scores, self.attribute.name)
        rates = {s: [n / len(scores.logit) for n in alarmed] for s, alarmed in counts.items()}
        return Change(name=name, before=before, after=after, epochs=epochs, rates=rates)

    def _flips(self, classifier: nn.Module) -> float:
        changed = self.subject.replaced(classifier)
        return float(changed.true_flips(self.traffic, self.attribute.name).mean())


def fewer_women(people: People, seed: int) -> NDArray[np.int8]:
    """Labels in which half of the positive women are negative."""
    hit = np.random.default_rng(seed).random(len(people.labels)) < 0.5
    return np.where(hit & (people.groups["sex"] == 1), 0, people.labels).astype(np.int8)


def _signals(scores: Scores, attribute: str) -> dict[Signal, NDArray[np.float64]]:
    own = scores.attributes[attribute]
    assert own.log_prediction_sensitivity is not None
    values = (
        own.expected_change,
        own.flip_probability,
        own.log_prediction_sensitivity,
        -scores.margin,
    )
    return {s: v.double().numpy() for s, v in zip(ALARM_SIGNALS, values, strict=True)}
