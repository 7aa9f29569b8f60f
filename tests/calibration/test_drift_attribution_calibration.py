"""False attribution of a change to treatment: at most α, by simulation; and attribution of bias."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor.drift.effect import Effects
from monitor.drift.share import ShareSums

pytestmark = pytest.mark.calibration

ALPHA, RUNS, STEPS, ROWS = 0.1, 300, 2_000, 1_500


def flips(rng, share: float, n: int):
    """Posterior-weighted hard crossings: values in [0, 1] with a given mean."""
    return (rng.random(n) < 2 * share) * rng.random(n)


def attributed(rng, before: float, after: float, *, steps: int = STEPS) -> bool:
    """Whether the flip share is found to have risen, with a new baseline."""
    baseline = ShareSums.of(flips(rng, before, ROWS))
    effects = Effects([baseline], (2,), [None], alpha=ALPHA)
    posterior = np.full((steps, 2), 0.5)
    return (
        effects.update(0, flips(rng, after, steps).tolist(), np.ones(steps), posterior) is not None
    )


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_false_attributions_are_at_most_the_level(share):
    rng = np.random.default_rng(11)
    wrong = sum(attributed(rng, share, share) for _ in range(RUNS))
    assert wrong <= stats.binom.ppf(0.999, RUNS, ALPHA)


def test_comparing_means_at_every_prediction_fails_the_same_check():
    """The known-bad variant: a one-sided normal test of level α against the baseline's mean."""
    rng, wrong, counts = np.random.default_rng(11), 0, np.arange(1, STEPS + 1)
    for _ in range(RUNS):
        baseline, values = flips(rng, 0.1, ROWS), flips(rng, 0.1, STEPS)
        error = np.sqrt(baseline.var() * (1 / ROWS + 1 / counts))
        z = (values.cumsum() / counts - baseline.mean()) / error
        wrong += bool((z[50:] > stats.norm.ppf(1 - ALPHA)).any())
    assert wrong > stats.binom.ppf(0.999, RUNS, ALPHA)


def test_bias_is_attributed_within_a_thousand_predictions():
    """Flips from 2 to 11% in at least 95% of streams: fewer are improbable at that rate."""
    rng, runs = np.random.default_rng(12), 200
    right = sum(attributed(rng, 0.02, 0.11, steps=800) for _ in range(runs))
    assert right >= stats.binom.ppf(0.999, runs, 0.95)
