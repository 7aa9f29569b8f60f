"""Designs that check the power at the smallest detectable effects, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit import (
    GroupRows,
    TableCounts,
    correlation_test,
    flip_test,
    permutation_test,
    projection_test,
)
from offline_audit.power import Detectable
from tests.calibration.designs import ALPHA

__all__ = ["DETECTED", "WITHIN", "PowerDesign", "designs"]

Float = NDArray[np.float64]
# A test of one simulated sample with a given effect: p-value and smallest detectable effects.
Tested = tuple[float | None, Detectable | None]

# Power at which an effect counts as detectable.
DETECTED = 0.8
# Largest distance of the power from it.
WITHIN = 0.03
_DRAWS = 399


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDesign:
    """A simulation design with one smallest detectable effect in each direction.

    Attributes:
        name: Description of the data.
        sample: Tests a sample with an effect, from the random generator and the effect.
        samples: Samples without an effect over which the smallest detectable effects are averaged.
        most: Most simulations of a slow test.
        claim: Whether the power is claimed to be `within` 3 points of 80%, or `at least` 80%; None
            for an effect that is stated as approximate only.
    """

    name: str
    sample: Callable[[np.random.Generator, float], Tested]
    samples: int = 40
    most: int = 2_000
    claim: Literal["within", "at least"] | None = "within"

    def stated(self, seed: int) -> Detectable:
        """Mean smallest detectable effects; None for a direction where most samples have none."""
        rng = np.random.default_rng(seed)
        pairs = [self.sample(rng, 0.0)[1] or (None, None) for _ in range(self.samples)]
        down, up = (
            [effect for effect in side if effect is not None] for side in zip(*pairs, strict=True)
        )
        return tuple(
            float(np.mean(side)) if len(side) > self.samples / 2 else None for side in (down, up)
        )  # type: ignore[return-value]

    def power(self, effect: float, simulations: int, seed: int) -> float:
        """Share of samples with this effect that are rejected at 5%."""
        rng = np.random.default_rng(seed)
        p_values = [self.sample(rng, effect)[0] for _ in range(simulations)]
        return float(np.mean([p is not None and p <= ALPHA for p in p_values]))


def designs() -> list[PowerDesign]:
    """All designs: rates, means, AUC, correlation, units, a function, projection, FlipTest."""
    return [
        _rates(100, 1_900, 0.1),
        _rates(200, 200, 0.1),
        _rates(60, 60, 0.05),
        _rates(50, 450, 0.3),
        _rates(1_900, 100, 0.1),
        _rates(1_000, 19_000, 0.02),
        PowerDesign(name="mean score: 60 wide against 240 narrow", sample=_normal_scores),
        PowerDesign(name="mean score: skewed, 100 against 900", sample=_skewed_scores, claim=None),
        PowerDesign(name="AUC: 150 against 600 rows", sample=_ranked_scores, claim=None),
        PowerDesign(name="correlation: 150 rows", sample=_correlated),
        PowerDesign(name="rate of units: 100 against 300 people", sample=_people),
        PowerDesign(
            name="a function: Brier score, 150 against 450",
            sample=_brier,
            samples=10,
            most=500,
            claim=None,
        ),
        _projected("two groups", (100, 1_900), 0.1),
        _projected("three groups", (200, 600, 1_200), 0.2),
        PowerDesign(
            name="FlipTest: one feature", sample=_flipped, samples=2, most=200, claim="at least"
        ),
    ]


def _of(comparison: Any) -> Tested:
    return comparison.p_value, comparison.smallest_detectable_effect


def _rates(n: int, m: int, rate: float) -> PowerDesign:
    def sample(rng: np.random.Generator, effect: float) -> Tested:
        x, y = rng.binomial(n, min(max(rate + effect, 0.0), 1.0)), rng.binomial(m, rate)
        counts = {"a": {(None, 1): x, (None, 0): n - x}, "b": {(None, 1): y, (None, 0): m - y}}
        counted = TableCounts.from_mapping(counts)
        return _of(permutation_test(metrics="selection_rate", counts=counted)[0])

    return PowerDesign(name=f"rates: {n:,} against {m:,}, {rate}", sample=sample, samples=200)


def _compared(n: int, metric: Any, **columns: Any) -> Tested:
    """A test of rows of which the first n are the first group."""
    names = np.where(np.arange(len(next(iter(columns.values())))) < n, "a", "b")
    options: dict[str, Any] = {"score_limits": None, "n_resamples": _DRAWS}
    return _of(permutation_test(names, metrics=metric, **options, **columns)[0])


def _normal_scores(rng: np.random.Generator, effect: float) -> Tested:
    scores = np.concatenate([rng.normal(effect, 2, 60), rng.normal(0, 1, 240)])
    return _compared(60, "mean_score", scores=scores)


def _skewed_scores(rng: np.random.Generator, effect: float) -> Tested:
    scores = rng.beta(0.5, 4.5, 1_000)
    scores[:100] += effect
    return _compared(100, "mean_score", scores=scores)


def _ranked_scores(rng: np.random.Generator, effect: float) -> Tested:
    scores, labels = [], []
    for n, auc in ((75, 0.8 + effect), (300, 0.8)):
        mean = stats.norm.ppf(auc) * np.sqrt(2)
        scores += [rng.normal(mean, 1, n), rng.normal(0, 1, n)]
        labels += [np.ones(n, np.int64), np.zeros(n, np.int64)]
    return _compared(150, "auc", scores=np.concatenate(scores), labels=np.concatenate(labels))


def _correlated(rng: np.random.Generator, effect: float) -> Tested:
    x, e = rng.standard_normal((2, 150))
    y = effect * x + np.sqrt(1 - effect**2) * e
    return _of(correlation_test(x, y, n_resamples=_DRAWS))


def _people(rng: np.random.Generator, effect: float) -> Tested:
    """People with one to five rows, which mostly have the same decision."""
    units = np.repeat(np.arange(400), rng.integers(1, 6, 400))
    first = int(np.count_nonzero(units < 100))
    mean = 0.3 + effect * (np.arange(400) < 100)
    chance = rng.beta(0.6 * mean / 0.3, 0.6 * (1 - mean) / 0.3)
    decisions = (rng.random(len(units)) < chance[units]).astype(np.int64)
    return _compared(first, "selection_rate", decisions=decisions, units=units)


def brier(rows: GroupRows) -> float:
    """The Brier score."""
    assert rows.labels is not None
    assert rows.scores is not None
    return float(np.mean((rows.labels - rows.scores) ** 2))


def _brier(rng: np.random.Generator, effect: float) -> Tested:
    """Scores of .3 with labels of which a share of .3 + effect / .4 is 1: Brier score .21."""
    scores = np.full(600, 0.3)
    labels = rng.random(600) < 0.3 + effect / 0.4 * (np.arange(600) < 150)
    return _compared(150, brier, scores=scores, labels=labels.astype(np.int64))


def _projected(name: str, sizes: tuple[int, ...], rate: float) -> PowerDesign:
    """The first group, the smallest, has another rate."""

    def sample(rng: np.random.Generator, effect: float) -> Tested:
        groups = np.repeat(np.arange(len(sizes)), sizes)
        decisions = rng.random(len(groups)) < rate + effect * (groups == 0)
        result = projection_test(
            groups=groups.astype(str), decisions=decisions, distances=np.ones(len(groups))
        )
        return result.p_value, result.smallest_detectable_effect

    return PowerDesign(name=f"projection: {name}", sample=sample)


def _flipped(rng: np.random.Generator, effect: float) -> Tested:
    """One of three features is shifted by as much as flips a share of the decisions."""
    shift = 2 * stats.norm.ppf((1 + abs(effect)) / 2) * np.sign(effect)
    features = rng.normal(0, 1, (600, 3)).astype(np.float32)
    features[:300, 0] += shift / 2
    features[300:, 0] -= shift / 2
    result = flip_test(
        lambda rows: rows[:, 0] > 0,
        features,
        np.repeat(["a", "b"], 300),
        n_resamples=39,
        n_bootstrap=0,
        explain=False,
        progress=False,
    )
    direction = next(iter(result))
    return direction.p_value, direction.smallest_detectable_effect
