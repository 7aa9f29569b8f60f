"""Sidecars that write a traffic log: a bundle that is read fast, a process that is ready to go."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from monitor import AsyncClient, FitData, Judge, fit
from tests.families import seeded
from tests.live.sidecar import Fitted
from tests.serving import PEOPLE, SPEC
from tests.spooling import Row

__all__ = ["PATIENCE", "ROOT", "Preloaded", "asked", "uncompiled_bundle"]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
# The real command, in a process that has loaded torch before it is told to go.
_PRELOADED = (
    "import sys, monitor.server, monitor.traffic.log; sys.stdin.readline() or sys.exit(); "
    "from monitor.cli import main; main()"
)
_READY = re.compile(r"gRPC +(127\.0\.0\.1:\d+) .*^  drift", re.S | re.M)


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


async def asked(client: AsyncClient, count: int, *, rows: int = 1) -> list[Row]:
    """Ask one request after another; the rows that the log ought to hold of them."""
    found: list[Row] = []
    for n in range(count):
        features: NDArray[np.float32] = PEOPLE.features[n : n + rows]
        answer = await client.predict(features)
        logits = answer.score.reshape(-1).tolist()
        found += [(answer.request_id, row, logit) for row, logit in enumerate(logits)]
    return found


class Preloaded:
    """A sidecar that begins to serve when it is told to.

    Attributes:
        process: The process.
        grpc: Where its gRPC door listens, once it serves.
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
        """Begin, and say where the gRPC door is."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            if found := _READY.search(self.said):
                self.grpc = found[1]
                return self.grpc
            time.sleep(0.02)
        raise AssertionError(f"it did not start: {self._err.read_text()[-2000:]}")

    @property
    def said(self) -> str:
        """On stdout."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """What it logged as an error."""
        return "\n".join(n for n in self._err.read_text().splitlines() if '"ERROR"' in n)

    def end(self) -> None:
        """Kill it, if it is still there."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
