"""Statistics for rates of small samples: size and power of candidates by enumeration.

`python -m benchmarks.small_samples [--quick]`. No simulation: every table of two binomials is
tested and weighted by its probability. The basis of `docs/decisions/0009`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy import stats

from benchmarks.calibration_rows import ENOUGH, LEAST_SIZE, MOST_SIZE
from benchmarks.claims import Claim, Say, Scale, print_wide, report
from tests.calibration.designs import ALPHA

__all__ = ["CHOSEN", "decisions"]

Float = NDArray[np.float64]
Statistic = Callable[[Float, int, Float, int], Float]

_SIZES = (
    (30, 30), (30, 300), (60, 60), (40, 160), (100, 100), (200, 200), (50, 950), (100, 1_900),
    (100, 4_900), (400, 400), (400, 3_600), (30, 1_470), (200, 3_800), (1_000, 1_000),
)  # fmt: skip
_RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
# Sizes, common rate, and the first group's rate when it is higher and when it is lower.
_PLANTED = (
    (400, 1_600, 0.1, 0.145, 0.062), (100, 1_900, 0.3, 0.43, 0.17), (200, 3_800, 0.2, 0.3, 0.12),
    (150, 450, 0.3, 0.43, 0.18), (300, 2_700, 0.5, 0.585, 0.415),
    (1_000, 19_000, 0.3, 0.342, 0.26), (2_000, 38_000, 0.02, 0.029, 0.0115),
)  # fmt: skip
CHOSEN = "+1 and +1"


def _unpooled(added: float) -> Statistic:
    def statistic(x: Float, n: int, y: Float, m: int) -> Float:
        p, q = (x + added) / (n + 2 * added), (y + added) / (m + 2 * added)
        spread = p * (1 - p) / (n + 2 * added) + q * (1 - q) / (m + 2 * added)
        return _ratio(p - q, spread)

    return statistic


def _pooled(x: Float, n: int, y: Float, m: int) -> Float:
    rate = (x + y) / (n + m)
    return _ratio(x / n - y / m, rate * (1 - rate) * (1 / n + 1 / m))


def _likelihood_ratio(x: Float, n: int, y: Float, m: int) -> Float:
    rate = (x + y) / (n + m)
    deviance = np.zeros_like(x)
    for hits, size in ((x, n), (y, m)):
        for count, share in ((hits, rate), (size - hits, 1 - rate)):
            inside = count > 0
            deviance[inside] += 2 * count[inside] * np.log(count[inside] / size / share[inside])
    return np.sign(x / n - y / m) * np.sqrt(np.maximum(deviance, 0))


def _ratio(difference: Float, spread: Float) -> Float:
    with np.errstate(divide="ignore", invalid="ignore"):
        # With zero variance any difference is beyond every limit.
        ratio = np.where(spread > 0, difference / np.sqrt(spread), np.sign(difference) * 1e9)
    return np.where(difference == 0, 0.0, ratio)


_ORDERINGS: dict[str, Statistic] = {
    "as printed": _unpooled(0.0),
    "+½ and +½": _unpooled(0.5),
    CHOSEN: _unpooled(1.0),
    "likelihood ratio": _likelihood_ratio,
    "pooled": _pooled,
}


def decisions(x: Float, n: int, y: Float, m: int) -> dict[str, NDArray[np.bool_]]:
    """By test, which tables with the same total are rejected."""
    chance = stats.hypergeom(n + m, round(float(x[0] + y[0])), n).pmf(x)
    limit = stats.norm.isf(ALPHA / 2)
    rejected = {}
    for name, statistic in _ORDERINGS.items():
        size = np.round(np.abs(statistic(x, n, y, m)), 10)
        rejected[f"{name}, normal limits"] = size > limit
        # Tables with equal statistics are tied; ranks run from the most extreme.
        _, rank = np.unique(-size, return_inverse=True)
        mass = np.bincount(rank, chance)
        beyond = np.cumsum(mass)
        rejected[f"{name}, ties whole"] = (beyond <= ALPHA + 1e-12)[rank]
        rejected[f"{name}, ties half"] = (beyond - mass / 2 <= ALPHA)[rank]
    upper, lower = np.cumsum(chance[::-1])[::-1], np.cumsum(chance)
    rejected["twice the smaller tail, ties half"] = (
        2 * np.minimum(upper - chance / 2, lower - chance / 2) <= ALPHA
    )
    return rejected


def _rejected(n: int, m: int, rates: list[tuple[float, float]]) -> dict[str, Float]:
    """Probability that each test rejects, for every pair of rates."""
    chances = [
        (stats.binom(n, one).pmf(np.arange(n + 1)), stats.binom(m, two).pmf(np.arange(m + 1)))
        for one, two in rates
    ]
    totals: dict[str, Float] = {}
    for total in range(n + m + 1):
        x = np.arange(max(0, total - m), min(n, total) + 1)
        weights = [one[x] * two[total - x] for one, two in chances]
        if max(weight.sum() for weight in weights) < 1e-9:
            continue
        decided = decisions(x.astype(np.float64), n, (total - x).astype(np.float64), m)
        for name, rejects in decided.items():
            here = np.array([weight[rejects].sum() for weight in weights])
            totals[name] = totals.get(name, np.zeros(len(rates))) + here
    return totals


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Enumerate sizes over the grid, and powers for the planted effects."""
    sizes: dict[str, list[tuple[float, bool]]] = {}
    for (n, m), rate in itertools.product(
        scale.pick(full=_SIZES, quick=_SIZES[:8], smoke=_SIZES[4:5]), _RATES
    ):
        say(f"size: {n:,} against {m:,}, {rate}")
        enough = min(n, m) * rate >= ENOUGH
        for name, rejected in _rejected(n, m, [(rate, rate)]).items():
            sizes.setdefault(name, []).append((float(rejected[0]), enough))
    losses: dict[str, list[tuple[float, float, float]]] = {}
    for n, m, rate, more, less in scale.pick(
        full=_PLANTED, quick=_PLANTED[:4], smoke=_PLANTED[3:4]
    ):
        say(f"power: {n:,} against {m:,}, {rate}")
        powers = _rejected(n, m, [(rate, rate), (more, rate), (less, rate)])
        rivals = [powers[f"{name}, normal limits"] for name in ("pooled", "as printed")]
        valid = [rival for rival in rivals if rival[0] <= MOST_SIZE]
        best = [max(rival[side] for rival in valid) for side in (1, 2)]
        best.append(max(rival[1:].mean() for rival in valid))
        for name, power in powers.items():
            ours = (power[1], power[2], power[1:].mean())
            loss = [float(b - p) for b, p in zip(best, ours, strict=True)]
            losses.setdefault(name, []).append((loss[0], loss[1], loss[2]))
    return _report(sizes, losses)


