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
# Status 500; connection closed at once; connection closed within the body of an upload;
# no response; delayed response.
Fault = Literal["none", "error", "refuse", "cut", "hang", "slow"]
_PATIENCE = 60.0
_SLOW_SECONDS = 0.3
_PARTIAL_BYTES = 1000
_HOP_BY_HOP = ("expect", "transfer-encoding", "connection", "date", "server")


def address(port: int, prefix: str) -> str:
    """URI of a prefix of the bucket; the credentials are in the environment."""
    endpoint = quote(f"http://127.0.0.1:{port}", safe="")
    return f"s3://{BUCKET}/{prefix}?endpoint_override={endpoint}&region=us-east-1&scheme=http"


@contextmanager
def moto(python: Path, folder: Path) -> Iterator[int]:
    """Run moto's server with a bucket; yield its port."""
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
    """A proxy that forwards requests, or fails them.

    Attributes:
        fault: Current fault.
        failed: Number of requests with the current fault.
    """

    daemon_threads = True

    def __init__(self, upstream_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream_port, self.fault, self.failed = upstream_port, "none", 0
        self.healed = threading.Event()

    @property
    def port(self) -> int:
        """Port of the proxy."""
        return int(self.server_address[1])

    def fail(self, fault: Fault) -> None:
        """Fail all requests from now on."""
        self.fault, self.failed = fault, 0
        self.healed.clear()

    def heal(self) -> None:
        """Forward all requests again."""
        self.fault = "none"
        self.healed.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors: connections are closed on purpose."""


@contextmanager
def faulty_proxy(upstream_port: int) -> Iterator[FaultyProxy]:
    """A proxy on a free port."""
    with FaultyProxy(upstream_port) as proxy:
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
            # Read the first part of an upload's body.
            self.rfile.read(_PARTIAL_BYTES if fault == "cut" else 0)
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
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.server.upstream_port, timeout=_PATIENCE
        )
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        response_headers = {k: v for k, v in response.getheaders() if k.lower() not in _HOP_BY_HOP}
        self._reply(response.status, response_headers, response.read())
        connection.close()

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
        """Log nothing."""
