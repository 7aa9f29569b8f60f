"""Object storage on this machine: moto's server, and a proxy that fails on request."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx
from pyarrow import fs

__all__ = ["BUCKET", "KEY", "SECRET", "Fault", "FaultyProxy", "address", "faulty_proxy", "moto"]

BUCKET, KEY, SECRET = "traffic-logs", "AKIAEXAMPLE", "w4Jalr-very-secret"
# Answered with 500; hung up on at once; hung up on within the body of an upload; not answered;
# answered after a while.
Fault = Literal["none", "error", "refuse", "cut", "hang", "slow"]
_PATIENCE = 60.0
_SLOW_SECONDS = 0.3
_SOME = 1000
_HOP_BY_HOP = ("expect", "transfer-encoding", "connection", "date", "server")


def address(port: int, prefix: str) -> str:
    """Of a prefix of the bucket; the credentials are in the environment."""
    endpoint = quote(f"http://127.0.0.1:{port}", safe="")
    return f"s3://{BUCKET}/{prefix}?endpoint_override={endpoint}&region=us-east-1&scheme=http"


@contextmanager
def moto(python: Path, folder: Path) -> Iterator[int]:
    """Moto's server with a bucket; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with (folder / "moto.log").open("wb") as log:
        command: list[str | Path] = [
            python,
            "-m",
            "moto.server",
            "-H",
            "127.0.0.1",
            "-p",
            str(port),
        ]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + _PATIENCE
        while True:
            with suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/moto-api/", timeout=5)
                break
            assert process.poll() is None, (folder / "moto.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.1)
        fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"http://127.0.0.1:{port}",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)
        yield port
    finally:
        process.kill()
        process.wait()


class FaultyProxy(ThreadingHTTPServer):
    """Hands requests on, unless something is to fail.

    Attributes:
        fault: What fails from now on.
        failed: How many requests met with it.
    """

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.fault, self.failed = behind, "none", 0
        self.healed = threading.Event()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def fail(self, fault: Fault) -> None:
        """From now on."""
        self.fault, self.failed = fault, 0
        self.healed.clear()

    def heal(self) -> None:
        """Let everything through again."""
        self.fault = "none"
        self.healed.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up does so on purpose here."""


@contextmanager
def faulty_proxy(behind: int) -> Iterator[FaultyProxy]:
    """A proxy on a free port."""
    with FaultyProxy(behind) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.heal()
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyProxy

    def _handle(self) -> None:
        fault = self.server.fault
        if fault != "none":
            self.server.failed += 1
        if fault == "refuse" or (fault == "cut" and self.command == "PUT"):
            # Of an upload, some of the body has come.
            self.rfile.read(_SOME if fault == "cut" else 0)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        body = self._body()
        if fault == "hang":
            self.server.healed.wait(_PATIENCE)
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(_SLOW_SECONDS)
        if fault == "error":
            self._reply(500, {}, b"<Error><Code>InternalError</Code></Error>")
            return
        line = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=_PATIENCE)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        line.request(self.command, self.path, body, headers)
        answer = line.getresponse()
        kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
        self._reply(answer.status, kept, answer.read())
        line.close()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        del self.headers["Transfer-Encoding"]
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length":
                self.send_header(name, value)
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - as the parent calls them

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""