def _report(
    sizes: dict[str, list[tuple[float, bool]]], losses: dict[str, list[tuple[float, float, float]]]
) -> list[Claim]:
    columns = (
        "test",
        f"size, cells ≥ {ENOUGH}",
        "largest size",
        "power lost: higher rate",
        "lower rate",
        "mean",
    )
    table = Table(*columns, title=f"Two rates, {len(next(iter(sizes.values())))} designs")
    worst = {}
    for name, cases in sizes.items():
        large = [size for size, enough in cases if enough]
        losses_by_side = [max(loss[side] for loss in losses[name]) for side in (0, 1)]
        mean = max(loss[2] for loss in losses[name])
        worst[name] = (max(size for size, _ in cases), min(large), max(losses_by_side), mean)
        cells = (f"{min(large):.3f} to {max(large):.3f}", f"{worst[name][0]:.3f}")
        table.add_row(name, *cells, *(f"{100 * loss:.1f}" for loss in (*losses_by_side, mean)))
    print_wide(table)
    chosen = worst[f"{CHOSEN}, ties half"]
    others = [w[2] for name, w in worst.items() if "ties half" in name and CHOSEN not in name]
    designs = len(next(iter(sizes.values())))

    def claim(text: str, figure: float, side: Literal["at most", "at least"], bar: float) -> Claim:
        return Claim(
            claim=f"rates by {CHOSEN}, ties half: {text}",
            figure=figure,
            unit="of fair samples rejected" if "size" in text else "of samples",
            side=side,
            bar=bar,
            rounds=designs,
        )

    return [
        claim("largest size at 5%", chosen[0], "at most", MOST_SIZE),
        claim(f"smallest size, cells ≥ {ENOUGH}", chosen[1], "at least", LEAST_SIZE),
        claim("worst loss of power, against the smallest of other orderings", chosen[2], "at most",
              min(others)),
        claim("worst loss of power, mean of both directions", chosen[3], "at most", 0.02),
    ]  # fmt: skip


if __name__ == "__main__":
    report("Rates of small samples, by enumeration", measure)
