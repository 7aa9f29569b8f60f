"""Load for `benchmarks.serving`: h2load, which sends gRPC requests at little cost to the client.

h2load counts HTTP statuses, which are 200 even for a gRPC error. An error has no body, so the
number of bytes received shows whether all requests succeeded.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from numpy.typing import NDArray

__all__ = ["STREAMS", "Load", "LoadError", "drive", "framed", "h2load_installed", "on_cores"]

# Outstanding requests: number of connections, streams per connection.
STREAMS = {1: (1, 1), 16: (4, 4), 64: (4, 16)}
_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_HEADERS = ("content-type: application/grpc", "te: trailers")
# Timeout of one run.
_SECONDS = 300
# A flag and the length of the message come first.
_FRAME_BYTES = 5


class LoadError(Exception):
    """A request of a run failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Result of one run of the load.

    Attributes:
        requests: Number of requests, all with a response.
        per_second: Requests per second.
        client_share: CPU use of h2load, as a share of its core.
        response_bytes: Total bytes of all response bodies.
        microseconds: Latency of each request; empty if not logged.
    """

    requests: int
    per_second: float
    client_share: float
    response_bytes: int
    microseconds: NDArray[np.int64]

    def check(self, *responses: bytes) -> None:
        """Compare the bytes received with the responses of a real client before and after the run.

        Two responses are compared because a count in them may grow by a digit.

        Raises:
            LoadError: The number of bytes differs, so some responses are errors.
        """
        lengths = [self.requests * len(framed(response)) for response in responses]
        if not min(lengths) <= self.response_bytes <= max(lengths):
            raise LoadError(
                f"{self.requests} responses have {self.response_bytes} bytes, expected "
                f"{min(lengths)} to {max(lengths)}: some are errors"
            )


def framed(message: bytes) -> bytes:
    """A message in gRPC's framing of an HTTP/2 body."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def drive(port: int, body: Path, *, outstanding: int, requests: int, logged: bool = False) -> Load:
    """Send the same request many times, by h2load; one at a time by grpc where it is missing.

    Args:
        port: gRPC port on this machine.
        body: File with the framed request.
        outstanding: Number of outstanding requests at any time.
        requests: Total number of requests.
        logged: Whether to log the latency of each request, which costs the client some CPU.

    Raises:
        LoadError: A request failed.
    """
    if not h2load_installed():
        return _drive_in_turn(port, body, requests=requests)
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
    latencies = np.array([line.split("\t")[2] for line in lines], np.int64)
    rate = float(_number(r"([\d.]+) req/s", done))
    for pattern in (r"(\d+) succeeded", r"(\d+) 2xx"):
        if (count := int(_number(pattern, done))) != requests:
            raise LoadError(f"{count} of {requests} requests have status 200")
    return Load(
        requests=requests,
        per_second=rate,
        client_share=busy * rate / requests,
        response_bytes=int(_number(r"\((\d+)\) data", done)),
        microseconds=latencies,
    )


def h2load_installed() -> bool:
    """Whether h2load is on the PATH."""
    return shutil.which("h2load") is not None


def _drive_in_turn(port: int, body: Path, *, requests: int) -> Load:
    """For smoke runs without h2load: every code path runs, but the figures mean nothing."""
    message, received, latencies = body.read_bytes()[_FRAME_BYTES:], 0, []
    started = time.perf_counter()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary(_METHOD)
        for _ in range(requests):
            sent = time.perf_counter()
            try:
                received += len(framed(infer(message, timeout=_SECONDS)))
            except grpc.RpcError as error:
                raise LoadError(f"a request failed: {error}") from None
            latencies.append(int(1e6 * (time.perf_counter() - sent)))
    return Load(
        requests=requests,
        per_second=requests / (time.perf_counter() - started),
        client_share=1.0,
        response_bytes=received,
        microseconds=np.array(latencies, np.int64),
    )


@contextmanager
def on_cores(cores: Iterable[int]) -> Iterator[None]:
    """Pin this process, and processes started within, to these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _number(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise LoadError(f"the output of h2load has no match for {pattern}: {text[-300:]}")
    return match[1]


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
