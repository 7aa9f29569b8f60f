"""The traffic log in object storage, shared by several sidecars and temporarily unavailable."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.peers import PeerUnavailableError, peer_python
from monitor import AsyncClient
from monitor.traffic.erasure import LogLocation, erase
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.retention import expire
from monitor.traffic.store import Store
from offline_audit import Window
from tests.live.log_sidecar import PATIENCE, send_requests
from tests.live.object_storage import (
    BUCKET,
    KEY,
    SECRET,
    Fault,
    address,
    faulty_proxy,
    moto,
)
from tests.live.sidecar import sidecar
from tests.serving import running
from tests.spooling import Row, entries, logged, lost_counts, payload, segments, spooling

pytestmark = pytest.mark.live

# Segments are rolled after 0.2 seconds.
TRAFFIC = {"roll_seconds": 0.2, "max_write_seconds": 60}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture(scope="module")
def storage(request, tmp_path_factory):
    """The port of moto's server."""
    try:
        python = peer_python("moto")
    except PeerUnavailableError as error:
        required = request.config.getoption("--require-components")
        (pytest.fail if required else pytest.skip)(str(error))
    with moto(python, tmp_path_factory.mktemp("moto")) as port:
        yield port


@pytest.fixture
def proxy(storage, monkeypatch):
    """Object storage that fails on request, with short timeouts."""
    monkeypatch.setattr("monitor.traffic.store._REQUEST_SECONDS", 1.0)
    monkeypatch.setattr("monitor.traffic.spool._LONGEST_PAUSE", 1.0)
    with faulty_proxy(storage) as running_proxy:
        yield running_proxy


def assert_whole(store: Store) -> None:
    """The ledger lists every file of the store with its digest."""
    listed = [file for entry in entries(store) for file in entry.files]
    stored = store.files(suffix=".parquet")
    assert sorted(file.path for file in listed) == [file.path for file in stored]
    assert all(store.sha256(file.path) == file.sha256 for file in listed)


def assert_holds_once(store: Store, expected: list[Row]) -> None:
    rows = Counter(logged(store))
    assert rows == Counter(expected)
    assert set(rows.values()) == {1}
    assert_whole(store)


