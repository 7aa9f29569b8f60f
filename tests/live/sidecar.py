"""The real sidecar in its own process, started and stopped by a context manager."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from monitor import Judge
from monitor.wire import open_inference_pb2 as wire
from tests.serving import without_model

__all__ = [
    "METHOD",
    "MODEL",
    "VERSION",
    "Fitted",
    "Sidecar",
    "often_flipping",
    "request_of",
    "sidecar",
    "start",
]

MODEL, VERSION = "lending", "3"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
# Seconds that a busy machine may need to load torch and a bundle, or to drain.
_PATIENCE = 120.0
_READY = re.compile(r"gRPC +127\.0\.0\.1:(\d+) .*REST +http://127\.0\.0\.1:(\d+) .*\| drift")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A bundle, and a judge that computes the expected results.

    Attributes:
        path: Path of the bundle.
        digest: SHA-256 of the manifest.
        judge: Judge of the bundle, loaded in this process.
        rows: Rows that the bundle was not fitted on, `[n, d]`.
    """

    path: Path
    digest: str
    judge: Judge
    rows: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A running sidecar.

    Attributes:
        process: The process.
        grpc: Address of the gRPC transport, such as `127.0.0.1:8081`.
        url: URL of the REST transport.
        out: File of its stdout.
        err: File of its log.
    """

    process: subprocess.Popen[bytes]
    grpc: str
    url: str
    out: Path
    err: Path

    @property
    def infer_url(self) -> str:
        """URL of inference requests over REST."""
        return f"{self.url}/v2/models/{MODEL}/infer"

    @property
    def log(self) -> str:
        """Log so far, without the first message, which states what is served."""
        return "".join(self.err.read_text().splitlines(keepends=True)[1:])

    @property
    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def metric(self, series: str) -> float:
        """Value of a series of `/metrics`, identified by its name and labels except `model`."""
        for line in without_model(httpx.get(f"{self.url}/metrics").text).splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        raise AssertionError(f"there is no {series}")

    def metric_reaches(self, series: str, value: float, seconds: float = 10.0) -> bool:
        """Whether a series reaches a value within some seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(series) == value:
                return True
            time.sleep(0.05)
        return False


def start(
    fitted: Fitted,
    folder: Path,
    config: Mapping[str, Any],
    *,
    grpc_port: int = 0,
    rest_port: int = 0,
) -> tuple[subprocess.Popen[bytes], Path, Path]:
    """Start `evenhand serve`; return the process and the files of its stdout and stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    file, out, err = folder / "config.yaml", folder / "out", folder / "err"
    file.write_text(yaml.safe_dump(dict(config)))
    command: list[str | Path] = [
        *(Path(sys.executable).with_name("evenhand"), "serve", "--config", file),
        *("--bundle", fitted.path, "--pin", fitted.digest),
        *("--grpc-port", str(grpc_port), "--rest-port", str(rest_port)),
    ]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("EVENHAND_")}
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environ)
    return process, out, err


@contextmanager
def sidecar(fitted: Fitted, folder: Path, config: Mapping[str, Any]) -> Iterator[Sidecar]:
    """A sidecar on free ports, which must exit with code 0 when it is stopped."""
    process, out, err = start(fitted, folder, config)
    try:
        grpc_port, rest_port = _ports(process, err)
        yield Sidecar(
            process=process,
            grpc=f"127.0.0.1:{grpc_port}",
            url=f"http://127.0.0.1:{rest_port}",
            out=out,
            err=err,
        )
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(_PATIENCE) == 0, err.read_text()[-2000:]
    finally:
        process.kill()
        process.wait()


def _ports(process: subprocess.Popen[bytes], err: Path) -> tuple[str, str]:
    """Wait until the sidecar logs its ports; return them."""
    end = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if match := _READY.search(err.read_text()):
            return match[1], match[2]
        time.sleep(0.05)
    raise AssertionError(f"the sidecar did not start: {err.read_text()[-2000:]}")


def often_flipping(fitted: Fitted, n: int) -> NDArray[np.float32]:
    """Rows whose decisions are most likely to flip by sex, which raise alarms, `[n, d]`."""
    scores = fitted.judge.scores(torch.from_numpy(fitted.rows))
    flips = scores.attributes["sex"].flip_probability.numpy()
    return fitted.rows[np.argsort(-flips, kind="stable")[:n]]


def request_of(
    rows: NDArray[np.float32],
    *outputs: str,
    request_id: str = "",
    version: str = "",
) -> wire.ModelInferRequest:
    """A raw request for some rows, `[n, d]`."""
    request = wire.ModelInferRequest(model_name=MODEL, model_version=version, id=request_id)
    request.inputs.add(name="features", datatype="FP32", shape=rows.shape)
    request.raw_input_contents.append(np.ascontiguousarray(rows, "<f4").tobytes())
    for name in outputs:
        request.outputs.add(name=name)
    return request
