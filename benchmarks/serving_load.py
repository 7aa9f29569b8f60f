"""Load for `benchmarks.serving`: h2load, which drives gRPC with a framed body at little cost.

It counts HTTP statuses, which are 200 even where gRPC fails; but an answer that failed has no body,
so the bytes that came back tell.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["STREAMS", "Load", "LoadError", "drive", "framed", "on_cores"]

# Requests outstanding: connections, and streams of each.
STREAMS = {1: (1, 1), 16: (4, 4), 64: (4, 16)}
_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_HEADERS = ("content-type: application/grpc", "te: trailers")
# No run may take longer, whatever becomes of the server.
_SECONDS = 300


class LoadError(Exception):
    """Not every request of a run was answered as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One run.

    Attributes:
        requests: How many were sent and answered.
        per_second: How many in a second.
        client_share: Of its core, what h2load itself needed.
        answered_bytes: Of all answers' bodies.
        microseconds: Of each request from start to end, where they were logged.
    """

    requests: int
    per_second: float
    client_share: float
    answered_bytes: int
    microseconds: NDArray[np.int64]

    def check(self, *answers: bytes) -> None:
        """Against what a real client was answered before and after, since a count in it may grow.

        Raises:
            LoadError: Answers are of another length, so some of them are errors.
        """
        lengths = [self.requests * len(framed(answer)) for answer in answers]
        if not min(lengths) <= self.answered_bytes <= max(lengths):
            raise LoadError(
                f"{self.requests} answers had {self.answered_bytes} bytes, not {min(lengths)} to "
                f"{max(lengths)}: some are errors"
            )


def framed(message: bytes) -> bytes:
    """A message as gRPC puts it into a body."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def drive(port: int, body: Path, *, outstanding: int, requests: int, logged: bool = False) -> Load:
    """Send the same request many times over.

    Args:
        port: Where the server listens, on this machine.
        body: File with the framed request.
        outstanding: How many requests wait for their answers at any time.
        requests: How many in all.
        logged: Whether to log how long each took, which costs the client something.

    Raises:
        LoadError: A request failed.
    """
    connections, streams = STREAMS[outstanding]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = ["h2load", f"--requests={requests}", f"--clients={connections}"]
        command += [f"--max-concurrent-streams={streams}", f"--data={body}"]
        command += [f"--header={header}" for header in _HEADERS]
        command += [f"--log-file={log}"] * logged + [f"http://127.0.0.1:{port}{_METHOD}"]
        before = _children_seconds()
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=_SECONDS
        ).stdout
        busy = _children_seconds() - before
        lines = log.read_text().splitlines() if logged else []
    found = np.array([line.split("\t")[2] for line in lines], np.int64)
    rate = float(_number(r"([\d.]+) req/s", done))
    for pattern in (r"(\d+) succeeded", r"(\d+) 2xx"):
        if (count := int(_number(pattern, done))) != requests:
            raise LoadError(f"of {requests} requests {count} had an answer of status 200")
    return Load(
        requests=requests,
        per_second=rate,
        client_share=busy * rate / requests,
        answered_bytes=int(_number(r"\((\d+)\) data", done)),
        microseconds=found,
    )


@contextmanager
def on_cores(cores: Iterable[int]) -> Iterator[None]:
    """What is started within runs on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _number(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise LoadError(f"h2load said nothing of {pattern}: {text[-300:]}")
    return found[1]


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
