"""Timing of `benchmarks.serving`: every server under every load, in turns, round by round."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.serving_rows import MLSERVERS, Row

__all__ = ["Figure", "Sample", "Timing", "take_timing"]

# Requests before anything is measured, and the fewest of a run.
_WARM = 200
_FEWEST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One server under one load in one round.

    Attributes:
        per_second: Requests answered in a second.
        cpu_us: Processor time of the server for one request, in microseconds.
        client_share: Of its core, what h2load itself needed.
        p50: Half of the requests took at most so many milliseconds, where that was logged.
        p99: All but one in a hundred likewise.
    """

    per_second: float
    cpu_us: float
    client_share: float
    p50: float
    p99: float


Figure = Literal["per_second", "cpu_us", "p50", "p99"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of each server under one load, one a round."""

    samples: Mapping[str, list[Sample]]

    def median(self, name: str, figure: Figure) -> float:
        """The middle round's."""
        return statistics.median(self._each(name, figure))

    def ratios(self, name: str, to: str, figure: Figure) -> list[float]:
        """One a round."""
        pairs = zip(self._each(name, figure), self._each(to, figure), strict=True)
        return [ours / theirs for ours, theirs in pairs]

    def ratio(self, name: str, to: str, figure: Figure) -> float:
        """The middle of the rounds' ratios."""
        return statistics.median(self.ratios(name, to, figure))

    @property
    def mlserver(self) -> str | None:
        """The setting of MLServer's that answers most requests under this load."""
        there = [name for name in MLSERVERS if name in self.samples]
        return max(there, key=lambda name: self.median(name, "per_second"), default=None)

    @property
    def busiest_client(self) -> float:
        """What h2load needed of its core at most."""
        return max(s.client_share for samples in self.samples.values() for s in samples)

    def _each(self, name: str, figure: Figure) -> list[float]:
        return [getattr(sample, figure) for sample in self.samples[name]]


def take_timing(
    rows: Mapping[str, Row], *, outstanding: int, rounds: int, seconds: float
) -> Timing:
    """Load every server in every round, in turns about who goes first.

    Args:
        rows: The servers.
        outstanding: How many requests wait for their answers at any time.
        rounds: How many rounds.
        seconds: How long one run takes, about.
    """
    counts = {}
    for name, row in rows.items():
        row.load(outstanding=outstanding, requests=_WARM)
        rate = row.load(outstanding=outstanding, requests=_WARM)[0].per_second
        counts[name] = max(_FEWEST, int(rate * seconds))
    samples: dict[str, list[Sample]] = {name: [] for name in rows}
    for number in range(rounds):
        order = list(rows)
        for name in order if number % 2 == 0 else reversed(order):
            samples[name].append(_sample(rows[name], outstanding, counts[name]))
    return Timing(samples=samples)


def _sample(row: Row, outstanding: int, requests: int) -> Sample:
    load, cpu = row.load(outstanding=outstanding, requests=requests)
    middle, late = math.nan, math.nan
    if len(load.microseconds):
        middle, late = map(float, np.percentile(load.microseconds, (50, 99)) / 1e3)
    return Sample(
        per_second=load.per_second,
        cpu_us=cpu / requests * 1e6,
        client_share=load.client_share,
        p50=middle,
        p99=late,
    )
