"""Count a log in a process of its own, for `benchmarks.traffic`.

    python -m benchmarks.traffic_count_run <kind> <since> <until> <log> [<outcomes>]

Prints JSON: seconds from listing the files to the counts, the peak resident memory in GiB, and the
counts by groups, label and decision.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peak_memory import peak_gib

__all__ = ["KINDS", "SPARK", "Query"]

_ATTRIBUTES = ("sex", "ethnicity")
# Memory limit of DuckDB, as in a window.
_MEMORY = "3GB"
SPARK = "local-cluster[2,1,1024]"

# Groups, label, decision, number of rows.
Counts = list[list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Predictions of a span of time to count, with or without outcomes."""

    since: dt.datetime
    until: dt.datetime
    log: Path
    outcomes: Path | None

    @property
    def arguments(self) -> tuple[Path, Path | None, dt.datetime, dt.datetime]:
        """Arguments of `Window.read`."""
        return self.log, self.outcomes, self.since, self.until


def _window(query: Query, *, verify: bool = False) -> Counts:
    from offline_audit import Window

    with Window.read(*query.arguments, verify=verify) as window:
        return _cells(window.counts(_ATTRIBUTES))


def _verified(query: Query) -> Counts:
    return _window(query, verify=True)


def _sql(query: Query) -> Counts:
    """SQL written by hand for these files; the latest value of every field counts."""
    import duckdb

    with (
        tempfile.TemporaryDirectory() as spill,
        duckdb.connect(
            config={
                "memory_limit": _MEMORY,
                "temp_directory": spill,
                "preserve_insertion_order": False,
            }
        ) as engine,
    ):
        statement = _COUNT if query.outcomes is None else _JOINED_COUNT
        return _sorted(engine.execute(statement.format(**dataclasses.asdict(query))).fetchall())


_COUNT = """
SELECT NULL, NULL, NULL, decision, count(*)
FROM read_parquet('{log}/model=*/**/*.parquet', hive_partitioning = false)
WHERE time >= TIMESTAMPTZ '{since}' AND time < TIMESTAMPTZ '{until}'
GROUP BY decision
"""
# One number has the same order as the pair of times, and needs less memory.
_JOINED_COUNT = """
WITH outcomes AS (
  SELECT *, epoch_us(observed_at)::HUGEINT * 18446744073709551616 + epoch_us(received_at) AS moment
  FROM read_parquet('{outcomes}/model=*/*/*.parquet', hive_partitioning = false)
), known AS (
  SELECT
    request_id, row,
    arg_max(label, moment) AS label,
    arg_max(group_sex, moment) AS group_sex,
    arg_max(group_ethnicity, moment) AS group_ethnicity
  FROM outcomes GROUP BY request_id, row
)
SELECT group_sex, group_ethnicity, label, decision, count(*)
FROM read_parquet('{log}/model=*/**/*.parquet', hive_partitioning = false)
LEFT JOIN known USING (request_id, row)
WHERE time >= TIMESTAMPTZ '{since}' AND time < TIMESTAMPTZ '{until}'
GROUP BY ALL
"""


def _spark(query: Query) -> Counts:
    with tempfile.TemporaryDirectory() as home:
        return _count_on_spark(_spark_home(Path(home)), query)


def _spark_home(home: Path) -> Path:
    """A Spark home for this count alone, since executors leave files in it."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    for part in ("bin", "jars"):
        (home / part).symlink_to(installed / part)
    return home


def _count_on_spark(home: Path, query: Query) -> Counts:
    from pyspark.sql import SparkSession

    from offline_audit import Engine, Window

    os.environ["SPARK_HOME"] = str(home)
    session = (
        SparkSession.builder.master(SPARK)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "16")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    try:
        with (
            Engine.spark(session) as engine,
            Window.read(*query.arguments, engine=engine, verify=False) as window,
        ):
            return _cells(window.counts(_ATTRIBUTES))
    finally:
        session.stop()


KINDS: dict[str, Callable[[Query], Counts]] = {
    "window": _window,
    "verified": _verified,
    "sql": _sql,
    "spark": _spark,
}


def _cells(counts: Any) -> Counts:
    return _sorted([(*c.groups, c.label, c.decision, c.rows) for c in counts.cells])


def _sorted(rows: list[tuple[Any, ...]]) -> Counts:
    """Sort; unknown values come last."""
    return [list(row) for row in sorted(rows, key=lambda row: [(v is None, v) for v in row])]


if __name__ == "__main__":
    kind, since, until, log, *outcomes = sys.argv[1:]
    query = Query(
        since=dt.datetime.fromisoformat(since),
        until=dt.datetime.fromisoformat(until),
        log=Path(log),
        outcomes=Path(outcomes[0]) if outcomes else None,
    )
    # Imports are not measured.
    for module in (
        ("duckdb",) if kind == "sql" else ("offline_audit.window", "ibis.backends.duckdb")
    ):
        import_module(module)
    started = time.perf_counter()
    counts = KINDS[kind](query)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak": peak_gib(), "counts": counts}))
