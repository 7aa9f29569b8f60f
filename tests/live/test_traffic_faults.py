"""Faults of the disk: predictions continue, and lost rows are counted."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from monitor import AsyncClient
from monitor.traffic.retention import used_bytes
from monitor.traffic.spool import ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store
from tests.live.log_sidecar import (
    PATIENCE,
    Preloaded,
    assert_logged,
    in_process,
    send_requests,
)
from tests.live.sidecar import MODEL, sidecar, start
from tests.serving import PEOPLE, without_model
from tests.spooling import Row, entries, logged, lost_counts, moment

pytestmark = pytest.mark.live


class Disk:
    """Replacement of `os.write` that can fail for segments of the log.

    Attributes:
        fault: Fault of a write to a segment; "" for none.
        n_faults: Number of writes with a fault.
    """

    def __init__(self) -> None:
        self.fault, self.n_faults = "", 0
        self.go = threading.Event()
        self._real = os.write

    def write(self, handle: int, data: bytes) -> int:
        """Write, or fail."""
        if not self.fault or Path(f"/proc/self/fd/{handle}").readlink().suffix != ".segment":
            return self._real(handle, data)
        self.n_faults += 1
        if self.fault == "hang":
            assert self.go.wait(PATIENCE)
            return self._real(handle, data)
        if self.fault == "short":
            return self._real(handle, data[: len(data) // 3])
        code = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code))


@pytest.fixture
def disk(monkeypatch):
    faulty = Disk()
    monkeypatch.setattr(os, "write", faulty.write)
    yield faulty
    faulty.go.set()


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "EACCES", "EROFS", "short"])
@pytest.mark.parametrize("bound", [60, None], ids=["bounded", "unbounded"])
def test_rows_written_during_a_disk_error_are_lost_and_counted(
    uncompiled, tmp_path, disk, fault, bound
):
    async def use(server, client):
        before = await send_requests(client, 10, rows=2)
        disk.fault = fault
        unlogged = await send_requests(client, 7, rows=3)
        disk.fault = ""
        assert server._traffic.lost == {"disk": len(unlogged)}
        return before, unlogged, await send_requests(client, 10)

    traffic = {"path": tmp_path, "max_write_seconds": bound}
    before, unlogged, after = in_process(uncompiled, use, traffic=traffic)
    assert disk.n_faults >= 7
    assert len(unlogged) == 21
    assert_logged(tmp_path, before + after)
    assert lost_counts(tmp_path) == {"disk": 21}


def test_a_disk_error_from_the_first_row_on_does_not_stop_responses(uncompiled, tmp_path, disk):
    disk.fault = "ENOSPC"

    async def use(server, client):
        unlogged = await send_requests(client, 5)
        assert server._traffic.lost == {"disk": 5}
        disk.fault = ""
        return unlogged

    assert len(in_process(uncompiled, use, traffic={"path": tmp_path})) == 5
    assert logged(tmp_path) == []
    assert lost_counts(tmp_path) == {"disk": 5}


def test_a_hanging_write_delays_one_response_by_at_most_its_bound(uncompiled, tmp_path, disk):
    async def use(server, client):
        before = await send_requests(client, 5)
        disk.fault = "hang"
        started = time.monotonic()
        late = await send_requests(client, 1, rows=2)
        waited = time.monotonic() - started
        unlogged = await send_requests(client, 30, rows=2)
        duration = time.monotonic() - started - waited
        log = server._traffic
        assert 0.2 <= waited < 5
        # No other request waited for it; otherwise they would take at least six seconds.
        assert duration < 30 * 0.2
        assert (log.late, log.lost) == (1, {"slow": len(unlogged)})
        disk.fault = ""
        disk.go.set()
        # The late row is written as soon as the disk responds, and is not counted as lost.
        while log.spool.appender.rows < len(before) + len(late):
            await asyncio.sleep(0.01)
        after = await send_requests(client, 5)
        assert log.lost == {"slow": len(unlogged)}
        return before + late + after, unlogged

    traffic = {"path": tmp_path, "max_write_seconds": 0.2}
    expected, unlogged = in_process(uncompiled, use, traffic=traffic)
    assert disk.n_faults == 1
    assert_logged(tmp_path, expected)
    assert lost_counts(tmp_path) == {"slow": len(unlogged)}


def test_no_row_is_lost_when_the_clock_jumps_back(uncompiled, tmp_path, monkeypatch):
    jumps = [moment(2026, 3, 1, 12), moment(2026, 2, 1, 3), moment(2026, 3, 1, 11)]

    async def use(server, client):
        expected = []
        for jump in jumps:
            monkeypatch.setattr("time.time_ns", lambda at=jump: at)
            expected += await send_requests(client, 5)
        return expected

    expected = in_process(uncompiled, use, traffic={"path": tmp_path})
    assert_logged(tmp_path, expected)
    folders = {Path(f.path).parent for f in Store.open(tmp_path).files(suffix=".parquet")}
    assert sorted(f"{folder.parent.name}/{folder.name}" for folder in folders) == [
        "date=2026-02-01/hour=03",
        "date=2026-03-01/hour=11",
        "date=2026-03-01/hour=12",
    ]
    assert lost_counts(tmp_path) == {}


def test_a_second_sidecar_on_a_directory_is_rejected_and_the_first_continues(uncompiled, tmp_path):
    config = {"traffic": {"path": str(tmp_path / "log")}}

    async def load(endpoint: str) -> list[Row]:
        async with AsyncClient(endpoint, model=MODEL) as client:
            return await send_requests(client, 20)

    with sidecar(uncompiled, tmp_path / "first", config) as first:
        expected = asyncio.run(load(first.grpc))
        process, out, err = start(uncompiled, tmp_path / "second", config)
        assert process.wait(PATIENCE) == 2
        stderr = err.read_text()
        path = tmp_path / "log"
        assert f"error: traffic.path: {path}: another process writes to this directory;" in stderr
        assert "Traceback" not in stderr
        assert out.read_text() == ""
        expected += asyncio.run(load(first.grpc))
    assert_logged(tmp_path / "log", expected)
    assert lost_counts(tmp_path / "log") == {}


@pytest.mark.parametrize("when_full", ["drop_oldest", "stop"])
def test_the_disk_quota_is_respected_and_lost_rows_are_counted(
    uncompiled, tmp_path, when_full, monkeypatch
):
    monkeypatch.setattr("monitor.traffic.spool._TICK", 0.02)
    traffic = {
        "path": tmp_path,
        "max_bytes": 1 << 20,
        "when_full": when_full,
        "roll_bytes": 1 << 16,
        "roll_seconds": 0.3,
    }

    async def use(server, client):
        rng, sent, usage, log = np.random.default_rng(1), [], [], server._traffic
        # Noise, which does not compress.
        for _ in range(60):
            rows = PEOPLE.features[:200] + rng.normal(size=(200, 25)).astype(np.float32)
            predictions = await client.predict(rows)
            sent += [(predictions.request_id, row) for row in range(200)]
            usage.append(used_bytes(Store.open(tmp_path)))
            # Give the spool time to evict files, since so small a quota fills fast.
            end = time.monotonic() + 10 * (when_full == "drop_oldest")
            while log.spool.appender.used > 0.9 * (1 << 20) and time.monotonic() < end:
                await asyncio.sleep(0.01)
        return sent, usage, log.lost, log.spool

    sent, usage, counted, spool = in_process(uncompiled, use, traffic=traffic)
    rows = [(name, row) for name, row, _ in logged(tmp_path)]
    assert len(rows) == len(set(rows))
    # During compaction both the segment and its Parquet file use the disk.
    assert max(usage) < (1 << 20) + (1 << 18)
    removed = [f for e in entries(tmp_path) for f in e.files if f.removed]
    assert len(sent) == 60 * 200 == len(rows) + sum(f.rows for f in removed) + counted.total()
    assert lost_counts(tmp_path) == dict(counted)
    assert set(counted) <= {"full"}
    if when_full == "stop":
        assert not removed
        assert counted["full"] > 0
        assert set(rows) < set(sent)
    else:
        assert {f.removed for f in removed} == {"quota"}
        assert spool.removed_rows == sum(f.rows for f in removed) > 0
        assert not counted
        assert set(rows) == set(sent[-len(rows) :])


def metric(url: str, series: str) -> float:
    lines = without_model(httpx.get(f"{url}/metrics").text).splitlines()
    (value,) = (line.rpartition(" ")[2] for line in lines if line.startswith(f"{series} "))
    return float(value)


def test_a_full_disk_does_not_stop_predictions(uncompiled, tmp_path, skip_or_fail):
    """On a small file system, which another file fills and frees."""
    mount = tmp_path / "disk"
    mount.mkdir()
    trial = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    if subprocess.run(trial, check=False, capture_output=True).returncode:
        skip_or_fail("mounting a disk in a namespace of its own is not permitted")
    script = f'mount -t tmpfs -o size=3m tmpfs "{mount}" && exec "$@"'
    config = {
        "traffic": {"path": str(mount / "log"), "roll_seconds": 0.5, "max_write_seconds": 60},
        "drift": {"enabled": False},
    }
    prefix = ["unshare", "--mount", "sh", "-c", script, "sh"]
    process = Preloaded(uncompiled, tmp_path / "sidecar", config, prefix)
    try:
        endpoint = process.serve()
        url = re.findall(r"REST +(http://\S+)", process.log)[0]
        # The file system as the sidecar sees it.
        inside = Path(f"/proc/{process.process.pid}/root{mount}")
        expected, sent_while_full, counted = asyncio.run(filled_and_freed(endpoint, url, inside))
        request = inside / "log" / SEGMENTS / ROLL_REQUEST
        request.touch()
        end = time.monotonic() + PATIENCE
        while request.exists() and time.monotonic() < end:
            time.sleep(0.1)
        home = tmp_path / "copy"
        shutil.copytree(inside / "log", home)
        process.process.terminate()
        assert process.process.wait(PATIENCE) == 0
    finally:
        process.end()
    rows = Counter(logged(home))
    assert set(rows.values()) == {1}
    assert rows <= Counter(expected + sent_while_full)
    assert Counter(expected) <= rows
    missing = len(expected) + len(sent_while_full) - len(rows)
    assert counted == missing > 0
    assert lost_counts(home) == {"disk": missing}


async def filled_and_freed(
    endpoint: str, url: str, inside: Path
) -> tuple[list[Row], list[Row], float]:
    """Rows sent while the disk had space, rows sent while it was full, and rows counted as lost."""
    series = 'evenhand_traffic_lost_rows_total{cause="disk"}'
    async with AsyncClient(endpoint, model=MODEL) as client:
        expected = await send_requests(client, 20, rows=5)
        with (inside / "ballast").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 12)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
        sent_while_full = await send_requests(client, 200, rows=20)
        assert metric(url, series) > 0
        (inside / "ballast").unlink()
        counted = metric(url, series)
        expected += await send_requests(client, 20, rows=5)
        assert metric(url, series) == counted
    return expected, sent_while_full, counted


def test_a_read_only_directory_does_not_stop_predictions(uncompiled, tmp_path, skip_or_fail):
    """Not even root can create a file in an immutable directory."""
    home = tmp_path / "log"
    folder = home / SEGMENTS
    folder.mkdir(parents=True)

    def chattr(flag: str) -> bool:
        process = subprocess.run(["chattr", flag, folder], check=False, capture_output=True)
        return process.returncode == 0

    if not (chattr("+i") and chattr("-i")):
        skip_or_fail("directories cannot be made immutable here")

    async def use(server, client):
        before = await send_requests(client, 5)
        server._traffic.spool.appender.roll()
        assert chattr("+i")
        try:
            unlogged = await send_requests(client, 6, rows=2)
        finally:
            chattr("-i")
        assert server._traffic.lost == {"disk": 12} == {"disk": len(unlogged)}
        return before + await send_requests(client, 5)

    expected = in_process(uncompiled, use, traffic={"path": home})
    assert_logged(home, expected)
    assert lost_counts(home) == {"disk": 12}


def test_a_failure_to_record_groups_does_not_lose_traffic(uncompiled, tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("something of a person")

    async def use(server, client):
        monkeypatch.setattr(server._traffic._outcomes, "record_requests", fail)
        expected = await send_requests(client, 5)
        assert not server._traffic.lost
        return expected

    parts = {"traffic": {"path": tmp_path / "log"}, "outcomes": {"path": tmp_path / "outcomes"}}
    expected = in_process(uncompiled, use, **parts)
    assert_logged(tmp_path / "log", expected)
    assert lost_counts(tmp_path / "log") == {}