def test_two_sidecars_share_a_prefix_without_collisions(uncompiled, storage, tmp_path, monkeypatch):
    """The usual setup: the URI names the bucket, and environment variables set the rest."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{storage}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    async def load(endpoints: list[str]) -> list[Row]:
        clients = [AsyncClient(e, model="lending", timeout=PATIENCE) for e in endpoints]
        batches = await asyncio.gather(
            *(send_requests(c, 150, rows=2) for c in clients for _ in range(2))
        )
        await asyncio.gather(*(client.close() for client in clients))
        return [row for batch in batches for row in batch]

    with ExitStack() as stack:
        replicas = []
        for name in ("one", "two"):
            traffic = {**TRAFFIC, "path": str(tmp_path / name / "log")}
            config = {"traffic": {**traffic, "store": f"s3://{BUCKET}/replicas"}}
            replica = stack.enter_context(sidecar(uncompiled, tmp_path / name, config))
            assert f"s3://{BUCKET}/replicas" in replica.err.read_text()
            replicas.append(replica)
        expected = asyncio.run(load([replica.grpc for replica in replicas]))
    store = Store.open(address(storage, "replicas"))
    assert_holds_once(store, expected)
    # Each has at least one ledger entry in the store, and no segment left locally.
    assert len({entry.segment.split("-")[1] for entry in entries(store)}) == 2
    assert not segments(tmp_path / "one" / "log")
    assert not segments(tmp_path / "two" / "log")
    assert lost_counts(store) == {}
    assert all(SECRET not in r.log + r.out.read_text() for r in replicas)


@pytest.mark.parametrize("fault", [fault for fault in get_args(Fault) if fault != "none"])
def test_predictions_continue_while_the_store_fails_and_rows_are_stored_once_later(
    uncompiled, storage, proxy, tmp_path, caplog, fault
):
    home, prefix = tmp_path / "log", f"faults-{fault}"
    traffic = {**TRAFFIC, "path": home, "store": address(proxy.port, prefix)}
    direct = Store.open(address(storage, prefix))

    async def run() -> list[Row]:
        expected = []
        async with (
            running(uncompiled.path, traffic=traffic) as server,
            AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client,
        ):
            expected += await send_requests(client, 20)
            proxy.fail(fault)
            started = time.monotonic()
            slowest = 0.0
            while time.monotonic() - started < 3 or proxy.failed < 2:
                request_started = time.monotonic()
                expected += await send_requests(client, 1, rows=3)
                slowest = max(slowest, time.monotonic() - request_started)
                await asyncio.sleep(0.02)
                assert time.monotonic() - started < PATIENCE
            # No response waits for the store, whose timeouts take seconds.
            assert slowest < 1.0
            if fault != "slow":
                assert segments(home)
            partial = await asyncio.to_thread(stored_rows, direct)
            assert partial <= Counter(expected)
            proxy.heal()
            expected += await send_requests(client, 20)
        return expected

    with caplog.at_level(logging.DEBUG):
        expected = asyncio.run(run())
    assert_holds_once(direct, expected)
    assert not segments(home)
    assert lost_counts(direct) == {}
    assert SECRET not in caplog.text


def stored_rows(store: Store) -> Counter[Row]:
    """All rows of the store; fails if a file is incomplete."""
    return Counter(logged(store))


def test_an_upload_whose_source_fails_creates_no_file(storage, tmp_path, monkeypatch):
    store = Store.open(address(storage, "partial"))
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    real_open = Path.open

    class Failing:
        """A file whose reads fail after the first megabyte."""

        def __init__(self, file) -> None:
            self._file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._file.close()

        def read(self, size: int = -1) -> bytes:
            if size < 0 or self._file.tell():
                raise OSError("the disk fails")
            return self._file.read(min(size, 1 << 20))

    def open_failing(path: Path, mode: str = "r", *rest, **more):
        file = real_open(path, mode, *rest, **more)
        return Failing(file) if path == source else file

    monkeypatch.setattr(Path, "open", open_failing)
    with pytest.raises(OSError, match="the disk fails"):
        store.put_file("one.parquet", source)
    assert store.files() == []


def test_a_sidecar_stops_in_time_while_its_store_hangs_and_the_next_one_stores_the_rest(
    uncompiled, storage, proxy, tmp_path
):
    location = address(proxy.port, "hung")
    config = {
        "traffic": {**TRAFFIC, "path": str(tmp_path / "log"), "store": location},
        "server": {"drain_seconds": 1},
    }

    async def load(endpoint: str) -> list[Row]:
        async with AsyncClient(endpoint, model="lending") as client:
            return await send_requests(client, 30)

    with sidecar(uncompiled, tmp_path / "first", config) as first:
        proxy.fail("hang")
        expected = asyncio.run(load(first.grpc))
        end = time.monotonic() + 20
        while not proxy.failed and time.monotonic() < end:
            time.sleep(0.05)
        stopping = time.monotonic()
        first.process.terminate()
        assert first.process.wait(PATIENCE) == 0
        assert time.monotonic() - stopping < 20
    assert segments(tmp_path / "log")
    assert SECRET not in first.log + first.out.read_text()
    proxy.heal()
    with sidecar(uncompiled, tmp_path / "second", {**config, "server": {}}) as second:
        assert "to recover" in second.err.read_text()
    assert_holds_once(Store.open(address(storage, "hung")), expected)


def test_a_sidecar_starts_although_its_store_is_down(uncompiled, tmp_path):
    """Also if the URI does not name the region."""
    locations = [address(1, "down"), f"s3://{BUCKET}/down"]

    async def run(location: str, home: Path) -> tuple[str, list[Row]]:
        traffic = {**TRAFFIC, "path": home, "store": location}
        async with (
            running(uncompiled.path, traffic=traffic, server={"drain_seconds": 0.5}) as server,
            AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client,
        ):
            return server.introduction, await send_requests(client, 5)

    for n, location in enumerate(locations):
        introduction, expected = asyncio.run(run(location, tmp_path / str(n)))
        assert len(expected) == 5
        assert segments(tmp_path / str(n))
        assert f"{BUCKET}/down" in introduction
        assert SECRET not in introduction


def test_spools_of_many_processes_never_overwrite_each_other(storage, tmp_path):
    """Their segments start in the same second, and differ in name only by the process."""
    store = Store.open(address(storage, "many"))
    expected = []
    with ExitStack() as stack:
        spools = [stack.enter_context(spooling(tmp_path / str(n), store)) for n in range(4)]
        for n, spool in enumerate(spools):
            for m in range(3):
                name = f"{n}-{m}"
                assert spool.appender.write(payload((name, [1.0, 2.0])), 2)
                expected += [(name, 0, 1.0), (name, 1, 2.0)]
                spool.appender.roll()
    assert len(entries(store)) == 12
    assert_holds_once(store, expected)


def test_windows_erasure_and_expiry_work_in_a_bucket_as_in_a_directory(storage, tmp_path):
    stores = [Store.open(tmp_path / "log"), Store.open(address(storage, "read"))]
    for store in stores:
        with spooling(tmp_path / f"home-{store.is_local}", store) as spool:
            data = payload(*((f"r{n}", [float(n)]) for n in range(30)))
            assert spool.appender.write(data, 30)
    results = []
    for store in stores:
        with Window.read(store.location) as window:
            assert window.provenance.complete
            results.append(
                (window.counts().cells, window.sample(5, seed=1)["request_id"].to_pylist())
            )
    assert results[0] == results[1]
    bucket = stores[1]
    receipt = erase("r7", [LogLocation(store=bucket)], Pseudonyms(None))
    assert (receipt.complete, receipt.rows) == (True, 1)
    assert len(logged(bucket)) == 29
    assert_whole(bucket)
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    expired = expire(bucket, tomorrow)
    # Erasure records expire together with the files.
    assert (expired.files, expired.rows) == (2, 29)
    assert bucket.files(suffix=".parquet") == []
