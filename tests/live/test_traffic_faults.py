"""Disks that are full, hang, refuse or spoil things: predictions go on, losses are counted."""

from __future__ import annotations

import asyncio
import errno
import os
import random
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
from monitor.traffic.segment import read_segment
from monitor.traffic.spool import ROLL_REQUEST, SEGMENTS
from monitor.traffic.store import Store
from tests.live.log_sidecar import PATIENCE, Preloaded, asked, uncompiled_bundle
from tests.live.sidecar import sidecar, start
from tests.serving import PEOPLE, running
from tests.spooling import Row, entries, logged, lost, moment, segments, spooling

pytestmark = pytest.mark.live

MODEL = "lending"


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory):
    return uncompiled_bundle(tmp_path_factory.mktemp("uncompiled"))


class Disk:
    """The log's disk as `os.write` finds it, which can be made to fail.

    Attributes:
        fault: What a write to a segment does: "" for what it ought to.
        hit: Writes that met with a fault.
    """

    def __init__(self) -> None:
        self.fault, self.hit = "", 0
        self.go = threading.Event()
        self._real = os.write

    def write(self, handle: int, data: bytes) -> int:
        """In place of `os.write`."""
        if not self.fault or Path(f"/proc/self/fd/{handle}").readlink().suffix != ".segment":
            return self._real(handle, data)
        self.hit += 1
        if self.fault == "hang":
            assert self.go.wait(PATIENCE)
            return self._real(handle, data)
        if self.fault == "short":
            return self._real(handle, data[: len(data) // 3])
        code = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code))


@pytest.fixture
def disk(monkeypatch):
    found = Disk()
    monkeypatch.setattr(os, "write", found.write)
    yield found
    found.go.set()


def serve(bundle, use, **parts):
    """Serve in this process, and use the server and a client of it."""

    async def run():
        async with (
            running(bundle.path, **parts) as server,
            AsyncClient(f"127.0.0.1:{server.grpc.port}", model=MODEL) as client,
        ):
            return await use(server, client)

    return asyncio.run(run())


def assert_logged(home: Path, expected: list[Row]) -> None:
    rows = Counter(logged(home))
    assert rows == Counter(expected)
    assert set(rows.values()) <= {1}


@pytest.mark.parametrize("fault", ["ENOSPC", "EIO", "EACCES", "EROFS", "short"])
@pytest.mark.parametrize("bound", [60, None], ids=["bounded", "unbounded"])
def test_a_disk_that_refuses_costs_the_rows_that_came_meanwhile_and_they_are_counted(
    uncompiled, tmp_path, disk, fault, bound
):
    async def use(server, client):
        before = await asked(client, 10, rows=2)
        disk.fault = fault
        gone = await asked(client, 7, rows=3)
        disk.fault = ""
        assert server._traffic.lost == {"disk": len(gone)}
        return before, gone, await asked(client, 10)

    traffic = {"path": tmp_path, "max_write_seconds": bound}
    before, gone, after = serve(uncompiled, use, traffic=traffic)
    assert disk.hit >= 7
    assert len(gone) == 21
    assert_logged(tmp_path, before + after)
    assert lost(tmp_path) == {"disk": 21}


def test_a_disk_that_refuses_from_the_first_row_on_keeps_no_answer_back(uncompiled, tmp_path, disk):
    disk.fault = "ENOSPC"

    async def use(server, client):
        gone = await asked(client, 5)
        assert server._traffic.lost == {"disk": 5}
        disk.fault = ""
        return gone

    assert len(serve(uncompiled, use, traffic={"path": tmp_path})) == 5
    assert logged(tmp_path) == []
    assert lost(tmp_path) == {"disk": 5}


