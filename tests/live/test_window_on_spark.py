"""DuckDB and Spark compute the same statistics of a log of a million rows."""

from __future__ import annotations

import datetime as dt
import importlib.util
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from offline_audit import Engine, Window
from offline_audit.errors import EngineError
from tests.traffic_logs import (
    START,
    outcome_rows,
    traffic_columns,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

pytestmark = [
    pytest.mark.live,
    # Py4J's sockets are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ROWS = 1_000_000
# Each query runs once, so optimizing compilation and parallel collection do not pay off.
BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
UNTIL = START + dt.timedelta(hours=5)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same window on both engines."""

    duckdb: Window
    spark: Window

    def agree(self, query: Callable[[Window], Any]) -> Any:
        duckdb_result, spark_result = query(self.duckdb), query(self.spark)
        assert duckdb_result == spark_result
        return duckdb_result


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    """A million rows of two versions with different columns, and contradictory outcomes."""
    root = tmp_path_factory.mktemp("million")
    older = traffic_columns("age", attributes=("sex",), hashed=("age",))
    early = traffic_rows(
        10_000, seed=3, columns=older, since=START - dt.timedelta(hours=2), hours=2
    )
    write_traffic(root / "log", early, columns=older, segment="s0", version="0")
    rows = traffic_rows(ROWS - 10_000)
    write_traffic(root / "log", rows, version="1")
    write_traffic(root / "log", rows.slice(0, 1_000), segment="twice", version="1")
    write_outcomes(root / "outcomes", outcome_rows(rows, share=0.2))
    strangers = outcome_rows(traffic_rows(500, seed=8))
    write_outcomes(root / "outcomes", strangers, segment="strangers")
    return root


@pytest.fixture(scope="module")
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A Spark master with two executors, each a process of its own."""
    needed = {
        "pyspark": importlib.util.find_spec("pyspark") is not None,
        "java": shutil.which("java") is not None,
    }
    if not all(needed.values()):
        missing = ", ".join(name for name, available in needed.items() if not available)
        required = request.config.getoption("--require-components")
        (pytest.fail if required else pytest.skip)(f"Spark lacks {missing}")
    import pyspark
    from pyspark.sql import SparkSession

    # Executors write files to SPARK_HOME, which would be the installed package.
    home, installed = tmp_path_factory.mktemp("spark"), Path(pyspark.__file__).parent
    for part in ("bin", "jars"):
        (home / part).symlink_to(installed / part)
    patch = pytest.MonkeyPatch()
    patch.setenv("SPARK_HOME", str(home))
    spark_session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", BRIEF_JVM)
        .config("spark.executor.extraJavaOptions", BRIEF_JVM)
        .config("spark.executor.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .getOrCreate()
    )
    spark_session.sparkContext.setLogLevel("ERROR")
    yield spark_session
    spark_session.stop()
    patch.undo()


@pytest.fixture(scope="module")
def pair(logs: Path, session: Any) -> Iterator[Pair]:
    options: dict[str, Any] = {"until": UNTIL, "verify": False}
    log, outcomes = logs / "log", logs / "outcomes"
    with (
        Engine.spark(session) as engine,
        Window.read(log, outcomes, **options) as duckdb,
        Window.read(log, outcomes, engine=engine, **options) as spark,
    ):
        yield Pair(duckdb=duckdb, spark=spark)


def test_counts_agree(pair):
    counts = pair.agree(lambda w: w.counts(["sex", "ethnicity", ("sex", "ethnicity")]))
    assert counts.rows == ROWS + 1_000
    assert len(counts.of("sex", "ethnicity").cells) == 3 * 4 * 3 * 2


def test_verdicts_and_actions_agree(pair):
    assert sum(pair.agree(lambda w: w.verdicts()).actions.values()) == ROWS + 1_000


def test_histograms_agree(pair):
    histogram = pair.agree(lambda w: w.score_histogram("ethnicity", bins=37))
    assert sum(sum(bars.counts) + bars.missing for bars in histogram.bars) == ROWS + 1_000


def test_samples_are_the_same_rows(pair):
    sample = pair.agree(lambda w: w.sample(50, ("sex", "decision", "label"), seed=4).to_pylist())
    assert len(sample) == 3 * 2 * 3 * 50


def test_facts_of_the_provenance_agree(pair):
    rows = pair.agree(lambda w: w.provenance.rows)
    outcomes = pair.agree(lambda w: w.provenance.outcome_facts)
    assert (rows.rows, rows.duplicated) == (ROWS + 1_000, 1_000)
    assert outcomes.without_prediction > 300
    assert all(outcomes.conflicts.values())
    assert str(pair.duckdb.provenance) == str(pair.spark.provenance)
    assert pair.duckdb.provenance.to_dict() == pair.spark.provenance.to_dict()


def test_batches_have_the_same_rows(logs, session):
    """Of 90 seconds only, since Spark sends rows to the driver one by one."""
    options: dict[str, Any] = {"until": START + dt.timedelta(seconds=90), "verify": False}
    results = []
    with Engine.spark(session) as spark:
        for engine in (None, spark):
            with Window.read(
                logs / "log", logs / "outcomes", START, engine=engine, **options
            ) as window:
                batches = list(window.batches(["request_id", "time", "score", "label"], size=999))
            assert max(batch.num_rows for batch in batches) <= 999 or engine is None
            rows = (tuple(row.values()) for batch in batches for row in batch.to_pylist())
            results.append(Counter(rows))
    assert results[0] == results[1]
    assert results[0].total() > 5_000


def test_an_empty_window_is_empty_on_spark(logs, session):
    with Engine.spark(session) as engine:
        far = START + dt.timedelta(days=99)
        with Window.read(logs / "log", logs / "outcomes", far, engine=engine) as window:
            assert window.counts().cells == ()
            assert "The window has no predictions." in window.provenance.warnings


def test_a_failure_of_spark_raises_our_error(tmp_path, session):
    entry = write_traffic(tmp_path, traffic_rows(10, hours=1))
    with Engine.spark(session) as engine, Window.read(tmp_path, engine=engine) as window:
        (tmp_path / entry.files[0].path).unlink()
        with pytest.raises(EngineError, match="Spark failed"):
            window.counts("sex")
