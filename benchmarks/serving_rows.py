"""Rows of `benchmarks.serving`: the servers, and how each is started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.peers import PeerUnavailableError, peer_python
from benchmarks.serving_load import Load, drive
from benchmarks.serving_servers import Command, Fleet, Server, ServerError
from benchmarks.serving_subjects import ServedSubject

__all__ = ["ECHO", "INLINE", "MLSERVERS", "OFF", "UNCOUNTED", "Row", "start_rows"]

ECHO = "bare grpc.aio echo"
INLINE = "evenhand"
OFF = "evenhand, sensitivity off"
UNCOUNTED = "evenhand, metrics off"
# Monitoring mode, and whether metrics are enabled.
_MODES = {INLINE: ("inline", "true"), OFF: ("off", "true"), UNCOUNTED: ("inline", "false")}
_KSERVE = "KServe"
_EAGER = "eager autograd per request"
_CAPTUM = "Captum per request"
# MLServer's max_batch_size and max_batch_time in seconds. Of those tried (8 and 32 in 0.1 ms, 16
# and 64 in 1 ms, 64 in 5 ms) this one has the highest throughput at 64 outstanding requests.
_BATCHINGS = {"MLServer": (0, 0.0), "MLServer, batches": (64, 0.005)}
MLSERVERS = tuple(_BATCHINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A server that is ready and whose responses were checked.

    Attributes:
        server: Server process.
        subject: Classifier that it serves, with requests.
    """

    server: Server
    subject: ServedSubject

    def check(self) -> None:
        """Send requests with a real client and compare the responses with the expected scores.

        Raises:
            ServerError: A response is wrong.
        """
        # The echo server knows the response to the first request only.
        known = 1 if self.server.name == ECHO else len(self.subject.expected)
        for expected in self.subject.expected[:known]:
            self.server.respond(expected)

    def load(self, *, outstanding: int, requests: int) -> tuple[Load, float]:
        """Send the subject's first request many times; return the run and the server's CPU seconds.

        Raises:
            LoadError: A request failed.
        """
        server, subject = self.server, self.subject
        first = server.respond(subject.expected[0])
        before = server.cpu_seconds
        load = drive(
            server.port,
            subject.body,
            outstanding=outstanding,
            requests=requests,
            logged=outstanding == 1,
        )
        seconds = server.cpu_seconds - before
        load.check(first, server.respond(subject.expected[0]))
        return load, seconds


def start_rows(
    fleet: Fleet, subject: ServedSubject, folder: Path, *, all_peers: bool, install: bool = True
) -> dict[str, Row]:
    """Start every server; print which peers are unavailable.

    Raises:
        ServerError: evenhand does not start, or the response of a server is wrong.
    """
    ours = {
        name: fleet.start(name, _evenhand(subject, folder / f"{name}.yaml", *settings))
        for name, settings in _MODES.items()
    }
    peers = _start_peers(fleet, subject, all_peers=all_peers, install=install)
    for server in ours.values():
        server.wait()
    # The echo server, a lower bound on the cost, sends a response of evenhand's.
    prebuilt = folder / "response"
    prebuilt.write_bytes(ours[INLINE].respond(subject.expected[0]))
    echo = fleet.start(ECHO, _bare("echo", prebuilt))
    rows = {}
    for name, server in {ECHO: echo, **ours, **peers}.items():
        try:
            server.wait()
        except ServerError as error:
            if name not in peers:
                raise
            print(f"without {name}: {error}")
            continue
        rows[name] = Row(server=server, subject=subject)
        rows[name].check()
    return rows


def _start_peers(
    fleet: Fleet, subject: ServedSubject, *, all_peers: bool, install: bool
) -> dict[str, Server]:
    network = subject.network
    commands: dict[str, Callable[[], Command]] = {
        name: partial(_mlserver, network, *batching, install=install)
        for name, batching in _BATCHINGS.items()
    }
    if all_peers:
        commands[_KSERVE] = partial(_peer, "kserve", "kserve_peer", network, install=install)
        commands[_EAGER] = partial(_bare, "eager", network)
        commands[_CAPTUM] = partial(
            _peer, "captum-serving", "captum_serving_peer", network, install=install
        )
    servers = {}
    for name, command in commands.items():
        try:
            servers[name] = fleet.start(name, command())
        except PeerUnavailableError as error:
            print(f"without {name}: {error}")
    return servers


def _evenhand(subject: ServedSubject, file: Path, mode: str, metrics: str) -> Command:
    def command(port: int, rest_port: int) -> Sequence[str | Path]:
        file.write_text(
            f"server: {{host: 127.0.0.1, grpc_port: {port}, rest_port: {rest_port}}}\n"
            f"monitoring: {{mode: {mode}}}\n"
            f"metrics: {{enabled: {metrics}}}\n"
        )
        options = ("--bundle", subject.bundle, "--pin", subject.digest, "--config", file)
        return [sys.executable, "-m", "monitor", "serve", *options]

    return command


def _bare(kind: str, file: Path) -> Command:
    module = "benchmarks.serving_bare"
    return lambda port, _: [sys.executable, "-m", module, kind, str(port), file]


def _peer(name: str, module: str, network: Path, *, install: bool) -> Command:
    python = peer_python(name, install=install)
    return lambda port, _: [python, "-m", f"benchmarks.{module}", str(port), network]


def _mlserver(network: Path, size: int, seconds: float, *, install: bool) -> Command:
    start = _peer("mlserver", "mlserver_peer", network, install=install)
    return lambda port, rest: [*start(port, rest), str(rest), str(size), str(seconds)]
