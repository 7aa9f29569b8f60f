"""Alarms of `benchmarks.detection`: on traffic like the baseline's, and on changed classifiers."""

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
# The margin knows nothing of groups: what alarms without being about fairness.
_MARGIN = cast("Signal", "margin")
ALARM_SIGNALS = (*SIGNALS, _MARGIN)
TUNED, INJECTED = "fair, tuned on", "fair, bias injected"

_LEAST_FLIPS = 0.10
_MOST_EPOCHS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What alarms say of a classifier that changed after its baseline was taken.

    Attributes:
        name: What happened to it.
        before: Share of decisions that truly flip when the baseline was taken.
        after: The same when alarms were counted.
        epochs: Of fine-tuning between the two.
        rates: Share of predictions alarmed, by signal and at each of `ALPHAS`.
    """

    name: str
    before: float
    after: float
    epochs: int
    rates: dict[Signal, list[float]]


def alarms(before: Scores, after: Scores, attribute: str) -> dict[Signal, list[int]]:
    """How many predictions are above a baseline, by signal and at each of `ALPHAS`."""
    hard_flips = before.attributes[attribute].hard_flips.double().numpy()
    baseline = Baseline.take({attribute: _signals(before, attribute)}, {attribute: hard_flips})
    found = {}
    for signal, values in _signals(after, attribute).items():
        p_values = baseline.p_values(attribute, signal, values)
        found[signal] = [int((p_values <= alpha).sum()) for alpha in ALPHAS]
    return found


def changes(*, learn: int, baseline: int, judged: int, seed: int) -> Iterator[Change]:
    """A fair classifier tuned on, then biased through proxies; and one that was biased before."""
    sizes = (learn, baseline, judged)
    fair = _Watched(World(label_bias=0.0), sizes, seed)
    fresh = fair.society.people(learn, seed=seed + 2)
    yield fair.change(TUNED, fresh, fresh.labels, 0.0)
    yield fair.change(INJECTED, fresh, fewer_women(fresh, seed), _LEAST_FLIPS)
    biased = _Watched(World(), sizes, seed)
    fresh = biased.society.people(learn, seed=seed + 2)
    yield biased.change("biased, more injected", fresh, fewer_women(fresh, seed), 0.0)


class _Watched:
    """A classifier of the world with its baseline, as to sex, and fresh people to judge."""

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
        """Fine-tune one epoch, and on until as many decisions truly flip as asked for."""
        classifier: nn.Module = self.classifier
        before = after = self._flips(classifier)
        epochs = 0
        while epochs == 0 or (after < least_flips and epochs < _MOST_EPOCHS):
            epochs += 1
            classifier = fine_tune(classifier, people.features, labels, seed=self.seed + epochs)
            after = self._flips(classifier)
        scores = self.subject.replaced(classifier).scores(self.traffic.features)
        counts = alarms(self.baseline, scores, self.attribute.name)
        rates = {s: [n / len(scores.logit) for n in found] for s, found in counts.items()}
        return Change(name=name, before=before, after=after, epochs=epochs, rates=rates)

    def _flips(self, classifier: nn.Module) -> float:
        changed = self.subject.replaced(classifier)
        return float(changed.true_flips(self.traffic, self.attribute.name).mean())


def fewer_women(people: People, seed: int) -> NDArray[np.int8]:
    """Labels in which half of the positive women stand as negative."""
    hit = np.random.default_rng(seed).random(len(people.labels)) < 0.5
    return np.where(hit & (people.groups["sex"] == 1), 0, people.labels).astype(np.int8)


def _signals(scores: Scores, attribute: str) -> dict[Signal, NDArray[np.float64]]:
    judged = scores.attributes[attribute]
    assert judged.log_prediction_sensitivity is not None
    found = (
        judged.expected_change,
        judged.flip_probability,
        judged.log_prediction_sensitivity,
        -scores.margin,
    )
    return {s: v.double().numpy() for s, v in zip(ALARM_SIGNALS, found, strict=True)}
