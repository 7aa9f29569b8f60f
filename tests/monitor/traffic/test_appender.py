"""The appender writes every row to a segment, or counts it as lost."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.traffic.appender import Appender, BoundedAppender
from monitor.traffic.segment import Cause, read_segment

ABOUT = {"kind": "traffic"}


def appender(folder: Path, **options) -> Appender:
    settings = {"roll_bytes": 1 << 20, "max_bytes": 1 << 30, "always_sync": False}
    return Appender(folder, ABOUT, file_mode=0o640, **(settings | options))


def written(folder: Path) -> tuple[list[bytes], Counter[Cause]]:
    """Payloads of a folder's segments in the order of their names, and what was lost."""
    payloads: list[bytes] = []
    lost: Counter[Cause] = Counter()
    for path in sorted(folder.glob("*.segment")):
        segment = read_segment(path.read_bytes())
        payloads += [bytes(record.payload) for record in segment.records]
        lost.update(segment.lost)
    return payloads, lost


@contextmanager
def failing_disk(how: str):
    """A disk whose writes fail or are partial within the with-block."""
    real = os.write

    def write(handle: int, data: bytes) -> int:
        if how == "fails":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data[: len(data) // 2])

    with mock.patch.object(os, "write", write):
        yield


class HungDisk:
    """A disk whose writes block until they are released."""

    def __init__(self) -> None:
        self.hangs, self._go = threading.Event(), threading.Event()
        self._real = os.write

    def write(self, handle: int, data: bytes) -> int:
        if not self._go.is_set():
            self.hangs.set()
            assert self._go.wait(30)
        return self._real(handle, data)

    def release(self) -> None:
        self._go.set()


@pytest.fixture
def hung_disk():
    disk = HungDisk()
    with mock.patch.object(os, "write", disk.write):
        yield disk
        disk.release()


def test_rows_are_written_to_one_file_with_group_permissions(tmp_path):
    log = appender(tmp_path)
    assert all(log.write(f"payload {n}".encode(), 2) for n in range(5))
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert written(tmp_path)[0] == [f"payload {n}".encode() for n in range(5)]
    assert (log.rows, log.used) == (10, file.stat().st_size)


def test_a_segment_is_closed_when_it_is_large_enough(tmp_path):
    log = appender(tmp_path, roll_bytes=1000)
    for n in range(30):
        log.write(bytes([n]) * 90, 1)
    log.finish()
    sizes = [segment.path.stat().st_size for segment in log.closed]
    assert len(sizes) > 2
    assert all(1000 <= size < 1000 + 200 for size in sizes[:-1])
    assert written(tmp_path)[0] == [bytes([n]) * 90 for n in range(30)]
    assert [segment.path for segment in log.closed] == sorted(tmp_path.iterdir())


def test_a_segment_is_closed_when_it_is_old_enough(tmp_path):
    log = appender(tmp_path)
    log.roll()
    assert not log.closed
    log.write(b"x", 1)
    log.roll(older_than=60)
    assert not log.closed
    log.roll(older_than=0)
    assert len(log.closed) == 1


steps = st.lists(
    st.sampled_from(["write", "write", "fails", "partial", "lose", "roll", "full"]),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(steps, st.sampled_from([150, 400, 1 << 20]))
def test_with_a_failing_disk_every_row_is_written_once_or_counted_once(done, roll_bytes):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = appender(folder, roll_bytes=roll_bytes, max_bytes=1 << 16)
        good, lost = [], Counter[str]()
        for n, step in enumerate(done):
            payload = f"payload {n}".encode()
            with ExitStack() as stack:
                if step in ("fails", "partial"):
                    stack.enter_context(failing_disk(step))
                if step == "roll":
                    log.roll()
                elif step == "lose":
                    log.lose("fault", 3)
                    lost["fault"] += 3
                elif step == "full":
                    assert not log.write(bytes((1 << 16) + 1), 4)
                    lost["full"] += 4
                elif log.write(payload, 2):
                    good.append(payload)
                else:
                    lost["disk"] += 2
        assert log.lost == lost
        log.finish()
        assert written(folder) == (good, +lost)
        assert len(good) == sum(step == "write" for step in done)
        assert log.used == sum(file.stat().st_size for file in folder.iterdir())


def test_a_failed_fsync_closes_the_segment(tmp_path):
    log = appender(tmp_path, always_sync=True)
    assert log.write(b"one", 1)
    with mock.patch.object(os, "fsync", side_effect=OSError(errno.EIO, "no")):
        assert log.write(b"two", 1)
    assert log.write(b"three", 1)
    log.finish()
    assert log.sync_failures == 1
    assert len(log.closed) == 2
    assert written(tmp_path) == ([b"one", b"two", b"three"], {})


def test_with_always_fsync_is_called_before_a_write_returns(tmp_path):
    log = appender(tmp_path, always_sync=True)
    with mock.patch.object(os, "fsync", wraps=os.fsync) as fsync:
        log.write(b"one", 1)
        # Of the segment, and of the folder that has a new file.
        assert fsync.call_count == 2
        log.write(b"two", 1)
        assert fsync.call_count == 3
    log.finish()


def test_many_threads_write_while_another_rolls(tmp_path):
    log = appender(tmp_path, roll_bytes=2000)
    stop = threading.Event()

    def roll() -> None:
        while not stop.is_set():
            log.roll()
            log.sync()

    def write(writer: int) -> None:
        for n in range(100):
            assert log.write(f"{writer}-{n}".encode(), 1)

    keeper = threading.Thread(target=roll)
    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in (keeper, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    keeper.join()
    log.finish()
    payloads, lost = written(tmp_path)
    assert sorted(payloads) == sorted(f"{p}-{n}".encode() for p in range(8) for n in range(100))
    assert not lost
    for segment in log.closed:
        segment.sync()


def test_rows_are_dropped_and_counted_while_a_write_hangs(tmp_path, hung_disk):
    log = appender(tmp_path)
    bounded = BoundedAppender(log, 0.05)
    started = time.monotonic()
    bounded.write(b"late", 1)
    assert 0.05 <= time.monotonic() - started < 5
    for n in range(20):
        bounded.write(f"lost {n}".encode(), 2)
    # Only the first write was waited for.
    assert time.monotonic() - started < 5
    assert bounded.late == 1
    assert bounded.lost == {"slow": 40}
    hung_disk.release()
    end = time.monotonic() + 10
    while not log.rows and time.monotonic() < end:
        time.sleep(0.005)
    bounded.write(b"next", 3)
    bounded.stop(10)
    log.finish()
    assert written(tmp_path) == ([b"late", b"next"], {"slow": 40})
    assert bounded.lost == log.lost == {"slow": 40}


def test_a_write_that_never_ends_delays_neither_responses_nor_shutdown(tmp_path, hung_disk):
    bounded = BoundedAppender(appender(tmp_path), 0.05)
    bounded.write(b"late", 1)
    bounded.lose("fault", 7)
    started = time.monotonic()
    bounded.stop(0.1)
    assert time.monotonic() - started < 5
    assert bounded.lost == {"fault": 7}


def test_rows_dropped_by_a_hung_write_are_counted_on_shutdown(tmp_path, hung_disk):
    log = appender(tmp_path)
    bounded = BoundedAppender(log, 0.05)
    bounded.write(b"late", 1)
    bounded.write(b"lost", 5)
    hung_disk.release()
    bounded.stop(10)
    log.finish()
    assert written(tmp_path) == ([b"late"], {"slow": 5})


def test_an_unexpected_error_of_a_write_is_counted_and_later_writes_succeed(tmp_path):
    log = appender(tmp_path)
    bounded = BoundedAppender(log, 1)
    with mock.patch.object(os, "write", side_effect=MemoryError):
        bounded.write(b"one", 4)
    bounded.write(b"two", 1)
    bounded.stop(1)
    log.finish()
    payloads, lost = written(tmp_path)
    assert payloads == [b"two"]
    assert lost.total() == bounded.lost.total() == 4
