"""Server processes of `benchmarks.serving`: started, pinned to a core, checked and measured."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import numpy as np
from numpy.typing import NDArray

from benchmarks.serving_load import on_cores
from monitor.wire.open_inference_pb2 import ModelInferRequest, ModelInferResponse, ModelReadyRequest
from monitor.wire.open_inference_pb2_grpc import GRPCInferenceServiceStub

__all__ = ["Expected", "Fleet", "Server", "ServerError"]

_ROOT = Path(__file__).parents[1]
_START_SECONDS = 120.0
_STOP_SECONDS = 15.0
_CALL_SECONDS = 20.0
_TOLERANCE = 1e-4

# From two free ports, for gRPC and for REST, to a command line.
Command = Callable[[int, int], Sequence[str | Path]]


class ServerError(Exception):
    """A server does not start, or its response is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A request, and the expected score in its response, `[n, 1]`."""

    request: ModelInferRequest
    score: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server process.

    Attributes:
        name: Name in the tables.
        process: The process.
        core: Core that it is pinned to once it is ready.
        port: gRPC port.
        log: File with its output.
    """

    name: str
    process: subprocess.Popen[bytes]
    core: int
    port: int
    log: Path

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the process and its children; finer than the clock ticks of /proc."""
        # The CPU clock of a process, as computed by clock_getcpuclockid(3).
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self._pids())

    @property
    def resident_mib(self) -> float:
        """Resident memory of the process and its children."""
        pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in self._pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def wait(self) -> None:
        """Wait until the model is ready, then pin the server to its core.

        Raises:
            ServerError: The process ended, or is not ready in time.
        """
        end = time.monotonic() + _START_SECONDS
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call]
            while time.monotonic() < end:
                if self.process.poll() is not None:
                    raise ServerError(f"{self.name} ended: {self._last_line()}")
                try:
                    if stub.ModelReady(ModelReadyRequest(name="judged"), timeout=1).ready:
                        return self._pin()
                except grpc.RpcError:
                    pass
                time.sleep(0.1)
        raise ServerError(
            f"{self.name} is not ready after {_START_SECONDS:.0f} s: {self._last_line()}"
        )

    def respond(self, expected: Expected) -> bytes:
        """The response to one request, with its id checked, and its score to four digits.

        Raises:
            ServerError: The request fails, or the response is wrong.
        """
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                data: bytes = call(expected.request.SerializeToString(), timeout=_CALL_SECONDS)
            except grpc.RpcError as failure:
                raise ServerError(f"{self.name}: the request failed: {failure}") from None
        response = ModelInferResponse.FromString(data)
        index = [output.name for output in response.outputs].index("score")
        score = np.frombuffer(response.raw_output_contents[index], "<f4")
        error = np.abs(score - expected.score.ravel()).max()
        if response.id != expected.request.id or not error <= _TOLERANCE:
            raise ServerError(f"{self.name}: id {response.id!r}, error of the score {error:.2g}")
        return data

    def stop(self) -> None:
        """Terminate the process; kill it if it does not end in time."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _pin(self) -> None:
        """Pin every thread of the process and its children; later threads inherit the core."""
        for pid in self._pids():
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {self.core})

    def _pids(self) -> list[int]:
        pids = [self.process.pid]
        # The list grows while it is iterated: children of children are included.
        for pid in pids:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += map(int, children.read_text().split())
        return pids

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


class Fleet:
    """Servers that are started once and share a core; an idle server costs nothing.

    They start on several cores, since starting is not measured.
    """

    def __init__(self, folder: Path, *, starts_on: Sequence[int], stays_on: int) -> None:
        self._folder, self._cores, self._core = folder, starts_on, stays_on
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.stop()

    def start(self, name: str, command: Command) -> Server:
        """Start a server; it may not be ready yet."""
        port, rest_port = _free_ports()
        log = self._folder / f"{len(self._servers)}.log"
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with on_cores(self._cores), log.open("wb") as out:
            process = subprocess.Popen(
                command(port, rest_port), cwd=_ROOT, stdout=out, stderr=out, env=environment
            )
        server = Server(name=name, process=process, core=self._core, port=port, log=log)
        self._servers.append(server)
        return server


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for bound in (first, second):
            bound.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
