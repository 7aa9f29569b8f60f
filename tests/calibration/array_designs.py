"""Designs of `benchmarks.calibration` that need rows: scores, units, correlations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit import GroupRows, correlation_test, permutation_test
from offline_audit.permutation import Comparison
from offline_audit.permutation.auc_test import auc_moments
from offline_audit.permutation.permutations import draw_subsets
from tests.calibration.designs import ALPHA, Design, Tries

__all__ = ["Sample", "array_design", "auc_rivals", "correlation_design", "mean_rivals",
           "unit_rivals"]  # fmt: skip

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
# P-values of other tests on a sample, by name.
Rivals = Callable[["Sample", np.random.Generator], dict[str, float]]

_DRAWS = 199
# Fewer samples with a planted effect, but more draws: few draws reduce power.
_PLANTED_SHARE, _PLANTED_DRAWS = 0.2, 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One simulated sample; arrays `[n]`.

    Attributes:
        group: Whether a row belongs to the group.
        columns: Other arguments of the test: `scores`, `labels`, `decisions`, `units`.
    """

    group: Bool
    columns: dict[str, Any] = field(default_factory=dict)


def array_design(
    name: str,
    metric: str | Callable[[GroupRows], float],
    cell: float,
    draw: Callable[[np.random.Generator, float], Sample],
    rivals: Rivals,
    *,
    planted: dict[str, float] | None = None,
    known_bad: bool = False,
) -> Design:
    """A design whose `draw` simulates a sample with a shift of the metric; 0 is the null."""

    def simulator(shift: float, share: float, draws: int) -> Callable[[int, int], Tries]:
        def simulate(simulations: int, seed: int) -> Tries:
            rng = np.random.default_rng(seed)
            results = []
            for number in range(max(int(simulations * share), 1)):
                sample = draw(rng, shift)
                names = np.where(sample.group, 0, 1)
                ours = permutation_test(
                    metrics=metric, groups=names, n_resamples=draws, seed=number, **sample.columns
                )[0]
                results.append((ours, rivals(sample, rng)))
            return _tries(results, shift)

        return simulate

    metric_name = metric if isinstance(metric, str) else metric.__name__
    return Design(
        name=f"{metric_name}: {name}",
        cell=cell,
        fair=simulator(0.0, 1.0, _DRAWS),
        planted={
            effect: simulator(shift, _PLANTED_SHARE, _PLANTED_DRAWS)
            for effect, shift in (planted or {}).items()
        },
        known_bad="un-studentized" if known_bad else None,
    )


def correlation_design(
    name: str,
    rows: int,
    draw: Callable[[np.random.Generator, float], tuple[Float, Float]],
    planted: dict[str, float],
) -> Design:
    """A design of pairs of numbers; the shift is the slope of the second on the first."""

    def simulator(shift: float, share: float, draws: int) -> Callable[[int, int], Tries]:
        def simulate(simulations: int, seed: int) -> Tries:
            rng = np.random.default_rng(seed)
            results = []
            for number in range(max(int(simulations * share), 1)):
                x, y = draw(rng, shift)
                ours = correlation_test(x, y, n_resamples=draws, seed=number)
                results.append((ours, _correlation_rivals(x, y, rng)))
            return _tries(results, 0.0 if shift == 0 else None)

        return simulate

    return Design(
        name=f"correlation: {name}",
        cell=float(rows),
        fair=simulator(0.0, 1.0, _DRAWS),
        planted={
            effect: simulator(shift, _PLANTED_SHARE, _PLANTED_DRAWS)
            for effect, shift in planted.items()
        },
        known_bad="un-studentized",
    )


def _tries(results: list[tuple[Comparison, dict[str, float]]], truth: float | None) -> Tries:
    ours = [comparison for comparison, _ in results]
    intervals = [comparison.interval for comparison in ours if comparison.interval is not None]
    rivals = {
        name: float(np.mean([p[name] <= ALPHA for _, p in results])) for name in results[0][1]
    }
    covered = None
    if truth is not None and intervals:
        covered = float(np.mean([low <= truth <= high for low, high in intervals]))
    return Tries(
        simulations=len(ours),
        refused=sum(not comparison.determined for comparison in ours),
        rejected=float(np.mean([(comparison.p_value or 1.0) <= ALPHA for comparison in ours])),
        rivals=rivals,
        covered=covered,
    )


