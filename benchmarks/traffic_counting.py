"""Time to count a window, compared with SQL written by hand for the same files.

Every count runs in a process of its own, so that its peak memory can be measured. The files are
read once before, so that no count waits for the disk.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.claims import Claim, PairedRatio, Say, Scale, print_wide
from benchmarks.traffic_count_run import SPARK
from benchmarks.traffic_log import LargeLog, large_log

__all__ = ["Count", "measure_counting"]

_ROOT = Path(__file__).parents[1]
_WINDOW, _SQL, _VERIFIED, _SPARK = "window", "sql", "verified", "spark"
_NAMES = {
    _WINDOW: "evenhand's window",
    _SQL: "DuckDB, SQL by hand",
    _VERIFIED: "evenhand's window, hashes checked",
}
_ALONE, _JOINED = "predictions alone", "joined with outcomes"
_SPARK_ROWS = 1_000_000
_MOST, _MOST_GIB = 1.3, 4.0
# Timeout of one count.
_SECONDS = 3600
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Result of one count.

    Attributes:
        seconds: Time from listing the files to the counts.
        peak: Peak resident memory in GiB.
        counts: Number of rows by groups, label and decision.
    """

    seconds: float
    peak: float
    counts: list[list[Any]]


Counted = Mapping[str, list[Count]]


def measure_counting(scale: Scale, say: Say) -> list[Claim]:
    """Count a large log, and a smaller one on Spark; print every row and return the claims."""
    rows, rounds = scale.pick(full=(100_000_000, 3), quick=(10_000_000, 2), smoke=(20_000, 1))
    log = large_log(rows, say)
    say("reading the files once")
    _read_once(log.home)
    results = {}
    for source, outcomes in ((_ALONE, False), (_JOINED, True)):
        results[source] = _counted(log, rounds, say, outcomes=outcomes)
        _check(source, log, results[source])
    print_wide(_table(results, log))
    claims = [
        claim for source, counted in results.items() for claim in _claims(source, counted, log)
    ]
    return claims + _spark_claims(large_log(min(rows, _SPARK_ROWS), say), say)


def _counted(log: LargeLog, rounds: int, say: Say, *, outcomes: bool) -> Counted:
    """Alternate the order in every round; the verified count runs once."""
    results: dict[str, list[Count]] = {kind: [] for kind in _NAMES}
    for number in range(rounds):
        for kind in (_WINDOW, _SQL) if number % 2 == 0 else (_SQL, _WINDOW):
            say(f"counting {log.rows:,} rows: {_NAMES[kind]}, round {number + 1} of {rounds}")
            results[kind].append(_run(kind, log, outcomes=outcomes))
    say(f"counting {log.rows:,} rows: {_NAMES[_VERIFIED]}")
    results[_VERIFIED].append(_run(_VERIFIED, log, outcomes=outcomes))
    return results


def _run(kind: str, log: LargeLog, *, outcomes: bool) -> Count:
    arguments = [log.since.isoformat(), log.until.isoformat(), log.traffic]
    arguments += [log.outcomes] * outcomes
    command = [sys.executable, "-m", "benchmarks.traffic_count_run", kind, *map(str, arguments)]
    done = subprocess.run(
        command, check=False, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SystemExit(f"{kind}: counting {log.rows:,} rows failed: {last}")
    return Count(**json.loads(done.stdout.splitlines()[-1]))


def _read_once(home: Path) -> None:
    for file in home.rglob("*.parquet"):
        with file.open("rb") as opened:
            while opened.read(_CHUNK):
                pass


def _check(source: str, log: LargeLog, counted: Counted) -> None:
    """Fail unless all counts are equal and complete."""
    all_counts = [count.counts for counts in counted.values() for count in counts]
    if any(counts != all_counts[0] for counts in all_counts):
        raise SystemExit(f"{source}: the counts differ")
    if sum(cell[-1] for cell in all_counts[0]) != log.rows:
        raise SystemExit(f"{source}: the counts do not sum to {log.rows:,} rows")


def _table(results: Mapping[str, Counted], log: LargeLog) -> Table:
    table = Table("count", title=f"{log.rows:,} predictions, {log.gib:.1f} GiB with outcomes")
    for heading in ("s", "lowest", "highest", "million rows/s", "peak GiB", "× SQL"):
        table.add_column(heading, justify="right")
    for source, counted in results.items():
        table.add_section()
        table.add_row(f"[bold]{source}[/bold]")
        sql = statistics.median(count.seconds for count in counted[_SQL])
        for kind, counts in counted.items():
            seconds = [count.seconds for count in counts]
            median = statistics.median(seconds)
            table.add_row(
                _NAMES[kind],
                *(f"{value:.2f}" for value in (median, min(seconds), max(seconds))),
                f"{log.rows / median / 1e6:.1f}",
                f"{max(count.peak for count in counts):.2f}",
                f"{median / sql:.2f}",
            )
    return table


def _claims(source: str, counted: Counted, log: LargeLog) -> list[Claim]:
    ours, sql = counted[_WINDOW], counted[_SQL]
    pairs = zip(ours, sql, strict=True)
    ratio = PairedRatio(ratios=tuple(one.seconds / other.seconds for one, other in pairs))
    return [
        Claim(
            claim=f"time to count {log.rows:,} rows, {source}",
            figure=ratio.median,
            unit="× SQL by hand",
            side="at most",
            bar=_MOST,
            rounds=len(ours),
            details=ratio.details
            | {
                "seconds": statistics.median(count.seconds for count in ours),
                "with hashes checked": counted[_VERIFIED][0].seconds,
            },
        ),
        Claim(
            claim=f"peak memory of counting, {source}",
            figure=max(count.peak for count in ours),
            unit="GiB",
            side="at most",
            bar=_MOST_GIB,
            rounds=len(ours),
            details={
                "SQL": max(count.peak for count in sql),
                "with hashes checked": counted[_VERIFIED][0].peak,
            },
        ),
    ]


def _spark_claims(log: LargeLog, say: Say) -> list[Claim]:
    """Empty if Spark is not installed."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        print(f"without Spark: {error}")
        return []
    say(f"counting {log.rows:,} rows on Spark")
    spark, duckdb = (_run(kind, log, outcomes=True) for kind in (_SPARK, _WINDOW))
    differing = {tuple(cell) for cell in spark.counts} ^ {tuple(cell) for cell in duckdb.counts}
    return [
        Claim(
            claim=f"cells that differ on Spark, {log.rows:,} rows joined with outcomes",
            figure=len(differing),
            unit="cells",
            side="at most",
            bar=0,
            rounds=1,
            details={
                "cells": len(duckdb.counts),
                "Spark": SPARK,
                "seconds with start-up": spark.seconds,
            },
        )
    ]
