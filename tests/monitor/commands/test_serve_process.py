"""The process of `evenhand serve`: signals, and what it prints where."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


class Served:
    """A sidecar in a subprocess.

    Attributes:
        process: The process.
        out: File of its stdout.
        err: File of its stderr.
    """

    def __init__(self, bundle: Path, folder: Path, **environment: str) -> None:
        self.out, self.err = folder / "out", folder / "err"
        command = [sys.executable, "-m", "monitor", "serve", "--bundle", str(bundle)]
        command += ["--grpc-port", "0", "--rest-port", "0"]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=err, env=os.environ | environment, cwd=ROOT
            )

    def lines(self) -> list[dict[str, Any]]:
        """Log lines so far."""
        return [json.loads(line) for line in self.err.read_text().splitlines()]

    def wait_for(self, text: str) -> dict[str, Any]:
        """The first log line whose message contains a text."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            for line in self.err.read_text().splitlines(keepends=True):
                if line.endswith("\n") and text in line:
                    return json.loads(line)
            assert self.process.poll() is None, self.err.read_text()
            time.sleep(0.05)
        raise AssertionError(f"not logged: {text}")


@pytest.fixture(scope="module")
def served(lending: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A sidecar at level debug, to which SIGHUP is sent from its start to its end."""
    sidecar = Served(lending, tmp_path_factory.mktemp("serve"), EVENHAND_LOG_LEVEL="debug")
    try:
        # While torch is imported, long before the sidecar serves.
        while "libtorch" not in Path(f"/proc/{sidecar.process.pid}/maps").read_text():
            assert sidecar.process.poll() is None, sidecar.err.read_text()
            time.sleep(0.01)
        sidecar.process.send_signal(signal.SIGHUP)
        sidecar.wait_for(" serving lending version 1 ")
        yield sidecar
        sidecar.process.send_signal(signal.SIGTERM)
        while sidecar.process.poll() is None:
            sidecar.process.send_signal(signal.SIGHUP)
            time.sleep(0.005)
        assert sidecar.process.returncode == 0, sidecar.err.read_text()
    finally:
        sidecar.process.kill()
        sidecar.process.wait()


def test_without_a_terminal_all_output_is_structured(served):
    assert served.out.read_text() == ""
    started = served.wait_for(" serving lending version 1 ")
    assert started["model"] == "lending"
    assert f"gRPC 127.0.0.1:{started['grpc_port']} " in started["message"]
    assert f"REST http://127.0.0.1:{started['rest_port']} " in started["message"]


def test_a_hangup_is_ignored_and_the_line_says_how_to_reload(served):
    served.process.send_signal(signal.SIGHUP)
    assert (
        "start a new process and stop this one with SIGTERM"
        in (served.wait_for("SIGHUP ignored")["message"])
    )
    assert served.process.poll() is None


def test_health_paths_of_kubernetes_and_of_the_protocol_answer(served):
    port = served.wait_for(" serving lending version 1 ")["rest_port"]
    for path in ("readyz", "livez", "healthz", "v2/health/live", "v2/health/ready"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            assert answer.status == 200


def test_times_have_a_time_zone_and_libraries_log_no_debug_messages(served):
    for line in served.lines():
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] != "DEBUG" or line["logger"].startswith("monitor")
