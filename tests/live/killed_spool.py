"""Writers of a traffic log that are killed repeatedly, and the rows that were acknowledged.

    python -m tests.live.killed_spool rounds FOLDER COUNT SEED
    python -m tests.live.killed_spool steps FOLDER

It runs in a process of its own, which has loaded what a writer needs, and forks one writer after
another. A writer reports a request through a pipe once the appender has returned, as an answer
would leave then. Of all that it saw, it prints a JSON object.
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
from tests.spooling import hidden_files, moment, opened, payload, segments

# Small enough that segments are compacted all the time.
_ROLL_BYTES, _TICK = 3_000, 0.002
_LARGE = 400
_NEVER = 3600.0
_BOUND = 30.0


def writer(home: Path, round_: int, report: int, last: int | None) -> None:
    """Write until the end, which may be right behind a report of one that was written."""
    spool_module._TICK = _TICK
    rng = random.Random(round_)  # noqa: S311
    spool = opened(home, roll_bytes=_ROLL_BYTES, roll_seconds=0.02)
    log, n = BoundedAppender(spool.appender, _BOUND), 0
    while not log.late:
        # Now and then a record of many pages, which the kernel may be stopped within.
        rows = _LARGE if rng.random() < 0.02 else rng.randint(1, 3)
        log.write(payload((f"{round_}-{n}", [float(n)] * rows)), rows)
        os.write(report, f"{round_}-{n} {rows} {n}\n".encode())
        if n == last:
            os.kill(os.getpid(), signal.SIGKILL)
        n += 1
        time.sleep(rng.random() * 0.002)


def forked(work: Callable[[], None]) -> int:
    """A process that does something and ends; errors are printed to stderr."""
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


def heard(pipe: int, child: int, begun_after: float, seconds: float) -> bytes:
    """What a writer reports until it ends, or is killed: so long after its start or first words."""
    said, begun = b"", False
    end = time.monotonic() + begun_after
    while (left := end - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left)[0]:
            continue
        if not (data := os.read(pipe, 1 << 16)):
            return said
        said += data
        if not begun:
            begun, end = True, time.monotonic() + seconds
    os.kill(child, signal.SIGKILL)
    while data := os.read(pipe, 1 << 16):
        said += data
    return said


def rounds(home: Path, count: int, seed: int) -> dict[str, Any]:
    """Writers in one folder that are killed, one after another; the last one stops in order.

    A fifth are killed while they start, a fifth right behind a report, the others at any moment.
    """
    rng = random.Random(seed)  # noqa: S311
    said, waited, drafted = b"", 0, 0
    for round_ in range(count):
        early, last = round_ % 5 == 0, rng.randrange(40) if round_ % 5 == 1 else None
        pipe, report = os.pipe()
        child = forked(lambda r=round_, p=report, n=last: writer(home, r, p, n))  # type: ignore[misc]
        os.close(report)
        begun_after = rng.random() * 0.03 if early else _BOUND
        said += heard(pipe, child, begun_after, _BOUND if last is not None else rng.random() * 0.12)
        os.close(pipe)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            raise SystemExit("a writer ended of itself")
        waited += bool(segments(home))
        drafted += bool(hidden_files(home))
    recover(home)
    lines = (line.split() for line in said.decode().splitlines())
    reported = [[name, int(rows), float(value)] for name, rows, value in lines]
    return {"reported": reported, "waited": waited, "drafted": drafted}


def recover(home: Path) -> None:
    """A process that finds what was left, and stops in order."""
    child = forked(lambda: opened(home).stop(60))
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the last writer did not end well")


def die_at(step: int) -> Callable[..., None]:
    """Have a thread die right before its call number `step` that touches a file."""
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


def keep_until(home: Path, step: int) -> None:
    """Compact what is there, and die on the way."""
    threading.setprofile(die_at(step))
    spool_module._TICK = _TICK
    spool = opened(home)
    threading.setprofile(None)
    while not spool.compacted:
        time.sleep(0.001)


def two_hours(home: Path) -> None:
    """Leave a segment with rows of two hours."""
    spool_module._TICK = _NEVER
    hours = [moment(2026, 3, 1, hour) for hour in (8, 9, 8, 9)]
    spool = opened(home)
    real, time.time_ns = time.time_ns, hours.pop
    for n in range(4):
        assert spool.appender.write(payload((f"r{n}", [float(n)])), 1)
    time.time_ns = real


def steps(folder: Path) -> dict[str, Any]:
    """Every place where the keeper can be killed within a compaction, each in its own folder."""
    template = folder / "template"
    os.waitpid(forked(lambda: two_hours(template)), 0)
    for step in _counted():
        home = folder / f"step-{step:04d}"
        shutil.copytree(template, home)
        child = forked(lambda h=home, s=step: keep_until(h, s))  # type: ignore[misc]
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        recover(home)
        if not killed:
            return {"steps": step}
    raise AssertionError


def _counted() -> Iterator[int]:
    n = 0
    while True:
        yield n
        n += 1


if __name__ == "__main__":
    what, place, *numbers = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        found = steps(Path(place)) if what == "steps" else rounds(Path(place), *map(int, numbers))
    sys.stdout.write(json.dumps(found))
