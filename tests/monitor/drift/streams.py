"""Synthetic predictions: like the baseline's, of another population, or of a changed classifier."""

from __future__ import annotations

import numpy as np

from monitor import Drift
from monitor.drift.reference import DriftReference
from monitor.scoring.scores import Predictions, Signals

DIGEST = "sha256:1"


def predictions(
    rng, n: int, *, people: float = 0.0, treatment: float = 0.0, groups: int = 2
) -> Predictions:
    """`people` shifts posterior and margin; `treatment` scales expected changes and flips."""
    status = rng.normal(0, 1, (n, groups))
    status[:, 1] += people
    posterior = np.exp(status) / np.exp(status).sum(1, keepdims=True)
    flips = rng.binomial(8, np.minimum(rng.beta(0.1, 0.9, n) * (1 + treatment), 1)) / 8
    signals = Signals(
        hard_flips=flips,
        expected_change=rng.gamma(1.0, 1 + treatment, n) * (rng.random(n) < 0.8),
        posterior=posterior,
    )
    return Predictions(margin=rng.normal(people, 1, n), attributes={"sex": signals})


def reference(rows: int = 4_000, *, seed: int = 0, groups: int = 2) -> DriftReference:
    batch = predictions(np.random.default_rng(seed), rows, groups=groups)
    return DriftReference.from_rows(batch.margin, batch.attributes, seed=seed)


def watch(ref: DriftReference | None = None, *, seed: int = 1, **options) -> Drift:
    ref = reference() if ref is None else ref
    return Drift.start(ref, bundle_digest=DIGEST, rng=np.random.default_rng(seed), **options)


def part(batch: Predictions, rows: slice) -> Predictions:
    return Predictions(
        margin=batch.margin[rows],
        attributes={
            name: Signals(
                hard_flips=s.hard_flips[rows],
                expected_change=s.expected_change[rows],
                posterior=s.posterior[rows],
            )
            for name, s in batch.attributes.items()
        },
    )