def test_a_write_that_hangs_holds_up_one_answer_for_as_long_as_it_may(uncompiled, tmp_path, disk):
    async def use(server, client):
        before = await asked(client, 5)
        disk.fault = "hang"
        started = time.monotonic()
        late = await asked(client, 1, rows=2)
        waited = time.monotonic() - started
        gone = await asked(client, 30, rows=2)
        took = time.monotonic() - started - waited
        log = server._traffic
        assert 0.2 <= waited < 5
        # None of the others waited for it, or they had taken six seconds at least.
        assert took < 30 * 0.2
        assert (log.late, log.lost) == (1, {"slow": len(gone)})
        disk.fault = ""
        disk.go.set()
        # The late one is in the segment as soon as the disk takes it, and was never lost.
        while log.spool.appender.rows < len(before) + len(late):
            await asyncio.sleep(0.01)
        after = await asked(client, 5)
        assert log.lost == {"slow": len(gone)}
        return before + late + after, gone

    traffic = {"path": tmp_path, "max_write_seconds": 0.2}
    kept, gone = serve(uncompiled, use, traffic=traffic)
    assert disk.hit == 1
    assert_logged(tmp_path, kept)
    assert lost(tmp_path) == {"slow": len(gone)}


def test_a_clock_that_jumps_back_loses_nothing(uncompiled, tmp_path, monkeypatch):
    jumps = [moment(2026, 3, 1, 12), moment(2026, 2, 1, 3), moment(2026, 3, 1, 11)]

    async def use(server, client):
        expected = []
        for jump in jumps:
            monkeypatch.setattr("time.time_ns", lambda at=jump: at)
            expected += await asked(client, 5)
        return expected

    expected = serve(uncompiled, use, traffic={"path": tmp_path})
    assert_logged(tmp_path, expected)
    folders = {Path(f.path).parent for f in Store.open(tmp_path).files(suffix=".parquet")}
    assert sorted(f"{folder.parent.name}/{folder.name}" for folder in folders) == [
        "date=2026-02-01/hour=03",
        "date=2026-03-01/hour=11",
        "date=2026-03-01/hour=12",
    ]
    assert lost(tmp_path) == {}


def test_a_second_sidecar_on_a_folder_is_refused_and_the_first_unharmed(uncompiled, tmp_path):
    config = {"traffic": {"path": str(tmp_path / "log")}}

    async def load(endpoint: str) -> list[Row]:
        async with AsyncClient(endpoint, model=MODEL) as client:
            return await asked(client, 20)

    with sidecar(uncompiled, tmp_path / "first", config) as first:
        expected = asyncio.run(load(first.grpc))
        process, out, err = start(uncompiled, tmp_path / "second", config)
        assert process.wait(PATIENCE) == 2
        said = err.read_text()
        path = tmp_path / "log"
        assert f"error: traffic.path: {path}: another process writes to this directory;" in said
        assert "Traceback" not in said
        assert out.read_text() == ""
        expected += asyncio.run(load(first.grpc))
    assert_logged(tmp_path / "log", expected)
    assert lost(tmp_path / "log") == {}


@pytest.fixture(scope="module")
def crashed(uncompiled, tmp_path_factory) -> Path:
    """A folder with the segment of a sidecar that was killed."""
    home = tmp_path_factory.mktemp("crashed") / "log"
    one = Preloaded(uncompiled, home.parent / "sidecar", {"traffic": {"path": str(home)}})

    async def load(endpoint: str) -> None:
        async with AsyncClient(endpoint, model=MODEL) as client:
            for rows in (1, 3, 2, 5, 1, 4):
                await asked(client, 1, rows=rows)

    try:
        asyncio.run(load(one.serve()))
    finally:
        one.end()
    return home


