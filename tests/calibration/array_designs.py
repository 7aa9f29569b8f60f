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
# Tests of others on a sample, and their p-values.
Rivals = Callable[["Sample", np.random.Generator], dict[str, float]]

_DRAWS = 199
# Samples with a planted effect are fewer, with more draws: few draws cost power.
_PLANTED_SHARE, _PLANTED_DRAWS = 0.2, 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One simulated sample; arrays `[n]`.

    Attributes:
        group: Whether a row belongs to the group.
        columns: What the test gets besides: `scores`, `labels`, `decisions`, `units`.
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
    """A design whose `draw` makes a sample with a given shift of the metric; 0 is fair."""

    def simulator(shift: float, share: float, draws: int) -> Callable[[int, int], Tries]:
        def simulate(simulations: int, seed: int) -> Tries:
            rng = np.random.default_rng(seed)
            found = []
            for number in range(max(int(simulations * share), 1)):
                sample = draw(rng, shift)
                names = np.where(sample.group, 0, 1)
                ours = permutation_test(
                    metrics=metric, groups=names, n_resamples=draws, seed=number, **sample.columns
                )[0]
                found.append((ours, rivals(sample, rng)))
            return _tries(found, shift)

        return simulate

    shown = metric if isinstance(metric, str) else metric.__name__
    return Design(
        name=f"{shown}: {name}",
        cell=cell,
        fair=simulator(0.0, 1.0, _DRAWS),
        planted={
            effect: simulator(by, _PLANTED_SHARE, _PLANTED_DRAWS)
            for effect, by in (planted or {}).items()
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
            found = []
            for number in range(max(int(simulations * share), 1)):
                x, y = draw(rng, shift)
                ours = correlation_test(x, y, n_resamples=draws, seed=number)
                found.append((ours, _correlation_rivals(x, y, rng)))
            return _tries(found, 0.0 if shift == 0 else None)

        return simulate

    return Design(
        name=f"correlation: {name}",
        cell=float(rows),
        fair=simulator(0.0, 1.0, _DRAWS),
        planted={
            effect: simulator(by, _PLANTED_SHARE, _PLANTED_DRAWS) for effect, by in planted.items()
        },
        known_bad="un-studentized",
    )


def _tries(found: list[tuple[Comparison, dict[str, float]]], truth: float | None) -> Tries:
    ours = [each for each, _ in found]
    made = [each.interval for each in ours if each.interval is not None]
    rivals = {name: float(np.mean([p[name] <= ALPHA for _, p in found])) for name in found[0][1]}
    covered = None
    if truth is not None and made:
        covered = float(np.mean([low <= truth <= high for low, high in made]))
    return Tries(
        simulations=len(ours),
        refused=sum(not each.enough_data for each in ours),
        rejected=float(np.mean([(each.p_value or 1.0) <= ALPHA for each in ours])),
        rivals=rivals,
        covered=covered,
    )


def _p_of(seen: float, drawn: Float) -> float:
    return float((1 + np.sum(~(np.abs(drawn) < abs(seen) - 1e-12))) / (len(drawn) + 1))


def mean_rivals(sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    """Student's and Welch's t, and rearrangements of Welch's t and of the plain difference."""
    scores = np.asarray(sample.columns["scores"], dtype=np.float64)
    if "labels" in sample.columns:
        scores = np.asarray(sample.columns["labels"]) - scores
    group = sample.group
    one, two = scores[group], scores[~group]
    masks = np.vstack([group, draw_subsets(rng, len(scores), int(group.sum()), _DRAWS)])
    n, m = len(one), len(two)
    sums, squares = masks @ scores, masks @ scores**2
    rest, rest_squares = scores.sum() - sums, (scores**2).sum() - squares
    difference = sums / n - rest / m
    spread = (squares / n - (sums / n) ** 2) / (n - 1) + (rest_squares / m - (rest / m) ** 2) / (
        m - 1
    )
    t = difference / np.sqrt(spread)
    return {
        "Student": float(stats.ttest_ind(one, two).pvalue),
        "Welch": float(stats.ttest_ind(one, two, equal_var=False).pvalue),
        "permuted Welch": _p_of(t[0], t[1:]),
        "un-studentized": _p_of(difference[0], difference[1:]),
    }


def auc_rivals(sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    """DeLong's z, and rearrangements of all rows of it and of the plain difference."""
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
    """The z-test that takes every row for a person of its own, and Wald's with sums by person."""
    decisions, units = (np.asarray(sample.columns[name]) for name in ("decisions", "units"))
    rates, spreads, sizes = [], [], []
    for members in (sample.group, ~sample.group):
        sums = np.bincount(units[members], weights=decisions[members])
        times = np.bincount(units[members])
        rate = sums.sum() / times.sum()
        rates.append(rate)
        spreads.append(float(((sums - rate * times) ** 2).sum() / times.sum() ** 2))
        sizes.append(int(times.sum()))
    pooled = float(decisions.mean())
    naive = (rates[0] - rates[1]) / np.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    wald = (rates[0] - rates[1]) / np.sqrt(sum(spreads))
    return {
        "z without units": float(2 * stats.norm.sf(abs(naive))),
        "Wald by units": float(2 * stats.norm.sf(abs(wald))),
    }


def _correlation_rivals(x: Float, y: Float, rng: np.random.Generator) -> dict[str, float]:
    n = len(x)
    u, v = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    rearranged = np.vstack([v, rng.permuted(np.tile(v, (_DRAWS, 1)), axis=1)])
    rho = rearranged @ u / n
    t = np.sqrt(n) * rho / np.sqrt(rearranged**2 @ u**2 / n)
    return {
        "Pearson": float(stats.pearsonr(x, y).pvalue),
        "Wald": float(2 * stats.norm.sf(abs(t[0]))),
        "permuted": _p_of(float(t[0]), t[1:]),
        "un-studentized": _p_of(float(rho[0]), rho[1:]),
    }
