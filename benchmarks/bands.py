"""Confidence bands of `benchmarks.drift`: miscoverage and width."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.claims import Claim
from monitor.drift.share import ShareSums, directions, log_evidence

__all__ = ["band_claims"]

Float = NDArray[np.float64]

_MEANS = (0.02, 0.1, 0.4)
_DRAWS: dict[str, Callable[[np.random.Generator, float, int], Float]] = {
    "zeros and ones": lambda rng, mean, n: (rng.random(n) < mean).astype(np.float64),
    "eighths": lambda rng, mean, n: rng.binomial(8, rng.beta(mean, 1 - mean, n)) / 8,
}


def band_claims(*, runs: int, level: float, seed: int) -> Iterator[Claim]:
    """Simulate runs of 10,000 values for every kind of values and mean."""
    n, rng = 10_000, np.random.default_rng(seed)
    missed, widths = {}, {}
    for kind, draw in _DRAWS.items():
        for mean in _MEANS:
            drawn = [draw(rng, mean, n) for _ in range(runs)]
            name = f"{kind}, mean {mean:g}"
            missed[name] = sum(_ever_missed(values, mean, level) for values in drawn) / runs
            deviation = float(np.concatenate(drawn).std())
            fixed = 2 * NormalDist().inv_cdf(1 - level / 2) * deviation / math.sqrt(n)
            bands = [ShareSums.of(values).band(level) for values in drawn[:10]]
            widths[name] = statistics.median(band.high - band.low for band in bands) / fixed
    table = Table("values", "ever excluded", "width", title=f"Bands at {level:.0%}, {n} steps")
    for name, share in missed.items():
        table.add_row(name, f"{share:.2%}", f"{widths[name]:.2f} × fixed n")
    Console().print(table)
    yield Claim(
        claim="runs whose band ever excludes the mean, worst kind of values",
        figure=max(missed.values()),
        unit="of runs",
        side="at most",
        bar=level,
        rounds=runs,
    )
    yield Claim(
        claim="width of a band at 10,000 predictions, worst kind of values",
        figure=max(widths.values()),
        unit="× the interval for a fixed n",
        side="at most",
        bar=2,
        rounds=10,
    )


def _ever_missed(values: Float, mean: float, level: float) -> bool:
    """Whether the band excludes the mean at any step."""
    steps, totals = np.arange(len(values)), values.cumsum()
    guesses = (totals - values + 0.5) / (steps + 1)
    variation = ((values - guesses) ** 2).cumsum()
    excess, bar = totals - mean * (steps + 1), math.log(2 / level)
    for side in (excess, -excess):
        sums = np.stack([np.zeros(len(values)), side, variation], 1)[None]
        evidence = log_evidence(sums, directions(np.zeros(1)), bar)
        if evidence is not None and evidence.max() >= bar:
            return True
    return False
