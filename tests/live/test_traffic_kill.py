"""A killed sidecar loses no row that it responded to, and logs no row twice."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from monitor import AsyncClient
from monitor.client import EndpointError
from monitor.traffic.store import Store
from tests.live.log_sidecar import PATIENCE, ROOT, Preloaded
from tests.live.sidecar import Fitted
from tests.serving import NAMES, PEOPLE
from tests.spooling import entries, hidden_files, logged, lost_counts, segments

pytestmark = pytest.mark.live

# `KILL_ROUNDS=200` runs more; writers without a server are killed fifteen times as often.
ROUNDS = int(os.environ.get("KILL_ROUNDS", "20"))
CLIENTS = 6
# Including more rows than a batch has.
SIZES = (1, 1, 1, 2, 5, 40, 600)
CONFIG: dict[str, dict[str, Any]] = {
    "traffic": {
        "roll_bytes": 1 << 16,
        "roll_seconds": 0.4,
        # Long enough that no row is lost on a busy machine.
        "max_write_seconds": 60,
    },
    "drift": {"enabled": False},
}
# Request id, rows sent, and logits received.
Response = tuple[str, np.ndarray, np.ndarray]


def assert_ledger_holds(home: Path) -> None:
    """Every file is listed once, with its size, digest and number of rows."""
    store = Store.open(home)
    listed = [file for entry in entries(home) for file in entry.files]
    stored = store.files(suffix=".parquet")
    assert {f.path: f.bytes for f in listed} == {f.path: f.bytes for f in stored}
    assert len(listed) == len(stored)
    assert all(store.sha256(file.path) == file.sha256 for file in listed)
    assert sum(file.rows for file in listed) == len(logged(home))


def killed_spool(*arguments: object) -> dict[str, Any]:
    """Result of the script `killed_spool.py`, which kills writers."""
    command = [sys.executable, "-m", "tests.live.killed_spool", *map(str, arguments)]
    process = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=50 * ROUNDS
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout)


def test_writers_killed_hundreds_of_times_lose_no_acknowledged_row(tmp_path):
    rounds = 15 * ROUNDS
    result = killed_spool("rounds", tmp_path, rounds, 20260301)
    expected = Counter(
        (name, row, value) for name, rows, value in result["reported"] for row in range(rows)
    )
    rows = Counter(logged(tmp_path))
    assert set(rows.values()) == {1}
    assert expected - rows == {}
    # At most one unreported request per killed writer.
    assert len({name for name, _, _ in rows - expected}) <= rounds
    assert_ledger_holds(tmp_path)
    assert segments(tmp_path) == []
    assert hidden_files(tmp_path) == []
    assert set(lost_counts(tmp_path)) <= {"torn"}
    # Not vacuous: most were killed with segments to recover, and some within a compaction.
    assert len(expected) > 10 * rounds
    assert result["with_segments"] > 0.8 * rounds
    assert result["with_drafts"] > 0.02 * rounds


def test_a_compaction_killed_at_any_step_is_completed_exactly_once_after_recovery(tmp_path):
    steps = killed_spool("steps", tmp_path)["steps"]
    # Two files and a ledger entry, each written, synced and renamed.
    assert steps > 30
    for step in range(steps):
        home = tmp_path / f"step-{step:04d}"
        assert sorted(logged(home)) == [(f"r{n}", 0, float(n)) for n in range(4)], step
        assert len(entries(home)) == 1
        assert_ledger_holds(home)
        assert segments(home) == []
        assert hidden_files(home) == []


@contextmanager
def replacements(bundle: Fitted, folder: Path, home: Path) -> Iterator[Iterator[Preloaded]]:
    """Sidecars that are used one after another; the next one loads while one serves."""
    config = {**CONFIG, "traffic": {**CONFIG["traffic"], "path": str(home)}}
    processes = [Preloaded(bundle, folder / "0", config)]

    def successive_sidecars() -> Iterator[Preloaded]:
        for n in itertools.count(1):
            processes.append(Preloaded(bundle, folder / str(n), config))
            yield processes[-2]

    try:
        yield successive_sidecars()
    finally:
        for sidecar in processes:
            sidecar.end()


async def load(endpoint: str, name: str, rng: random.Random, responses: list[Response]) -> None:
    """Send requests one after another until the sidecar is gone."""
    async with AsyncClient(endpoint, model="lending", timeout=PATIENCE) as client:
        for n in itertools.count():
            first = rng.randrange(2_000)
            rows = PEOPLE.features[first : first + rng.choice(SIZES)]
            try:
                prediction = await client.predict(
                    rows, request_id=f"{name}-{n}" if rng.random() < 0.5 else ""
                )
            except EndpointError as error:
                # A client of a killed sidecar gets no other status.
                if error.status in ("UNAVAILABLE", "UNKNOWN"):
                    return
                raise
            responses.append((prediction.request_id, rows, prediction.output.reshape(-1)))


async def killed_under_load(sidecar: Preloaded, round_: int, seconds: float) -> list[Response]:
    """All responses of a sidecar until it is killed."""
    responses: list[Response] = []
    endpoint = sidecar.serve()
    rngs = [random.Random(f"{round_}-{index}") for index in range(CLIENTS)]  # noqa: S311
    clients = [
        asyncio.create_task(load(endpoint, f"c{round_}-{index}", rng, responses))
        for index, rng in enumerate(rngs)
    ]
    await asyncio.sleep(seconds)
    sidecar.process.send_signal(signal.SIGKILL)
    await asyncio.gather(*clients)
    assert sidecar.process.wait() == -signal.SIGKILL
    return responses


def test_a_sidecar_killed_under_load_loses_no_row_that_it_responded_to(uncompiled, tmp_path):
    home, rng = tmp_path / "log", random.Random(7)  # noqa: S311
    responses: list[Response] = []
    recovered = 0
    with replacements(uncompiled, tmp_path, home) as sidecars:
        for round_ in range(ROUNDS):
            sidecar = next(sidecars)
            seconds = 0.1 + 1.4 * rng.random()
            responses += asyncio.run(killed_under_load(sidecar, round_, seconds))
            recovered += "segments to recover" in sidecar.log
            assert sidecar.errors == ""
        last = next(sidecars)
        last.serve()
        last.process.send_signal(signal.SIGTERM)
        assert last.process.wait(PATIENCE) == 0
    assert_all_are_logged_once(home, responses)
    assert_ledger_holds(home)
    assert segments(home) == []
    assert hidden_files(home) == []
    assert set(lost_counts(home)) <= {"torn"}
    assert len(responses) > 10 * ROUNDS
    assert recovered >= ROUNDS - 1


def assert_all_are_logged_once(home: Path, responses: list[Response]) -> None:
    """Every response is logged once, with the rows sent and the logits received."""
    assert len({name for name, _, _ in responses}) == len(responses)
    expected = {
        (name, row): (*values, logit)
        for name, rows, logits in responses
        for row, (values, logit) in enumerate(zip(rows.tolist(), logits.tolist(), strict=True))
    }
    logged_values: dict[tuple[str, int], tuple[float, ...]] = {}
    for file in Store.open(home).files(suffix=".parquet"):
        table = pq.read_table(io.BytesIO((home / file.path).read_bytes()))
        columns = [table[column].to_pylist() for column in ("request_id", "row", *NAMES, "logit")]
        for name, row, *values in zip(*columns, strict=True):
            assert (name, row) not in logged_values, "a row is logged twice"
            logged_values[name, row] = tuple(values)
    missing = expected.keys() - logged_values.keys()
    assert not missing, f"{len(missing)} of {len(expected)} rows are not in the log"
    assert all(logged_values[key] == values for key, values in expected.items())
