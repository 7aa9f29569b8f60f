"""The lower bound on flip shares: false warnings of correct maps, and detection of wrong ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from monitor.drift.bound import ShareBounds
from monitor.drift.reference import Layout
from monitor.drift.share import ShareSums, sums_of
from monitor.scoring.scores import Predictions, Signals

pytestmark = pytest.mark.calibration

ALPHA, RUNS, STEPS, EVERY = 0.1, 100, 2_000, 100
CUT = 0.8


@dataclass(frozen=True, kw_only=True)
class Line:
    """One normal feature whose mean differs by group; the decision is positive above `CUT`.

    The maps that add the difference of means are correct and change as few decisions as any: with
    two groups, the flip share is the bound.
    """

    means: tuple[float, ...]
    probabilities: tuple[float, ...]

    @property
    def rates(self):
        return stats.norm.sf(CUT - np.array(self.means))

    @property
    def bound(self) -> float:
        gaps = np.abs(np.subtract.outer(self.rates, self.rates)).max(1)
        return float(gaps @ self.probabilities)

    def stream(self, rng, n: int, *, mapped: bool = True) -> Predictions:
        """Predictions with the true posterior; without flips if they are not mapped."""
        means, probabilities = np.array(self.means), np.array(self.probabilities)
        x = rng.normal(rng.choice(means, n, p=probabilities))
        joint = probabilities * np.exp(-((x[:, None] - means) ** 2) / 2)
        posterior = joint / joint.sum(1, keepdims=True)
        transported = x[:, None, None] + (means - means[:, None])
        flips = ((transported >= CUT) != (x >= CUT)[:, None, None]).any(2)
        return Predictions(
            margin=x - CUT,
            attributes={
                "a": Signals(
                    hard_flips=(posterior * flips).sum(1) * mapped,
                    expected_change=np.zeros(n),
                    posterior=posterior,
                )
            },
        )


TWO = Line(means=(0.0, 1.0), probabilities=(0.6, 0.4))
EQUAL = Line(means=(0.0, 0.0), probabilities=(0.9, 0.1))
THREE = Line(means=(0.0, 0.4, 1.0), probabilities=(0.5, 0.4, 0.1))


def warned(stream: Predictions, *, alpha: float = ALPHA) -> int | None:
    """Number of predictions until the first warning, if there is one."""
    signals, n = stream.attributes["a"], len(stream.margin)
    bounds = ShareBounds(Layout(groups={"a": signals.posterior.shape[1]}), alpha=alpha)
    sums = np.array([0.0, 0.0, 0.0])
    for start in range(0, n, EVERY):
        rows = slice(start, start + EVERY)
        part = Signals(
            hard_flips=signals.hard_flips[rows],
            expected_change=signals.expected_change[rows],
            posterior=signals.posterior[rows],
        )
        bounds.add(start, Predictions(margin=stream.margin[rows], attributes={"a": part}))
        sums += sums_of(part.hard_flips.tolist(), sums[0] + 1.0, sums[1] + 0.5)
        count, total, variation = sums.tolist()
        if bounds.exceeds(0, ShareSums(count=count, total=total, variation=variation)):
            return rows.stop
    return None


def warned_by_normal_intervals(stream: Predictions) -> bool:
    """The known-bad variant: a normal interval of the share, against the estimated bound."""
    signals = stream.attributes["a"]
    counts = np.arange(1, len(stream.margin) + 1)
    positive = signals.posterior * (stream.margin >= 0)[:, None]
    rates = positive.cumsum(0) / signals.posterior.cumsum(0)
    gaps = np.abs(rates[:, :, None] - rates[:, None]).max(2)
    bound = (signals.posterior.cumsum(0) * gaps).sum(1) / counts
    flips = signals.hard_flips
    half = stats.norm.isf(ALPHA / 2) * flips.std() / np.sqrt(counts)
    return bool((flips.cumsum() / counts + half < bound)[EVERY - 1 :: EVERY].any())


@pytest.mark.parametrize("world", [TWO, EQUAL, THREE])
def test_false_warnings_of_correct_maps_are_at_most_the_level(world):
    rng = np.random.default_rng(21)
    wrong = sum(warned(world.stream(rng, STEPS)) is not None for _ in range(RUNS))
    assert wrong <= stats.binom.ppf(0.999, RUNS, ALPHA)


@pytest.mark.parametrize("world", [TWO, EQUAL])
def test_normal_intervals_at_every_check_fail_the_same_check(world):
    rng = np.random.default_rng(21)
    wrong = sum(warned_by_normal_intervals(world.stream(rng, STEPS)) for _ in range(RUNS))
    assert wrong > stats.binom.ppf(0.999, RUNS, ALPHA)


@pytest.mark.parametrize(
    ("world", "within"),
    [
        (TWO, 700),
        (Line(means=(0.0, 0.4), probabilities=(0.6, 0.4)), 2_500),
        (THREE, 2_500),
    ],
)
def test_maps_that_miss_the_dependence_are_warned_of(world, within):
    """No flips although rates differ, at a level of 1%: at least 95% of streams."""
    rng, runs = np.random.default_rng(22), 40
    right = sum(
        warned(world.stream(rng, within, mapped=False), alpha=0.01) is not None for _ in range(runs)
    )
    assert right >= stats.binom.ppf(0.999, runs, 0.95)


@pytest.mark.parametrize("world", [TWO, THREE])
def test_misses_of_the_lower_end_are_at_most_half_of_the_level(world):
    rng, wrong = np.random.default_rng(23), 0
    for _ in range(RUNS):
        bounds = ShareBounds(Layout(groups={"a": len(world.means)}), alpha=ALPHA)
        missed = False
        for start in (0, 200, 400, 600):
            bounds.add(start, world.stream(rng, 200))
            missed |= bounds.read(0).low > world.bound
        wrong += missed
    assert wrong <= stats.binom.ppf(0.999, RUNS, ALPHA / 2)


@pytest.mark.parametrize("world", [TWO, THREE])
def test_the_lower_end_approaches_the_bound(world):
    """At 200,000 predictions it is less than 3 points below."""
    bounds = ShareBounds(Layout(groups={"a": len(world.means)}), alpha=ALPHA)
    bounds.add(0, world.stream(np.random.default_rng(24), 200_000))
    assert world.bound - 0.03 < bounds.read(0).low < world.bound
    assert bounds.read(0).share == pytest.approx(world.bound, abs=0.01)