def _p_of(observed: float, resampled: Float) -> float:
    return float((1 + np.sum(~(np.abs(resampled) < abs(observed) - 1e-12))) / (len(resampled) + 1))


def mean_rivals(sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    """Student's and Welch's t, and permutation tests of Welch's t and of the plain difference."""
    scores = np.asarray(sample.columns["scores"], dtype=np.float64)
    if "labels" in sample.columns:
        scores = np.asarray(sample.columns["labels"]) - scores
    group = sample.group
    first, second = scores[group], scores[~group]
    masks = np.vstack([group, draw_subsets(rng, len(scores), int(group.sum()), _DRAWS)])
    n, m = len(first), len(second)
    sums, squares = masks @ scores, masks @ scores**2
    rest, rest_squares = scores.sum() - sums, (scores**2).sum() - squares
    difference = sums / n - rest / m
    variance = (squares / n - (sums / n) ** 2) / (n - 1) + (rest_squares / m - (rest / m) ** 2) / (
        m - 1
    )
    t = difference / np.sqrt(variance)
    return {
        "Student": float(stats.ttest_ind(first, second).pvalue),
        "Welch": float(stats.ttest_ind(first, second, equal_var=False).pvalue),
        "permuted Welch": _p_of(t[0], t[1:]),
        "un-studentized": _p_of(difference[0], difference[1:]),
    }


def auc_rivals(sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    """DeLong's z, and permutation tests over all rows of it and of the plain difference."""
    scores, labels = (np.asarray(sample.columns[name]) for name in ("scores", "labels"))
    level = np.unique(scores, return_inverse=True)[1]
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    masks = np.vstack(
        [sample.group, draw_subsets(rng, len(scores), int(sample.group.sum()), _DRAWS)]
    )
    sides = []
    for members in (masks, ~masks):
        sorted_members = members[:, order]
        parts = [
            np.add.reduceat(sorted_members * (labels[order] == y), starts, axis=1).astype(
                np.float64
            )
            for y in (1, 0)
        ]
        sides.append(auc_moments(*parts))
    difference = sides[0].estimate - sides[1].estimate
    with np.errstate(divide="ignore", invalid="ignore"):
        t = difference / np.sqrt(sides[0].variance + sides[1].variance)
    return {
        "DeLong": float(2 * stats.norm.sf(abs(t[0]))),
        "permuted DeLong": _p_of(float(t[0]), t[1:]),
        "un-studentized": _p_of(float(difference[0]), difference[1:]),
    }


def unit_rivals(sample: Sample, _: np.random.Generator) -> dict[str, float]:
    """The z-test that treats rows as independent, and Wald's test with sums by unit."""
    decisions, units = (np.asarray(sample.columns[name]) for name in ("decisions", "units"))
    rates, variances, sizes = [], [], []
    for members in (sample.group, ~sample.group):
        sums = np.bincount(units[members], weights=decisions[members])
        counts = np.bincount(units[members])
        rate = sums.sum() / counts.sum()
        rates.append(rate)
        variances.append(float(((sums - rate * counts) ** 2).sum() / counts.sum() ** 2))
        sizes.append(int(counts.sum()))
    pooled = float(decisions.mean())
    naive = (rates[0] - rates[1]) / np.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    wald = (rates[0] - rates[1]) / np.sqrt(sum(variances))
    return {
        "z without units": float(2 * stats.norm.sf(abs(naive))),
        "Wald by units": float(2 * stats.norm.sf(abs(wald))),
    }


def _correlation_rivals(x: Float, y: Float, rng: np.random.Generator) -> dict[str, float]:
    n = len(x)
    u, v = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    permuted = np.vstack([v, rng.permuted(np.tile(v, (_DRAWS, 1)), axis=1)])
    rho = permuted @ u / n
    t = np.sqrt(n) * rho / np.sqrt(permuted**2 @ u**2 / n)
    return {
        "Pearson": float(stats.pearsonr(x, y).pvalue),
        "Wald": float(2 * stats.norm.sf(abs(t[0]))),
        "permuted": _p_of(float(t[0]), t[1:]),
        "un-studentized": _p_of(float(rho[0]), rho[1:]),
    }
