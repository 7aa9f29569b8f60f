"""Speed of the projection test: against a linear program solver, on 10⁷ rows, and by size."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.optimize import linprog

from benchmarks.claims import Claim, PairedRatio, Say, Scale, print_wide
from offline_audit import projection_test

__all__ = ["Boundary", "linear_program", "measure_projection", "synthetic_boundary"]

Float = NDArray[np.float64]

_COMPARED, _LARGE, _TINY = 100_000, 10_000_000, 1_000
_LONGEST = 480
_RUN = "benchmarks.audits_projection_run"


@dataclass(frozen=True, slots=True)
class Boundary:
    """Rows with decision, boundary distance, group and label, `[n]` each."""

    decisions: NDArray[np.bool_]
    distances: Float
    second: NDArray[np.int8]
    labels: NDArray[np.bool_]

    def test(self) -> float:
        """Test equalized odds; return the statistic."""
        result = projection_test(
            groups=self.second,
            decisions=self.decisions,
            distances=self.distances,
            labels=self.labels,
            criterion="equalized_odds",
            smallest_cell=1,
        )
        assert result.statistic is not None
        assert result.p_value is not None
        return result.statistic


def synthetic_boundary(n: int) -> Boundary:
    """Normal signed distances, shifted by label and slightly by group."""
    rng = np.random.default_rng(n)
    second = (rng.random(n) < 0.3).astype(np.int8)
    labels = rng.random(n) < 0.4
    signed = rng.normal(size=n) + labels - 0.5 - 0.05 * second
    return Boundary(signed >= 0, np.abs(signed), second, labels)


def linear_program(sample: Boundary) -> float:
    """The statistic by HiGHS: problem (7) of the paper, where a share p of each row changes."""
    decided = sample.decisions.astype(float)
    contrasts = []
    for label in (True, False):
        rates = [(sample.labels == label) & (sample.second == group) for group in (1, 0)]
        contrasts.append(rates[0] / rates[0].sum() - rates[1] / rates[1].sum())
    phi = np.array(contrasts)
    solution = linprog(
        sample.distances,
        A_eq=(1 - 2 * decided) * phi,
        b_eq=-(phi @ decided),
        bounds=(0, 1),
        method="highs",
    )
    if solution.fun is None:
        raise SystemExit(f"HiGHS: {solution.message}")
    return float(solution.fun)


def measure_projection(scale: Scale, say: Say) -> list[Claim]:
    """Compare with HiGHS, then run alone by size in processes of their own."""
    return [
        *_against_highs(scale=scale, say=say),
        *_by_size(scale=scale, say=say),
    ]


def _against_highs(*, scale: Scale, say: Say) -> list[Claim]:
    """HiGHS solves small samples first, and the largest unless it would take eight minutes."""
    seconds: dict[int, float] = {}
    differences = []
    sizes = scale.pick(
        full=(5_000, 10_000, 20_000, _COMPARED),
        quick=(2_000, 4_000, 8_000),
        smoke=(600, 800, 1_000),
    )
    ours = _seconds(synthetic_boundary(_COMPARED), rounds=scale.pick(full=3, quick=3, smoke=1))
    for n in sizes:
        if n == _COMPARED and _extrapolated(seconds) > _LONGEST:
            continue
        say(f"HiGHS, {n:,} rows")
        sample = synthetic_boundary(n)
        started = time.perf_counter()
        peer = linear_program(sample)
        seconds[n] = time.perf_counter() - started
        differences.append(abs(sample.test() - peer) / peer)
        ours += _seconds(synthetic_boundary(_COMPARED), rounds=1)
    measured = seconds.get(_COMPARED)
    total = _extrapolated(seconds) if measured is None else measured
    ratio = PairedRatio(ratios=tuple(total / own for own in ours))
    details = ratio.details | {"seconds": statistics.median(ours), "seconds of HiGHS": total}
    if measured is None:
        times = ", ".join(f"{n:,}: {one:.2f} s" for n, one in seconds.items())
        details["extrapolated"] = f"HiGHS, as a power of the rows, from {times}"
    return [
        Claim(
            claim=f"equalized odds, {_COMPARED:,} rows, with p-value and explanation",
            figure=ratio.median,
            unit="× linprog (HiGHS)",
            side="at least",
            bar=1_000,
            rounds=len(ours),
            details=details,
        ),
        Claim(
            claim="difference between both statistics",
            figure=max(differences),
            unit="of the statistic",
            side="at most",
            bar=1e-6,
            rounds=len(differences),
        ),
    ]


def _extrapolated(seconds: dict[int, float]) -> float:
    """Time at `_COMPARED` rows, by a line through the logarithms."""
    slope, start = _line(seconds)
    return math.exp(start + slope * math.log(_COMPARED))


def _line(seconds: Mapping[int, float] | Mapping[float, float]) -> tuple[float, float]:
    slope, start = np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)
    return float(slope), float(start)


def _by_size(*, scale: Scale, say: Say) -> list[Claim]:
    """Run every size in processes of their own; claims are about the largest."""
    sizes = scale.pick(
        full=[10**5, 3 * 10**5, 10**6, 3 * 10**6, _LARGE],
        quick=[10**4, 10**5, 10**6],
        smoke=[_TINY, 2 * _TINY],
    )
    runs: dict[int, list[dict[str, float]]] = {n: [] for n in sizes}
    rounds = scale.pick(full=3, quick=1, smoke=1)
    for number in range(rounds):
        for n in sizes:
            say(f"equalized odds, {n:,} rows, round {number + 1} of {rounds}")
            runs[n].append(_in_a_process(n))
    seconds = {n: _median(one, "seconds") for n, one in runs.items()}
    cpu = {n: _median(one, "cpu") for n, one in runs.items()}
    peaks = {n: max(run["peak"] for run in one) for n, one in runs.items()}
    _print(seconds, cpu, peaks)
    # t = c (N log N)^e; CPU time, which other processes do not affect.
    slope, _ = _line({n * math.log(n): used for n, used in cpu.items()})
    largest = sizes[-1]
    data = f"equalized odds, {largest:,} rows"
    return [
        Claim(
            claim=f"{data}, with p-value and explanation",
            figure=seconds[largest],
            unit="s",
            side="at most",
            bar=10,
            rounds=rounds,
            details={"CPU s": cpu[largest]},
        ),
        Claim(
            claim=f"{data}, peak memory with the rows",
            figure=peaks[largest],
            unit="GiB",
            side="at most",
            bar=4,
            rounds=rounds,
            details={"before the test": _median(runs[largest], "before")},
        ),
        Claim(
            claim=f"growth from {sizes[0]:,} to {largest:,} rows",
            figure=slope,
            unit="as a power of N log N",
            side="at most",
            bar=1.05,
            rounds=rounds * len(sizes),
        ),
    ]


def _seconds(sample: Boundary, *, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        sample.test()
        times.append(time.perf_counter() - started)
    return times


def _in_a_process(n: int) -> dict[str, float]:
    command = [sys.executable, "-m", _RUN, str(n)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _median(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _print(seconds: dict[int, float], cpu: dict[int, float], peaks: dict[int, float]) -> None:
    table = Table(title="Equalized odds by projection, by size")
    for heading in ("rows", "s", "CPU s", "CPU ns per row", "CPU ns per row / log N", "peak GiB"):
        table.add_column(heading, justify="right")
    for n, used in cpu.items():
        per_row = 1e9 * used / n
        table.add_row(
            *(f"{n:,}", f"{seconds[n]:.3f}", f"{used:.3f}", f"{per_row:.0f}"),
            *(f"{per_row / math.log(n):.2f}", f"{peaks[n]:.2f}"),
        )
    print_wide(table)
