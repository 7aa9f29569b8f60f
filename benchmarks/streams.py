"""Streams for `benchmarks.drift`: predictions of a classifier before and after a change.

Scoring is expensive, so a pool of people is scored once and streams are drawn from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import nn

from benchmarks.alarms import fewer_women
from benchmarks.subject import Subject, fine_tune, fit_subject, train_classifier
from monitor import Drift, Population, World, decide
from monitor.drift.reference import DriftReference
from monitor.scoring.scores import Predictions, Signals

__all__ = ["SETTINGS", "Pool", "Setting", "run"]

Float = NDArray[np.float64]

SETTINGS = {
    "fair, strong proxies": World(label_bias=0.0),
    "fair, weak proxies": World(label_bias=0.0, proxy_bias=0.6),
    "biased, strong proxies": World(),
    "biased, weak proxies": World(proxy_bias=0.6),
}
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Scored predictions from which a stream is drawn with replacement.

    Attributes:
        scored: All predictions.
        weights: Sampling weights, `[n]`; None for equal weights.
    """

    scored: Predictions
    weights: Float | None = None

    def drawn(self, rng: np.random.Generator, n: int) -> Predictions:
        """Draw n predictions."""
        size = len(self.scored.margin)
        rows = rng.choice(size, n, p=self.weights) if self.weights is not None else None
        return _taken(self.scored, rng.integers(size, size=n) if rows is None else rows)

    def of(self, attribute: str) -> Pool:
        """The pool with one attribute only."""
        signals = {attribute: self.scored.attributes[attribute]}
        return replace(self, scored=replace(self.scored, attributes=signals))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A classifier with its reference, and pools of predictions after changes.

    Attributes:
        name: Name in `SETTINGS`.
        reference: Drift reference from new people.
        clean: Same classifier, same population.
        injected: After one epoch in which half of the positive women are labelled negative.
        tuned: After one epoch on unchanged labels.
        shifted: Same classifier and other populations, by name.
        before: Share of true flips.
        after: Share of true flips after injection.
        after_tuning: Share of true flips after the epoch on unchanged labels.
    """

    name: str
    reference: DriftReference
    clean: Pool
    injected: Pool
    tuned: Pool
    shifted: dict[str, Pool]
    before: float
    after: float
    after_tuning: float

    @classmethod
    def make(cls, name: str, *, seed: int, learn: int, baseline: int, pool: int) -> Setting:
        """Train, fit, take the reference, change, and score."""
        world = SETTINGS[name]
        people = world.people(learn, seed=seed)
        classifier = train_classifier(people, seed=seed)
        subject = fit_subject(world, classifier, people, seed=seed)
        traffic = world.people(pool, seed=seed + 1)
        fresh = world.people(learn, seed=seed + 2)
        calm = _scored(subject, world.people(baseline, seed=seed + 3))
        biased = fine_tune(classifier, fresh.features, fewer_women(fresh, seed), seed=seed + 1)
        tuned = fine_tune(classifier, fresh.features, fresh.labels, seed=seed + 1)
        clean = _scored(subject, traffic)
        return cls(
            name=name,
            reference=DriftReference.from_rows(calm.margin, calm.attributes, seed=seed),
            clean=Pool(scored=clean),
            injected=Pool(scored=_scored(subject.replaced(biased), traffic)),
            tuned=Pool(scored=_scored(subject.replaced(tuned), traffic)),
            shifted=dict(_shifts(world, subject, traffic, clean)),
            before=_flips(classifier, traffic),
            after=_flips(biased, traffic),
            after_tuning=_flips(tuned, traffic),
        )


def run(drift: Drift, stretches: list[tuple[Pool, int]], rng: np.random.Generator) -> None:
    """Feed the drift watch a number of predictions from each pool."""
    for pool, n in stretches:
        for start in range(0, n, _BATCH):
            drift.update(pool.drawn(rng, min(_BATCH, n - start)))


def _shifts(
    world: World, subject: Subject, traffic: Population, clean: Predictions
) -> Iterator[tuple[str, Pool]]:
    """Other populations: some people over-represented, and a downturn."""
    columns = {f.name: index for index, f in enumerate(world.features)}
    favoured = {
        "four women to a man": traffic.groups["sex"] == 1,
        "more in care": traffic.features[:, columns["sector=care"]] == 1,
        "more from the harbour": traffic.features[:, columns["district=harbour"]] == 1,
        "higher incomes": traffic.features[:, columns["income"]]
        > np.median(traffic.features[:, columns["income"]]),
    }
    for name, rows in favoured.items():
        weights = np.where(rows, 4.0, 1.0)
        yield name, Pool(scored=clean, weights=weights / weights.sum())
    changed = World(proxy_bias=world.proxy_bias, label_bias=world.label_bias, drift=0.5)
    yield (
        "a downturn",
        Pool(scored=_scored(subject, changed.people(len(traffic), seed=traffic.seed))),
    )


def _scored(subject: Subject, people: Population) -> Predictions:
    return subject.scores(people.features).predictions


def _taken(batch: Predictions, rows: NDArray[np.intp]) -> Predictions:
    return Predictions(
        margin=batch.margin[rows],
        attributes={
            name: Signals(
                hard_flips=signals.hard_flips[rows],
                expected_change=signals.expected_change[rows],
                posterior=signals.posterior[rows],
            )
            for name, signals in batch.attributes.items()
        },
    )


def _flips(classifier: nn.Module, people: Population) -> float:
    return float(people.true_flips(partial(decide, classifier), "sex").mean())