def places(data: bytes) -> list[tuple[str, int]]:
    """Places in a segment, of every kind of byte that there is, drawn with a fixed seed."""
    rng = random.Random(3)  # noqa: S311
    header = data.index(b"EVHR")
    heads = [found.start() for found in re.finditer(b"EVHR", data)]
    chosen = [("first header", rng.randrange(header // 2)) for _ in range(4)]
    chosen += [("second header", rng.randrange(header // 2, header)) for _ in range(4)]
    chosen += [("head", start + rng.randrange(37)) for start in heads[:-1]]
    chosen += [("payload", start + rng.randrange(37, 150)) for start in heads]
    return [*chosen, ("last head", heads[-1] + 9), ("tail", len(data) - 1)]


def records_of(data: bytes) -> list[tuple[int, int, int]]:
    """Where each record begins and ends, and how many rows it holds."""
    segment = read_segment(data)
    ends = [len(data) - len(data[data.index(bytes(r.payload)) :]) for r in segment.records]
    return [
        (begin - 37, begin + len(r.payload), r.rows)
        for begin, r in zip(ends, segment.records, strict=True)
    ]


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_a_segment_that_was_spoiled_gives_all_rows_but_those_that_were_hit(crashed, tmp_path, how):
    (source,) = segments(crashed)
    data = source.read_bytes()
    records = records_of(data)
    assert len(records) == 6
    for n, (kind, place) in enumerate(places(data)):
        home = tmp_path / str(n)
        shutil.copytree(crashed, home)
        spoiled = data[:place] if how == "cut" else spoilt(data, place)
        segments(home)[0].write_bytes(spoiled)
        with spooling(home):
            pass
        if how == "cut":
            hit = [rows for begin, end, rows in records if begin < place < end]
            good = sum(rows for _, end, rows in records if end <= place)
            # Where not even the head of a record is left, there was one row in it at least.
            known = [r for b, e, r in records if b + 37 <= place < e] or [1] * len(hit)
        else:
            hit = known = [rows for begin, end, rows in records if begin <= place < end]
            good = sum(rows for *_, rows in records) - sum(hit)
            known = [1] if kind == "last head" else known
        assert len(logged(home)) == good, (kind, place)
        told = sum(lost(home).values())
        assert sum(known) <= told <= max(sum(hit), sum(known)), (kind, place)
        assert set(lost(home)) <= {"torn", "damaged"}


def spoilt(data: bytes, place: int) -> bytes:
    """With one bit the other way round."""
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def test_a_spoiled_file_is_left_where_it_is_and_the_ledger_tells(uncompiled, tmp_path):
    async def use(server, client):
        return await asked(client, 5)

    serve(uncompiled, use, traffic={"path": tmp_path})
    (file,) = entries(tmp_path)[0].files
    path = tmp_path / file.path
    spoiled = spoilt(path.read_bytes(), file.bytes // 2)
    path.write_bytes(spoiled)
    serve(uncompiled, use, traffic={"path": tmp_path})
    assert path.read_bytes() == spoiled
    assert Store.open(tmp_path).sha256(file.path) != file.sha256
    assert sum(entry.rows for entry in entries(tmp_path)) == 10


@pytest.mark.parametrize("when_full", ["drop_oldest", "stop"])
def test_a_budget_is_kept_and_what_it_costs_is_counted(
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
        rng, answered, room, log = np.random.default_rng(1), [], [], server._traffic
        # Noise, which no compression makes small.
        for _ in range(60):
            rows = PEOPLE.features[:200] + rng.normal(size=(200, 25)).astype(np.float32)
            found = await client.predict(rows)
            answered += [(found.request_id, row) for row in range(200)]
            room.append(used_bytes(Store.open(tmp_path)))
            # So small a budget is soon full between two looks of the keeper.
            end = time.monotonic() + 10 * (when_full == "drop_oldest")
            while log.spool.appender.used > 0.9 * (1 << 20) and time.monotonic() < end:
                await asyncio.sleep(0.01)
        return answered, room, log.lost, log.spool

    answered, room, counted, spool = serve(uncompiled, use, traffic=traffic)
    rows = [(name, row) for name, row, _ in logged(tmp_path)]
    assert len(rows) == len(set(rows))
    # A compaction needs the room of its file once more before its segment goes.
    assert max(room) < (1 << 20) + (1 << 18)
    gone = [f for e in entries(tmp_path) for f in e.files if f.removed]
    assert len(answered) == 60 * 200 == len(rows) + sum(f.rows for f in gone) + counted.total()
    assert lost(tmp_path) == dict(counted)
    assert set(counted) <= {"full"}
    if when_full == "stop":
        assert not gone
        assert counted["full"] > 0
        assert set(rows) < set(answered)
    else:
        assert {f.removed for f in gone} == {"quota"}
        assert spool.removed_rows == sum(f.rows for f in gone) > 0
        assert not counted
        assert set(rows) == set(answered[-len(rows) :])


def metric(url: str, series: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (value,) = (line.rpartition(" ")[2] for line in lines if line.startswith(f"{series} "))
    return float(value)


def test_a_disk_that_is_really_full_stops_no_prediction(uncompiled, tmp_path, lacking):
    """A small disk of its own, which something else fills up and leaves again."""
    mount = tmp_path / "disk"
    mount.mkdir()
    trial = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    if subprocess.run(trial, check=False, capture_output=True).returncode:
        lacking("mounting a disk in a namespace of its own is not permitted")
    words = f'mount -t tmpfs -o size=3m tmpfs "{mount}" && exec "$@"'
    config = {
        "traffic": {"path": str(mount / "log"), "roll_seconds": 0.5, "max_write_seconds": 60},
        "drift": {"enabled": False},
    }
    prefix = ["unshare", "--mount", "sh", "-c", words, "sh"]
    one = Preloaded(uncompiled, tmp_path / "sidecar", config, prefix)
    try:
        endpoint = one.serve()
        url = re.findall(r"REST +(http://\S+)", one.said)[0]
        # As the sidecar sees it.
        inside = Path(f"/proc/{one.process.pid}/root{mount}")
        expected, gone, counted = asyncio.run(filled_and_freed(endpoint, url, inside))
        request = inside / "log" / SEGMENTS / ROLL_REQUEST
        request.touch()
        end = time.monotonic() + PATIENCE
        while request.exists() and time.monotonic() < end:
            time.sleep(0.1)
        home = tmp_path / "copy"
        shutil.copytree(inside / "log", home)
        one.process.terminate()
        assert one.process.wait(PATIENCE) == 0
    finally:
        one.end()
    rows = Counter(logged(home))
    assert set(rows.values()) == {1}
    assert rows <= Counter(expected + gone)
    assert Counter(expected) <= rows
    missing = len(expected) + len(gone) - len(rows)
    assert counted == missing > 0
    assert lost(home) == {"disk": missing}


async def filled_and_freed(
    endpoint: str, url: str, inside: Path
) -> tuple[list[Row], list[Row], float]:
    """Rows from when there was room, from when there was none, and how many were counted."""
    series = 'evenhand_traffic_lost_rows_total{cause="disk"}'
    async with AsyncClient(endpoint, model=MODEL) as client:
        expected = await asked(client, 20, rows=5)
        with (inside / "ballast").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 12)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017
        gone = await asked(client, 200, rows=20)
        assert metric(url, series) > 0
        (inside / "ballast").unlink()
        counted = metric(url, series)
        expected += await asked(client, 20, rows=5)
        assert metric(url, series) == counted
    return expected, gone, counted


def test_a_folder_that_may_no_longer_be_written_to_stops_no_prediction(
    uncompiled, tmp_path, lacking
):
    """Not even root creates a file in a folder that was made immutable."""
    home = tmp_path / "log"
    folder = home / SEGMENTS
    folder.mkdir(parents=True)

    def chattr(flag: str) -> bool:
        done = subprocess.run(["chattr", flag, folder], check=False, capture_output=True)
        return done.returncode == 0

    if not (chattr("+i") and chattr("-i")):
        lacking("folders cannot be made immutable here")

    async def use(server, client):
        before = await asked(client, 5)
        server._traffic.spool.appender.roll()
        assert chattr("+i")
        try:
            gone = await asked(client, 6, rows=2)
        finally:
            chattr("-i")
        assert server._traffic.lost == {"disk": 12} == {"disk": len(gone)}
        return before + await asked(client, 5)

    expected = serve(uncompiled, use, traffic={"path": home})
    assert_logged(home, expected)
    assert lost(home) == {"disk": 12}


def test_groups_that_cannot_be_recorded_are_no_loss_of_traffic(uncompiled, tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("something of a person")

    async def use(server, client):
        monkeypatch.setattr(server._traffic._outcomes, "record_protected_features", fail)
        expected = await asked(client, 5)
        assert not server._traffic.lost
        return expected

    parts = {"traffic": {"path": tmp_path / "log"}, "outcomes": {"path": tmp_path / "outcomes"}}
    expected = serve(uncompiled, use, **parts)
    assert_logged(tmp_path / "log", expected)
    assert lost(tmp_path / "log") == {}
