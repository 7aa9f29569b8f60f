"""The traffic log in object storage: many sidecars share it, and it may fail for a while."""

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
from tests.spooling import Row, entries, logged, lost, payload, segments, spooling

pytestmark = pytest.mark.live

# Rolled at every tick of the keeper that finds something.
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
    except PeerUnavailableError as reason:
        needed = request.config.getoption("--require-components")
        (pytest.fail if needed else pytest.skip)(str(reason))
    with moto(python, tmp_path_factory.mktemp("moto")) as port:
        yield port


@pytest.fixture
def proxy(storage, monkeypatch):
    """Object storage that fails on request, with short timeouts."""
    monkeypatch.setattr("monitor.traffic.store._REQUEST_SECONDS", 1.0)
    monkeypatch.setattr("monitor.traffic.spool._LONGEST_PAUSE", 1.0)
    with faulty_proxy(storage) as found:
        yield found


def assert_whole(store: Store) -> None:
    """The ledger lists every file of the store, as it is there."""
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
    """As it is ordinarily set up: the address names the bucket, and variables say the rest."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{storage}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    async def load(endpoints: list[str]) -> list[Row]:
        clients = [AsyncClient(e, model="lending", timeout=PATIENCE) for e in endpoints]
        lots = await asyncio.gather(
            *(send_requests(c, 150, rows=2) for c in clients for _ in range(2))
        )
        await asyncio.gather(*(client.close() for client in clients))
        return [row for lot in lots for row in lot]

    with ExitStack() as stack:
        replicas = []
        for name in ("one", "two"):
            traffic = {**TRAFFIC, "path": str(tmp_path / name / "log")}
            config = {"traffic": {**traffic, "store": f"s3://{BUCKET}/replicas"}}
            found = stack.enter_context(sidecar(uncompiled, tmp_path / name, config))
            assert f"s3://{BUCKET}/replicas" in found.out.read_text()
            replicas.append(found)
        expected = asyncio.run(load([found.grpc for found in replicas]))
    store = Store.open(address(storage, "replicas"))
    assert_holds_once(store, expected)
    # Each has left an entry at least, and nothing at home.
    assert len({entry.segment.split("-")[1] for entry in entries(store)}) == 2
    assert not segments(tmp_path / "one" / "log")
    assert not segments(tmp_path / "two" / "log")
    assert lost(store) == {}
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
            begun = time.monotonic()
            slowest = 0.0
            while time.monotonic() - begun < 3 or proxy.failed < 2:
                one = time.monotonic()
                expected += await send_requests(client, 1, rows=3)
                slowest = max(slowest, time.monotonic() - one)
                await asyncio.sleep(0.02)
                assert time.monotonic() - begun < PATIENCE
            # An answer never waits for the store, which takes seconds to give up.
            assert slowest < 1.0
            if fault != "slow":
                assert segments(home)
            partial = await asyncio.to_thread(readable, direct)
            assert partial <= Counter(expected)
            proxy.heal()
            expected += await send_requests(client, 20)
        return expected

    with caplog.at_level(logging.DEBUG):
        expected = asyncio.run(run())
    assert_holds_once(direct, expected)
    assert not segments(home)
    assert lost(direct) == {}
    assert SECRET not in caplog.text


def readable(store: Store) -> Counter[Row]:
    """Every row of every file that is there, none of which is a part of one."""
    return Counter(logged(store))


def test_an_upload_whose_source_fails_creates_no_file(storage, tmp_path, monkeypatch):
    store = Store.open(address(storage, "partial"))
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    real = Path.open

    class Failing:
        """A file on a disk that fails within it."""

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

    def opened(path: Path, mode: str = "r", *rest, **more):
        file = real(path, mode, *rest, **more)
        return Failing(file) if path == source else file

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(OSError, match="the disk fails"):
        store.put_file("one.parquet", source)
    assert store.files() == []


def test_a_sidecar_stops_in_time_while_its_store_hangs_and_the_next_one_stores_the_rest(
    uncompiled, storage, proxy, tmp_path
):
    place = address(proxy.port, "hung")
    config = {
        "traffic": {**TRAFFIC, "path": str(tmp_path / "log"), "store": place},
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
        assert "to recover" in second.out.read_text()
    assert_holds_once(Store.open(address(storage, "hung")), expected)


def test_a_sidecar_starts_although_its_store_is_down(uncompiled, tmp_path):
    """Also where the address leaves the region to be found out."""
    places = [address(1, "down"), f"s3://{BUCKET}/down"]

    async def run(place: str, home: Path) -> tuple[str, list[Row]]:
        traffic = {**TRAFFIC, "path": home, "store": place}
        async with (
            running(uncompiled.path, traffic=traffic, server={"drain_seconds": 0.5}) as server,
            AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client,
        ):
            return server.introduction, await send_requests(client, 5)

    for n, place in enumerate(places):
        introduction, expected = asyncio.run(run(place, tmp_path / str(n)))
        assert len(expected) == 5
        assert segments(tmp_path / str(n))
        assert f"{BUCKET}/down" in introduction
        assert SECRET not in introduction


def test_spools_of_many_processes_never_overwrite_each_other(storage, tmp_path):
    """Each begins at the same second, with segments that are called alike but for the process."""
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
    found = []
    for store in stores:
        with Window.read(store.location) as window:
            assert window.provenance.complete
            found.append(
                (window.counts().cells, window.sample(5, seed=1)["request_id"].to_pylist())
            )
    assert found[0] == found[1]
    bucket = stores[1]
    receipt = erase("r7", [LogLocation(store=bucket)], Pseudonyms(None))
    assert (receipt.complete, receipt.rows) == (True, 1)
    assert len(logged(bucket)) == 29
    assert_whole(bucket)
    tomorrow = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)
    expired = expire(bucket, tomorrow)
    # Who was erased is forgotten with what they were erased from.
    assert (expired.files, expired.rows) == (2, 29)
    assert bucket.files(suffix=".parquet") == []
