"""Cost of the sidecar: requests per second, CPU time per request, latency, memory.

Every server is started once, pinned to one core, and loaded by h2load from another core. The order
of the servers alternates, and ratios are taken within a round. Requests are `[1, d]`, raw, over
gRPC.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.claims import Claim, PairedRatio, Say, Scale, report
from benchmarks.kernel_subjects import LARGE, SMALL
from benchmarks.serving_load import STREAMS, h2load_installed, on_cores
from benchmarks.serving_rows import INLINE, OFF, UNCOUNTED, Row, start_rows
from benchmarks.serving_servers import Fleet
from benchmarks.serving_subjects import ServedSubject, served_subject
from benchmarks.serving_timing import Figure, Timing, take_timing

# Number of outstanding requests that claims are about.
_CLAIMED = 64
_MOST_GROWTH_MIB = 5.0
_LATENCIES: tuple[Figure, Figure] = ("p50", "p99")


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time all servers with both networks; print every row and return the claims."""
    cores = sorted(os.sched_getaffinity(0))
    if scale is not Scale.SMOKE and (len(cores) == 1 or not h2load_installed()):
        raise SystemExit("two cores and h2load (Debian: nghttp2-client) are needed")
    torch.set_num_threads(1)
    claims: list[Claim] = []
    timings: dict[str, dict[int, Timing]] = {}
    with on_cores(cores[:1]):
        for shape in (SMALL,) if scale.small else (SMALL, LARGE):
            with (
                tempfile.TemporaryDirectory() as folder,
                Fleet(Path(folder), starts_on=cores, stays_on=cores[-1]) as fleet,
            ):
                say(f"preparing {shape.name}")
                subject = served_subject(shape, Path(folder))
                say(f"starting servers of {shape.name}")
                rows = start_rows(
                    fleet,
                    subject,
                    Path(folder),
                    all_peers=scale is not Scale.QUICK,
                    install=scale is not Scale.SMOKE,
                )
                timings[shape.name] = _time(subject, rows, say, scale=scale)
                if shape is SMALL:
                    say("measuring memory growth")
                    claims.append(_memory(rows[INLINE], scale=scale))
                for row in rows.values():
                    row.check()
    Console().print(_table(timings))
    return [*_claims(timings), *claims]


def _time(
    subject: ServedSubject, rows: dict[str, Row], say: Say, *, scale: Scale
) -> dict[int, Timing]:
    timings = {}
    for outstanding in (1, _CLAIMED) if scale.small else STREAMS:
        say(f"{subject.name}, {outstanding} outstanding")
        timings[outstanding] = take_timing(
            rows,
            outstanding=outstanding,
            rounds=scale.pick(full=11, quick=5, smoke=1),
            seconds=scale.pick(full=0.7, quick=0.4, smoke=0.05),
            warm=scale.pick(full=200, quick=200, smoke=10),
        )
    return timings


def _memory(row: Row, *, scale: Scale) -> Claim:
    """Growth of the resident memory from the first tenth of the requests to the last."""
    tenth = scale.pick(full=100_000, quick=2_000, smoke=20)
    resident = []
    for _ in range(10):
        row.load(outstanding=_CLAIMED, requests=tenth)
        resident.append(row.server.resident_mib)
    return Claim(
        claim=f"resident memory of evenhand over {10 * tenth:,} requests, growth after a tenth",
        figure=resident[-1] - resident[0],
        unit="MiB",
        side="at most",
        bar=_MOST_GROWTH_MIB,
        rounds=1,
        details={"MiB after each tenth": ", ".join(f"{mib:.1f}" for mib in resident)},
    )


def _table(timings: dict[str, dict[int, Timing]]) -> Table:
    headings = ("requests/s", "CPU µs", "p50 ms", "p99 ms", "× MLServer", "CPU × off")
    table = Table("server", title="One core for the server, one core for the load")
    for heading in headings:
        table.add_column(heading, justify="right")
    for network, by_load in timings.items():
        for outstanding, timing in by_load.items():
            table.add_section()
            table.add_row(f"[bold]{network}, {outstanding} outstanding[/bold]")
            for name in timing.samples:
                table.add_row(name, *_cells(timing, name))
    return table


def _cells(timing: Timing, name: str) -> list[str]:
    """Medians; CPU time is per request, and the ratio to MLServer is of requests per second."""
    latencies = [timing.median(name, figure) for figure in _LATENCIES]
    to_mlserver = timing.mlserver and f"{timing.ratio(name, timing.mlserver, 'per_second'):.2f}"
    return [
        f"{timing.median(name, 'per_second'):,.0f}",
        f"{timing.median(name, 'cpu_us'):.0f}",
        *("" if math.isnan(ms) else f"{ms:.2f}" for ms in latencies),
        to_mlserver or "",
        f"{timing.ratio(name, OFF, 'cpu_us'):.2f}",
    ]


def _claims(timings: dict[str, dict[int, Timing]]) -> list[Claim]:
    claims = []
    for network, bar in ((SMALL.name, 1.1), (LARGE.name, 1.3)):
        if network not in timings:
            continue
        by_load = timings[network]
        claims += _against_mlserver(network, by_load)
        claims += [
            _at_most(
                f"CPU time per request with sensitivity, {network}, {_CLAIMED} outstanding",
                by_load, _CLAIMED, (INLINE, OFF, "cpu_us"), bar, "× off",
            ),
            _at_most(
                f"p50 with sensitivity, {network}, one outstanding",
                by_load, 1, (INLINE, OFF, "p50"), 1.2, "× off",
            ),
        ]  # fmt: skip
    metrics = _at_most(
        f"CPU time per request with metrics, {SMALL.name}, {_CLAIMED} outstanding",
        timings[SMALL.name], _CLAIMED, (INLINE, UNCOUNTED, "cpu_us"), 1.05, "× without",
    )  # fmt: skip
    return [*claims, metrics]


def _against_mlserver(network: str, by_load: dict[int, Timing]) -> list[Claim]:
    timing = by_load[_CLAIMED]
    if timing.mlserver is None:
        return []
    ratios = timing.ratios(INLINE, timing.mlserver, "per_second")
    details = {
        f"at {load}": t.ratio(INLINE, t.mlserver, "per_second")
        for load, t in by_load.items()
        if load != _CLAIMED and t.mlserver is not None
    }
    ratio = PairedRatio(ratios=tuple(ratios))
    return [
        Claim(
            claim=f"requests per second with sensitivity, {network}, {_CLAIMED} outstanding",
            figure=ratio.median,
            unit="× MLServer without",
            side="at least",
            bar=3,
            rounds=len(ratios),
            details=ratio.details
            | details
            | {"best MLServer": timing.mlserver, "CPU share of h2load": timing.busiest_client},
        )
    ]


def _at_most(
    claim: str,
    by_load: dict[int, Timing],
    outstanding: int,
    figures: tuple[str, str, Figure],
    bar: float,
    unit: str,
) -> Claim:
    ratio = PairedRatio(ratios=tuple(by_load[outstanding].ratios(*figures)))
    others = {
        f"at {load}": timing.ratio(*figures)
        for load, timing in by_load.items()
        if load != outstanding and figures[2] != "p50"
    }
    return Claim(
        claim=claim,
        figure=ratio.median,
        unit=unit,
        side="at most",
        bar=bar,
        rounds=len(ratio.ratios),
        details=ratio.details | others,
    )


if __name__ == "__main__":
    report("Serving", measure)
