"""Servers of `benchmarks.serving`: started on one core, asked by a real client, accounted for."""

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

__all__ = ["Asked", "Fleet", "Server", "ServerError"]

_ROOT = Path(__file__).parents[1]
_START_SECONDS = 120.0
_STOP_SECONDS = 15.0
_CALL_SECONDS = 20.0
_TOLERANCE = 1e-4

# From two free ports, for gRPC and for whatever else it listens to, to a command.
Command = Callable[[int, int], Sequence[str | Path]]


class ServerError(Exception):
    """A server does not start, or does not answer as it must."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, and the score that its answer must hold, `[n, 1]`."""

    request: ModelInferRequest
    score: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A process that serves.

    Attributes:
        name: What the tables call it.
        process: The process.
        core: Where it runs once it is ready.
        port: Where it speaks gRPC.
        log: What it wrote.
    """

    name: str
    process: subprocess.Popen[bytes]
    core: int
    port: int
    log: Path

    @property
    def cpu_seconds(self) -> float:
        """What it and its children have used; finer than the clock ticks of /proc."""
        # As clock_getcpuclockid(3) makes a clock of a process.
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self._pids())

    @property
    def resident_mib(self) -> float:
        """Memory that it and its children hold."""
        pages = sum(int(Path(f"/proc/{p}/statm").read_text().split()[1]) for p in self._pids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def wait(self) -> None:
        """Until it says that the model is ready; from then on it stays on its core.

        Raises:
            ServerError: It ended, or took too long.
        """
        end = time.monotonic() + _START_SECONDS
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = GRPCInferenceServiceStub(channel)  # type: ignore[no-untyped-call]
            while time.monotonic() < end:
                if self.process.poll() is not None:
                    raise ServerError(f"{self.name} ended: {self._told()}")
                try:
                    if stub.ModelReady(ModelReadyRequest(name="judged"), timeout=1).ready:
                        return self._stay()
                except grpc.RpcError:
                    pass
                time.sleep(0.1)
        raise ServerError(f"{self.name} is not ready after {_START_SECONDS:.0f} s: {self._told()}")

    def answer(self, asked: Asked) -> bytes:
        """The answer to one request, checked: its id, and its score to four digits.

        Raises:
            ServerError: It fails, or answers something else.
        """
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            try:
                data: bytes = call(asked.request.SerializeToString(), timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                raise ServerError(f"{self.name} does not answer: {error}") from None
        response = ModelInferResponse.FromString(data)
        place = [output.name for output in response.outputs].index("score")
        score = np.frombuffer(response.raw_output_contents[place], "<f4")
        wrong = np.abs(score - asked.score.ravel()).max()
        if response.id != asked.request.id or not wrong <= _TOLERANCE:
            raise ServerError(f"{self.name} answers {response.id!r}, a score {wrong:.2g} off")
        return data

    def stop(self) -> None:
        """End it, kindly first."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _stay(self) -> None:
        """With every thread that it has; those that it starts later stay with them."""
        for pid in self._pids():
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {self.core})

    def _pids(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                found += map(int, children.read_text().split())
        return found

    def _told(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Fleet:
    """Servers that are started once, and share a core; one that is idle costs nothing.

    They start on several, since that is not measured.
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
        """A server that may not be ready yet."""
        port, further = _free_ports()
        log = self._folder / f"{len(self._servers)}.log"
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with on_cores(self._cores), log.open("wb") as out:
            process = subprocess.Popen(
                command(port, further), cwd=_ROOT, stdout=out, stderr=out, env=environment
            )
        server = Server(name=name, process=process, core=self._core, port=port, log=log)
        self._servers.append(server)
        return server


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
