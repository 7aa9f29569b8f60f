"""Timing of `benchmarks.serving`: every server under every load, alternating in every round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.serving_rows import MLSERVERS, Row

__all__ = ["Figure", "Sample", "Timing", "take_timing"]

# Requests of a warm-up run, and the smallest number of a measured run.
_WARM = 200
_FEWEST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Measurement of one server under one load in one round.

    Attributes:
        per_second: Requests per second.
        cpu_us: CPU time of the server per request, in microseconds.
        client_share: CPU use of h2load, as a share of its core.
        p50: Median latency in milliseconds; NaN if not logged.
        p99: 99th percentile of the latency in milliseconds; NaN if not logged.
    """

    per_second: float
    cpu_us: float
    client_share: float
    p50: float
    p99: float


Figure = Literal["per_second", "cpu_us", "p50", "p99"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of each server under one load, one per round."""

    samples: Mapping[str, list[Sample]]

    def median(self, name: str, figure: Figure) -> float:
        """Median over rounds."""
        return statistics.median(self._values(name, figure))

    def ratios(self, name: str, to: str, figure: Figure) -> list[float]:
        """Ratio of two servers in every round."""
        pairs = zip(self._values(name, figure), self._values(to, figure), strict=True)
        return [ours / theirs for ours, theirs in pairs]

    def ratio(self, name: str, to: str, figure: Figure) -> float:
        """Median over rounds of the ratio of two servers."""
        return statistics.median(self.ratios(name, to, figure))

    @property
    def mlserver(self) -> str | None:
        """The configuration of MLServer with the highest throughput under this load, if any ran."""
        measured = [name for name in MLSERVERS if name in self.samples]
        return max(measured, key=lambda name: self.median(name, "per_second"), default=None)

    @property
    def busiest_client(self) -> float:
        """Highest CPU use of h2load over all samples."""
        return max(s.client_share for samples in self.samples.values() for s in samples)

    def _values(self, name: str, figure: Figure) -> list[float]:
        return [getattr(sample, figure) for sample in self.samples[name]]


def take_timing(
    rows: Mapping[str, Row],
    *,
    outstanding: int,
    rounds: int,
    seconds: float,
    warm: int = _WARM,
) -> Timing:
    """Load every server in every round; the order alternates between rounds.

    Args:
        rows: Servers by name.
        outstanding: Number of outstanding requests at any time.
        rounds: Number of rounds.
        seconds: Approximate duration of one run.
        warm: Requests of a warm-up run.
    """
    counts = {}
    for name, row in rows.items():
        row.load(outstanding=outstanding, requests=warm)
        rate = row.load(outstanding=outstanding, requests=warm)[0].per_second
        counts[name] = max(min(_FEWEST, warm), int(rate * seconds))
    samples: dict[str, list[Sample]] = {name: [] for name in rows}
    for number in range(rounds):
        order = list(rows)
        for name in order if number % 2 == 0 else reversed(order):
            samples[name].append(_sample(rows[name], outstanding, counts[name]))
    return Timing(samples=samples)


def _sample(row: Row, outstanding: int, requests: int) -> Sample:
    load, cpu = row.load(outstanding=outstanding, requests=requests)
    p50, p99 = math.nan, math.nan
    if len(load.microseconds):
        p50, p99 = map(float, np.percentile(load.microseconds, (50, 99)) / 1e3)
    return Sample(
        per_second=load.per_second,
        cpu_us=cpu / requests * 1e6,
        client_share=load.client_share,
        p50=p50,
        p99=p99,
    )
