"""`evenhand serve`: the sidecar in front of a classifier."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from monitor.config import load_config
from monitor.errors import ConfigError
from monitor.settings import Config

if TYPE_CHECKING:
    from monitor.server import Server

__all__ = ["serve"]

_LOG = logging.getLogger(__name__)

# Not checked by click, so that errors have our own messages.
_PATH = click.Path(path_type=Path, readable=False)


@click.command()
@click.option("--bundle", "path", type=_PATH, help="Bundle: a directory or a .tar file.")
@click.option("--pin", metavar="SHA256", help="SHA-256 digest that the manifest must have.")
@click.option("--config", "file", type=_PATH, help="Path of a config file.")
@click.option("--host", help="Address to listen on. Default: loopback.")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="gRPC port; 0 selects a free one.")
@click.option("--rest-port", type=click.IntRange(0, 65535), help="REST port; 0 selects a free one.")
def serve(
    *,
    path: Path | None,
    pin: str | None,
    file: Path | None,
    host: str | None,
    grpc_port: int | None,
    rest_port: int | None,
) -> None:
    """Serve the classifier of a bundle, and score every prediction.

    Implements the Open Inference Protocol over gRPC and REST. Options override the config file
    and the EVENHAND_… variables.
    """
    if pin is not None and not re.fullmatch("[0-9a-f]{64}", pin := pin.strip().lower()):
        raise click.UsageError("--pin: expected a SHA-256 digest, 64 characters 0-9 a-f.")
    # Before anything slow, so that a hangup never ends the process.
    signal.signal(signal.SIGHUP, _ignore_hangup)
    config = _with_options(
        load_config(file),
        bundle={"path": path, "manifest_sha256": pin},
        server={"host": host, "grpc_port": grpc_port, "rest_port": rest_port},
    )
    if config.bundle.path is None:
        raise click.UsageError("No bundle given: use --bundle, or a config with bundle.path.")
    # Without gRPC's own threads for sockets a request costs a fifth less. The variable is read when
    # gRPC is first imported; a value that is already set has precedence.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    import uvloop

    from monitor.logs import set_up_logs

    set_up_logs(config.log)
    uvloop.run(_serve(config))
    # Unlike a handler in Python, this lasts until the process has ended.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if any(thread.name.startswith("traffic-") for thread in threading.enumerate()):
        # A disk or a store hangs: Python and pyarrow would wait for it for minutes. The remaining
        # rows are in segments.
        sys.stdout.flush()
        logging.shutdown()
        os._exit(0)


def _ignore_hangup(_number: int, _frame: object) -> None:
    # The signal may interrupt a write to the same stream.
    with suppress(RuntimeError, OSError):
        _LOG.warning(
            "SIGHUP ignored: config and bundle are read at the start only; to reload them, start "
            "a new process and stop this one with SIGTERM"
        )


def _introduce(server: Server) -> None:
    """Print the introduction on a terminal; otherwise log it, so that all output is structured."""
    if sys.stdout.isatty():
        # The terminal may have been closed.
        with suppress(OSError):
            click.echo(server.introduction)
        return
    lines = [" ".join(line.split()) for line in server.introduction.splitlines()]
    model = server.bundle.manifest.model
    _LOG.info(
        "%s",
        " | ".join(lines),
        extra={
            "model": model.name,
            "version": model.version,
            "grpc_port": server.grpc.port,
            "rest_port": server.rest.port,
        },
    )


def _with_options(config: Config, **parts: dict[str, object]) -> Config:
    """The config with options of the command line applied."""
    changed = {}
    for part, options in parts.items():
        before = getattr(config, part)
        values = {name: value for name, value in options.items() if value is not None}
        try:
            changed[part] = type(before).model_validate({**before.model_dump(), **values})
        except ValidationError as error:
            detail = error.errors()[0]
            name, reason = detail["loc"][0], detail["msg"].removeprefix("Value error, ")
            raise ConfigError(
                f"{part}.{name}: {values.get(str(name))!r} is not allowed: {reason}"
            ) from None
    return config.model_copy(update=changed)


async def _serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT."""
    from monitor.server import Server

    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = Server(config)
    await server.start()
    _introduce(server)
    await stopped.wait()
    await server.stop()
