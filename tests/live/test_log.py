"""The log of a real sidecar: structured for machines, readable on a terminal, without floods."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from monitor import Client
from monitor.client import EndpointError
from tests.live.sidecar import MODEL, Fitted, often_flipping, sidecar

pytestmark = pytest.mark.live

PATIENCE = 120.0


def config(home: Path) -> dict[str, Any]:
    return {
        "drift": {"run_length": 1e4, "window": 400},
        "traffic": {"path": str(home / "log")},
        "outcomes": {"path": str(home / "outcomes")},
    }


def send_requests(grpc: str, rest: str, fitted: Fitted) -> None:
    """Ordinary rows, a refused request of each transport, and rows that raise an alarm."""
    with Client(grpc, model=MODEL) as client:
        client.predict(fitted.rows[:300])
        with pytest.raises(EndpointError):
            client.predict(fitted.rows[:2, :3])
        refused = httpx.post(f"{rest}/v2/models/{MODEL}/infer", json={"inputs": []})
        assert refused.status_code == 400
        rows = often_flipping(fitted, 900)
        for start in range(0, 900, 50):
            client.predict(rows[start : start + 50])


def eventually(read: Callable[[], Any]) -> Any:
    """The first value that is true."""
    end = time.monotonic() + PATIENCE
    while not (value := read()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return value


def test_even_at_level_debug_every_line_is_structured_and_from_evenhand(uncompiled, tmp_path):
    settings = {**config(tmp_path), "log": {"level": "debug"}}
    with sidecar(uncompiled, tmp_path, settings) as running:
        send_requests(running.grpc, running.url, uncompiled)
        eventually(lambda: '"signal": "expected_change"' in running.err.read_text())
    assert running.out.read_bytes() == b""
    lines = [json.loads(line) for line in running.err.read_text().splitlines()]
    assert {line["logger"].partition(".")[0] for line in lines} == {"monitor"}
    for line in lines:
        assert dt.datetime.fromisoformat(line["time"]).utcoffset() == dt.timedelta(0)
    start = next(line for line in lines if "serving" in line["message"])
    assert f"127.0.0.1:{start['grpc_port']}" == running.grpc
    alarm = next(line for line in lines if line.get("signal") == "expected_change")
    assert (alarm["detector"], alarm["attribute"], alarm["level"]) == ("change", "sex", "WARNING")
    assert {"cause", "previous_cause", "pages", "prediction"} <= alarm.keys()
    assert {"flip_share", "flip_share_low", "flip_share_high"} <= alarm.keys()
    assert alarm["baseline_flip_share"] > 0


def test_on_a_terminal_the_introduction_and_the_log_are_text(uncompiled, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config(tmp_path)))
    command: list[str | Path] = [
        *(Path(sys.executable).with_name("evenhand"), "serve"),
        *("--config", tmp_path / "config.yaml", "--bundle", uncompiled.path),
        *("--grpc-port", "0", "--rest-port", "0"),
    ]
    terminal, other_end = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("EVENHAND_")}
    process = subprocess.Popen(command, stdout=other_end, stderr=other_end, env=environ)
    os.close(other_end)
    os.set_blocking(terminal, False)
    shown = bytearray()

    def read() -> str:
        # Nothing to read, or the process has closed its end.
        with suppress(OSError):
            shown.extend(os.read(terminal, 1 << 16))
        return shown.decode(errors="replace").replace("\r\n", "\n")

    try:
        ports = eventually(
            lambda: re.search(
                r"^  gRPC +(\S+) .*\n  REST +(http://\S+) .*\n(.*\n)+  drift ", read(), re.MULTILINE
            )
        )
        send_requests(ports[1], ports[2], uncompiled)
        line = eventually(lambda: re.search(r"^.*drift alarm: change of sex.*\n", read(), re.M))
        time_of_log = dt.datetime.fromisoformat(line[0].split()[0])
        assert time_of_log.utcoffset() == dt.timedelta(0)
        assert re.search(r"WARNING drift alarm: .* \(likely cause: \w+\): the ", line[0])
        process.send_signal(signal.SIGTERM)
        eventually(lambda: read() and process.poll() is not None)
        assert process.returncode == 0
        assert not any(line.startswith("{") for line in read().splitlines())
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
