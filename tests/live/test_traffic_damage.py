"""Damaged segments and Parquet files: only the damaged rows are lost, and they are counted."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from pathlib import Path

import pytest

from monitor import AsyncClient
from monitor.traffic.segment import read_segment
from monitor.traffic.store import Store
from tests.live.log_sidecar import Preloaded, in_process, send_requests
from tests.live.sidecar import MODEL
from tests.spooling import entries, logged, lost_counts, segments, spooling

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def crashed(uncompiled, tmp_path_factory) -> Path:
    """Directory with the segment of a sidecar that was killed."""
    home = tmp_path_factory.mktemp("crashed") / "log"
    process = Preloaded(uncompiled, home.parent / "sidecar", {"traffic": {"path": str(home)}})

    async def load(endpoint: str) -> None:
        async with AsyncClient(endpoint, model=MODEL) as client:
            for rows in (1, 3, 2, 5, 1, 4):
                await send_requests(client, 1, rows=rows)

    try:
        asyncio.run(load(process.serve()))
    finally:
        process.end()
    return home


def offsets(data: bytes) -> list[tuple[str, int]]:
    """Offsets in every part of a segment, drawn with a fixed seed."""
    rng = random.Random(3)  # noqa: S311
    header = data.index(b"EVHR")
    heads = [match.start() for match in re.finditer(b"EVHR", data)]
    chosen = [("first header", rng.randrange(header // 2)) for _ in range(4)]
    chosen += [("second header", rng.randrange(header // 2, header)) for _ in range(4)]
    chosen += [("head", start + rng.randrange(37)) for start in heads[:-1]]
    chosen += [("payload", start + rng.randrange(37, 150)) for start in heads]
    return [*chosen, ("last head", heads[-1] + 9), ("tail", len(data) - 1)]


def records_of(data: bytes) -> list[tuple[int, int, int]]:
    """Start, end and number of rows of each record."""
    segment = read_segment(data)
    ends = [len(data) - len(data[data.index(bytes(r.payload)) :]) for r in segment.records]
    return [
        (begin - 37, begin + len(r.payload), r.rows)
        for begin, r in zip(ends, segment.records, strict=True)
    ]


@pytest.mark.parametrize("how", ["flip", "cut"])
def test_a_damaged_segment_loses_only_the_damaged_rows(crashed, tmp_path, how):
    (source,) = segments(crashed)
    data = source.read_bytes()
    records = records_of(data)
    assert len(records) == 6
    for n, (kind, offset) in enumerate(offsets(data)):
        home = tmp_path / str(n)
        shutil.copytree(crashed, home)
        damaged = data[:offset] if how == "cut" else flip_bit(data, offset)
        segments(home)[0].write_bytes(damaged)
        with spooling(home):
            pass
        if how == "cut":
            hit = [rows for begin, end, rows in records if begin < offset < end]
            good = sum(rows for _, end, rows in records if end <= offset)
            # Without the head of a record, at least one row is counted as lost.
            known = [r for b, e, r in records if b + 37 <= offset < e] or [1] * len(hit)
        else:
            hit = known = [rows for begin, end, rows in records if begin <= offset < end]
            good = sum(rows for *_, rows in records) - sum(hit)
            known = [1] if kind == "last head" else known
        assert len(logged(home)) == good, (kind, offset)
        counted = sum(lost_counts(home).values())
        assert sum(known) <= counted <= max(sum(hit), sum(known)), (kind, offset)
        assert set(lost_counts(home)) <= {"torn", "damaged"}


def flip_bit(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :]


def test_a_damaged_file_is_not_touched_and_its_hash_differs_from_the_ledger(uncompiled, tmp_path):
    async def use(server, client):
        return await send_requests(client, 5)

    in_process(uncompiled, use, traffic={"path": tmp_path})
    (file,) = entries(tmp_path)[0].files
    path = tmp_path / file.path
    damaged = flip_bit(path.read_bytes(), file.bytes // 2)
    path.write_bytes(damaged)
    in_process(uncompiled, use, traffic={"path": tmp_path})
    assert path.read_bytes() == damaged
    assert Store.open(tmp_path).sha256(file.path) != file.sha256
    assert sum(entry.rows for entry in entries(tmp_path)) == 10
