"""Writers of a traffic log that are killed repeatedly, and the rows that were acknowledged.

    python -m tests.live.killed_spool rounds FOLDER COUNT SEED
    python -m tests.live.killed_spool steps FOLDER

The script runs in its own process, which loads what a writer needs and forks the writers one after
another. A writer reports a request through a pipe once the appender has returned, which is
when a response would be sent. The script prints a JSON object with all reports.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import monitor.traffic.spool as spool_module
from monitor.traffic.appender import BoundedAppender
from tests.spooling import hidden_files, moment, open_spool, payload, segments

# Small enough that segments are compacted all the time.
_ROLL_BYTES, _TICK = 3_000, 0.002
_LARGE = 400
_NEVER = 3600.0
_BOUND = 30.0


def writer(home: Path, round_: int, report: int, last: int | None) -> None:
    """Write until killed, or until right after the report of request number `last`."""
    spool_module._TICK = _TICK
    rng = random.Random(round_)  # noqa: S311
    spool = open_spool(home, roll_bytes=_ROLL_BYTES, roll_seconds=0.02)
    log, n = BoundedAppender(spool.appender, _BOUND), 0
    while not log.late:
        # Occasionally a record of many pages, so that a kill can interrupt its write.
        rows = _LARGE if rng.random() < 0.02 else rng.randint(1, 3)
        log.write(payload((f"{round_}-{n}", [float(n)] * rows)), rows)
        os.write(report, f"{round_}-{n} {rows} {n}\n".encode())
        if n == last:
            os.kill(os.getpid(), signal.SIGKILL)
        n += 1
        time.sleep(rng.random() * 0.002)


def fork(work: Callable[[], None]) -> int:
    """Run a function in a child process; return its pid. Errors are printed to stderr."""
    if child := os.fork():
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # noqa: BLE001
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def read_reports(pipe: int, child: int, startup_seconds: float, seconds: float) -> bytes:
    """Reports of a writer, which is killed some seconds after its start or its first report."""
    output, started = b"", False
    end = time.monotonic() + startup_seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            continue
        if not (data := os.read(pipe, 1 << 16)):
            return output
        output += data
        if not started:
            started, end = True, time.monotonic() + seconds
    os.kill(child, signal.SIGKILL)
    while data := os.read(pipe, 1 << 16):
        output += data
    return output


def rounds(home: Path, count: int, seed: int) -> dict[str, Any]:
    """Kill writers of one directory, one after another; the last one is stopped normally.

    A fifth are killed during startup, a fifth right after a report, the others at random times.
    """
    rng = random.Random(seed)  # noqa: S311
    output, with_segments, with_drafts = b"", 0, 0
    for round_ in range(count):
        early, last = round_ % 5 == 0, rng.randrange(40) if round_ % 5 == 1 else None
        pipe, report = os.pipe()
        child = fork(lambda r=round_, p=report, n=last: writer(home, r, p, n))  # type: ignore[misc]
        os.close(report)
        startup_seconds = rng.random() * 0.03 if early else _BOUND
        output += read_reports(
            pipe, child, startup_seconds, _BOUND if last is not None else rng.random() * 0.12
        )
        os.close(pipe)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            raise SystemExit("a writer exited without being killed")
        with_segments += bool(segments(home))
        with_drafts += bool(hidden_files(home))
    recover(home)
    lines = (line.split() for line in output.decode().splitlines())
    reported = [[name, int(rows), float(value)] for name, rows, value in lines]
    return {"reported": reported, "with_segments": with_segments, "with_drafts": with_drafts}


def recover(home: Path) -> None:
    """Recover the remaining segments in a child process that is stopped normally."""
    child = fork(lambda: open_spool(home).stop(60))
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the last writer failed")


def kill_at(step: int) -> Callable[..., None]:
    """A profile function that kills the process before its file operation number `step`."""
    seen = 0

    def profile(_frame: Any, event: str, function: Any) -> None:
        nonlocal seen
        owner = (
            getattr(function, "__module__", None)
            or type(getattr(function, "__self__", None)).__module__
        )
        if event == "c_call" and owner in ("posix", "io", "_io"):
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    return profile


def compact_until(home: Path, step: int) -> None:
    """Compact the segments, and be killed at a file operation."""
    threading.setprofile(kill_at(step))
    spool_module._TICK = _TICK
    spool = open_spool(home)
    threading.setprofile(None)
    while not spool.compacted:
        time.sleep(0.001)


def write_two_hours(home: Path) -> None:
    """Write a segment with rows of two hours."""
    spool_module._TICK = _NEVER
    hours = [moment(2026, 3, 1, hour) for hour in (8, 9, 8, 9)]
    spool = open_spool(home)
    real, time.time_ns = time.time_ns, hours.pop
    for n in range(4):
        assert spool.appender.write(payload((f"r{n}", [float(n)])), 1)
    time.time_ns = real


def steps(folder: Path) -> dict[str, Any]:
    """Kill a compaction at every file operation, each time in a new directory."""
    template = folder / "template"
    os.waitpid(fork(lambda: write_two_hours(template)), 0)
    for step in _step_numbers():
        home = folder / f"step-{step:04d}"
        shutil.copytree(template, home)
        child = fork(lambda h=home, s=step: compact_until(h, s))  # type: ignore[misc]
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        recover(home)
        if not killed:
            return {"steps": step}
    raise AssertionError


def _step_numbers() -> Iterator[int]:
    n = 0
    while True:
        yield n
        n += 1


if __name__ == "__main__":
    command, folder, *numbers = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        result = (
            steps(Path(folder)) if command == "steps" else rounds(Path(folder), *map(int, numbers))
        )
    sys.stdout.write(json.dumps(result))
