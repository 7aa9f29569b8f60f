"""A complete log that tests share and must not change."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_audit import Window
from tests.oracle.window import joined_rows
from tests.traffic_logs import START, outcome_rows, traffic_rows, write_outcomes, write_traffic

SINCE = START + dt.timedelta(minutes=40)
UNTIL = START + dt.timedelta(hours=3, minutes=10)


@dataclass(frozen=True, kw_only=True)
class KnownLog:
    """A log and its rows."""

    log: Path
    outcomes: Path
    traffic: pa.Table
    outcome_rows: pa.Table
    rows: list[dict[str, Any]]


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> KnownLog:
    """Two thousand predictions over four hours; the window covers two and a half."""
    root = tmp_path_factory.mktemp("known")
    traffic = traffic_rows(2_000)
    outcomes = outcome_rows(traffic)
    write_traffic(root / "log", traffic)
    write_outcomes(root / "outcomes", outcomes)
    rows = joined_rows(traffic, outcomes, SINCE, UNTIL)
    return KnownLog(
        log=root / "log",
        outcomes=root / "outcomes",
        traffic=traffic,
        outcome_rows=outcomes,
        rows=rows,
    )


@pytest.fixture(scope="session")
def window(known: KnownLog) -> Iterator[Window]:
    """A window of the log."""
    with Window.read(known.log, known.outcomes, SINCE, UNTIL) as opened:
        yield opened
