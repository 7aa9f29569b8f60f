"""Prometheus and promtool, from the PATH or from Debian's packages, and a server to query."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

__all__ = ["Prometheus", "PrometheusUnavailableError", "executable", "prometheus"]

_CACHE = Path(__file__).parents[2] / ".cache" / "prometheus"
_PATIENCE = 60.0


class PrometheusUnavailableError(Exception):
    """Neither installed nor available from a Debian repository."""


def executable(name: str) -> Path:
    """Path of `prometheus` or `promtool`.

    If it is missing, Debian's packages are downloaded and unpacked once. They are not installed,
    since that would start a server that listens on all addresses.

    Raises:
        PrometheusUnavailableError: There is no package, or no Debian.
    """
    if found := shutil.which(name):
        return Path(found)
    if not _CACHE.exists():
        _unpack()
    return _CACHE / "usr" / "bin" / name


def _unpack() -> None:
    """Unpack into a temporary directory and rename it, so that a partial one is never used."""
    _CACHE.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".prometheus-", dir=_CACHE.parent))
    try:
        files = draft / "files"
        # From Debian 13 on, promtool is a package of its own.
        for name in ("prometheus", "promtool"):
            if not (files / "usr" / "bin" / name).exists():
                _run("apt-get", "download", "--quiet", name, folder=draft)
                (package,) = draft.glob(f"{name}_*.deb")
                _run("dpkg-deb", "--extract", package, files, folder=draft)
        files.replace(_CACHE)
    except OSError:
        # Another process unpacked the same package in the meantime.
        if not _CACHE.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run(*command: str | Path, folder: Path) -> None:
    if shutil.which(str(command[0])) is None:
        raise PrometheusUnavailableError(f"prometheus: there is no {command[0]}")
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        raise PrometheusUnavailableError(f"prometheus: {done.stderr.strip()[-300:]}")


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server.

    Attributes:
        url: URL of the server.
    """

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant query."""
        reply = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}).json()
        assert reply["status"] == "success", reply
        samples: list[dict[str, Any]] = reply["data"]["result"]
        return samples

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts."""
        alerts: list[dict[str, Any]]
        alerts = httpx.get(f"{self.url}/api/v1/alerts").json()["data"]["alerts"]
        return alerts


@contextmanager
def prometheus(folder: Path, targets: list[str], rules: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Scrape targets and evaluate rules every half second."""
    every = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    jobs = [{"job_name": "evenhand", "static_configs": [{"targets": targets}]}]
    config = {"global": every, "scrape_configs": jobs, "rule_files": ["rules.yaml"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command: list[str | Path] = [
        executable("prometheus"),
        f"--config.file={folder / 'config.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        end = time.monotonic() + _PATIENCE
        while not _is_ready(server.url):
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
