"""Sidecars that write a traffic log, in this process or preloaded in another."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from monitor import AsyncClient, FitData, Judge, fit
from monitor.server import Server
from tests.families import seeded
from tests.live.sidecar import MODEL, Fitted
from tests.serving import PEOPLE, SPEC, running
from tests.spooling import Row, logged

__all__ = [
    "PATIENCE",
    "ROOT",
    "Preloaded",
    "assert_logged",
    "in_process",
    "send_requests",
    "uncompiled_bundle",
]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
# The real command, in a process that loads torch first and then waits for a line on stdin.
_PRELOADED = (
    "import sys, monitor.server, monitor.traffic.log; sys.stdin.readline() or sys.exit(); "
    "from monitor.cli import main; main()"
)
_READY = re.compile(r"gRPC +(127\.0\.0\.1:\d+) .*\| drift")


def uncompiled_bundle(folder: Path) -> Fitted:
    """A bundle of the lending world without compiled code."""
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    bundle = fit(seeded("MLP"), data, SPEC, folder / "bundle", compiled=False).bundle
    return Fitted(
        path=folder / "bundle",
        digest=bundle.manifest_sha256,
        judge=Judge.load(bundle, warn=False),
        rows=PEOPLE.features,
    )


def in_process(
    bundle: Fitted, use: Callable[[Server, AsyncClient], Awaitable[Any]], **parts: Any
) -> Any:
    """Serve a bundle in this process, and call a function with the server and a client."""

    async def run() -> Any:
        async with (
            running(bundle.path, **parts) as server,
            AsyncClient(f"127.0.0.1:{server.grpc.port}", model=MODEL) as client,
        ):
            return await use(server, client)

    return asyncio.run(run())


def assert_logged(home: Path, expected: list[Row]) -> None:
    """The log has exactly these rows, each once."""
    rows = Counter(logged(home))
    assert rows == Counter(expected)
    assert set(rows.values()) <= {1}


async def send_requests(client: AsyncClient, count: int, *, rows: int = 1) -> list[Row]:
    """Send one request after another; return the rows that the log must have."""
    sent: list[Row] = []
    for n in range(count):
        features: NDArray[np.float32] = PEOPLE.features[n : n + rows]
        predictions = await client.predict(features)
        logits = predictions.output.reshape(-1).tolist()
        sent += [(predictions.request_id, row, logit) for row, logit in enumerate(logits)]
    return sent


class Preloaded:
    """A sidecar process that has loaded its packages and starts to serve on request.

    Attributes:
        process: The process.
        grpc: Address of the gRPC transport; empty before it serves.
    """

    def __init__(
        self,
        bundle: Fitted,
        folder: Path,
        config: Mapping[str, Any],
        prefix: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        file, self._out, self._err = folder / "config.yaml", folder / "out", folder / "err"
        file.write_text(yaml.safe_dump(dict(config)))
        command: list[str | Path] = [*prefix, sys.executable, "-c", _PRELOADED, "serve"]
        command += ["--config", file, "--bundle", bundle.path]
        command += ["--grpc-port", "0", "--rest-port", "0"]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=out, stderr=err
            )
        self.grpc = ""

    def serve(self) -> str:
        """Start to serve; return the address of the gRPC transport."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if match := _READY.search(self.log):
                self.grpc = match[1]
                return self.grpc
            time.sleep(0.02)
        raise AssertionError(f"the sidecar did not start: {self._err.read_text()[-2000:]}")

    @property
    def log(self) -> str:
        """Log so far."""
        return self._err.read_text()

    @property
    def errors(self) -> str:
        """Log lines of level ERROR."""
        lines = self._err.read_text().splitlines()
        return "\n".join(line for line in lines if '"ERROR"' in line)

    def end(self) -> None:
        """Kill the process if it still runs."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
