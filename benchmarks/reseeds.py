"""Reseeds for `benchmarks.drift`: does the drift watch page after a fair reseed, and after bias?

In five fair worlds a classifier is replaced by one that was trained on the same data with another
seed, and by one that was fine-tuned until at least 10% of true decisions flip. A page is an alarm
`share`, or an alarm `change` with the cause `treatment`. A reseed that raised true flips by more
than half a percentage point is not fair, and is counted apart.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.claims import Claim, Say
from benchmarks.streams import Pool, run
from benchmarks.structural_models import HIRING, INSURANCE
from benchmarks.subject import People, Society, Subject, fine_tune, fit_subject, train_classifier
from monitor import Drift, World, decide
from monitor.drift.alarms import Cause
from monitor.drift.reference import DriftReference

__all__ = ["ReseedSizes", "reseed_claims"]

_WORLDS: dict[str, Society] = {
    "lending, strong proxies": World(label_bias=0.0),
    "lending, proxies of .8": World(label_bias=0.0, proxy_bias=0.8),
    "lending, weak proxies": World(label_bias=0.0, proxy_bias=0.6),
    "hiring": replace(HIRING, label_bias=0.0),
    "insurance": replace(INSURANCE, label_bias=0.0),
}
_RISE = 0.005
_LEAST_FLIPS, _MOST_EPOCHS = 0.10, 10
_CLEAN, _LENGTH, _WITHIN = 5_000, 10_000, 1_000
# Predictions per update: pages are timed to this precision.
_STEP = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ReseedSizes:
    """Number of classifiers per world, reseeds of each, streams of each reseed, and people."""

    classifiers: int
    reseeds: int
    streams: int
    learn: int
    baseline: int
    pool: int
    # Divisor of the lengths of all streams.
    shorter: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changed:
    """A changed classifier: its predictions, and the shares of true flips before and after."""

    pool: Pool
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stream:
    """Alarms of a stream: which detectors, the cause of `change`, and the delay of the page."""

    kinds: frozenset[str]
    cause: Cause | None
    page: float


@dataclass(slots=True)
class _Counts:
    """Streams by kind of change, and shares of true flips."""

    streams: list[_Stream] = field(default_factory=list)
    flips: list[tuple[float, float]] = field(default_factory=list)

    def pages(self, within: float) -> int:
        """Number of streams that page within a number of predictions."""
        return sum(math.isfinite(s.page) and s.page <= within for s in self.streams)

    def row(self, within: float) -> list[str]:
        """Cells of the table."""
        n, kinds = len(self.streams), Counter(k for s in self.streams for k in s.kinds)
        causes = Counter(s.cause for s in self.streams if s.cause is not None)
        before, after = zip(*self.flips, strict=True)
        return [
            f"{min(before):.1%}–{max(before):.1%} → {min(after):.1%}–{max(after):.1%}",
            *(f"{kinds[kind]} of {n}" for kind in ("share", "change", "margin")),
            ", ".join(f"{cause} {count}" for cause, count in causes.most_common()) or "–",
            f"{self.pages(within)} of {n}",
        ]


def reseed_claims(sizes: ReseedSizes, say: Say, *, seed: int) -> Iterator[Claim]:
    """Simulate, print a table and return the claims on pages."""
    fair, risen, injected = _Counts(), _Counts(), _Counts()
    table = Table(
        *("world", "change", "true flips", "share", "change alarm", "margin", "causes", "pages"),
        title=f"{_CLEAN:,} clean predictions, then another classifier",
    )
    length = _LENGTH // sizes.shorter
    for index, (name, society) in enumerate(_WORLDS.items()):
        own = {"reseed": _Counts(), "reseed, flips risen": _Counts(), "bias": _Counts()}
        for number in range(sizes.classifiers):
            say(f"{name}, classifier {number + 1} of {sizes.classifiers}")
            watched = _Watched(society, sizes, seed=seed + 100 * index + 10 * number)
            for reseed in range(sizes.reseeds):
                changed = watched.reseeded(reseed)
                rose = changed.after - changed.before > _RISE
                kind = "reseed, flips risen" if rose else "reseed"
                watched.count(own[kind], changed, reseed, length)
            watched.count(own["bias"], watched.biased(), sizes.reseeds, _WITHIN // sizes.shorter)
        for total, (kind, counts) in zip((fair, risen, injected), own.items(), strict=True):
            total.streams += counts.streams
            total.flips += counts.flips
            if counts.streams:
                within = _WITHIN if kind == "bias" else math.inf
                table.add_row(name, kind, *counts.row(within))
    Console().print(table)
    yield from _claims(fair, risen, injected)


def _claims(fair: _Counts, risen: _Counts, injected: _Counts) -> Iterator[Claim]:
    n, pages = max(len(fair.streams), 1), fair.pages(math.inf)
    causes = Counter(str(s.cause) for s in fair.streams if s.cause is not None)
    yield Claim(
        claim=f"streams that page within {_LENGTH} predictions after a fair reseed",
        figure=pages / n,
        unit="of streams",
        side="at most",
        bar=0.05,
        rounds=n,
        details={
            "pages": f"{pages} of {n}",
            "change alarms by cause": dict(causes),
            "pages where true flips rose by more than .5 points": (
                f"{risen.pages(math.inf)} of {len(risen.streams)}"
            ),
        },
    )
    m, pages = len(injected.streams), injected.pages(_WITHIN)
    yield Claim(
        claim=f"streams that page within {_WITHIN} predictions after injected bias",
        figure=pages / m,
        unit="of streams",
        side="at least",
        bar=0.95,
        rounds=m,
        details={
            "pages": f"{pages} of {m}",
            "median delay": statistics.median(s.page for s in injected.streams),
            "longest delay": max(s.page for s in injected.streams),
            "true flips after": f"{min(a for _, a in injected.flips):.1%} to "
            f"{max(a for _, a in injected.flips):.1%}",
        },
    )


class _Watched:
    """A fair classifier with its reference, and people to score."""

    def __init__(self, society: Society, sizes: ReseedSizes, *, seed: int) -> None:
        self.society, self.sizes, self.seed = society, sizes, seed
        self.attribute = society.attributes[0]
        self.people = society.people(sizes.learn, seed=seed)
        self.classifier = train_classifier(self.people, seed=seed)
        self.subject: Subject = fit_subject(
            society, self.classifier, self.people, seed=seed, attributes=[self.attribute]
        )
        self.traffic = society.people(sizes.pool, seed=seed + 1)
        baseline = society.people(sizes.baseline, seed=seed + 3)
        calm = self.subject.scores(baseline.features).predictions
        self.reference = DriftReference.from_rows(calm.margin, calm.attributes, seed=seed)
        self.clean = self._pool(self.classifier)
        self.before = self._flips(self.classifier)

    def reseeded(self, number: int) -> _Changed:
        """A classifier trained on the same data with another seed."""
        # No other seed of a benchmark is as large.
        return self._changed(train_classifier(self.people, seed=self.seed + 10**6 + number))

    def biased(self) -> _Changed:
        """The classifier after epochs in which half of one group's positive labels are negative.

        As many epochs as it takes for 10% of true decisions to flip.
        """
        fresh = self.society.people(self.sizes.learn, seed=self.seed + 2)
        labels, classifier = _fewer(fresh, self.attribute.name, self.seed), self.classifier
        for epoch in range(_MOST_EPOCHS):
            classifier = fine_tune(classifier, fresh.features, labels, seed=self.seed + 1 + epoch)
            if self._flips(classifier) >= _LEAST_FLIPS:
                break
        return self._changed(classifier)

    def count(self, counts: _Counts, changed: _Changed, number: int, length: int) -> None:
        """Add streams of a changed classifier."""
        counts.flips.append((changed.before, changed.after))
        for stream in range(self.sizes.streams):
            rng = np.random.default_rng([self.seed, number, stream])
            counts.streams.append(self._stream(changed.pool, length, rng))

    def _stream(self, pool: Pool, length: int, rng: np.random.Generator) -> _Stream:
        """Alarms after the change; earlier ones are acknowledged."""
        drift, page = Drift.start(self.reference, bundle_digest="", rng=rng), math.inf
        clean = _CLEAN // self.sizes.shorter
        run(drift, [(self.clean, clean)], rng)
        for alarm in drift.alarms:
            drift.acknowledge(alarm.watcher)
        while drift.seen < clean + length:
            drift.update(pool.drawn(rng, _STEP))
            if page == math.inf and any(alarm.pages for alarm in drift.alarms):
                page = drift.seen - clean
        causes = [a.cause for a in drift.alarms if a.watcher.kind == "change"]
        return _Stream(
            kinds=frozenset(a.watcher.kind for a in drift.alarms),
            cause=causes[0] if causes else None,
            page=page,
        )

    def _changed(self, classifier: nn.Module) -> _Changed:
        after = self._flips(classifier)
        return _Changed(pool=self._pool(classifier), before=self.before, after=after)

    def _pool(self, classifier: nn.Module) -> Pool:
        scores = self.subject.replaced(classifier).scores(self.traffic.features)
        return Pool(scored=scores.predictions)

    def _flips(self, classifier: nn.Module) -> float:
        decided = partial(decide, classifier)
        return float(self.traffic.true_flips(decided, self.attribute.name).mean())


def _fewer(people: People, attribute: str, seed: int) -> NDArray[np.int8]:
    """Labels in which half of the positive members of the second group are negative."""
    hit = np.random.default_rng(seed).random(len(people.labels)) < 0.5
    return np.where(hit & (people.groups[attribute] == 1), 0, people.labels).astype(np.int8)
