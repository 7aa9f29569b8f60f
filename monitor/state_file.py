"""The drift watch's state on disk: whole or not at all, whenever the process ends."""

from __future__ import annotations

import os
from pathlib import Path

from monitor.errors import ServeError

__all__ = ["read_state_file", "write_state_file"]


def read_state_file(path: Path) -> bytes | None:
    """The saved state; None where there is none yet.

    Raises:
        ServeError: It is there and cannot be read, or its folder cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(13, "its folder cannot be written to")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServeError(f"drift.state_path: {path}: {error.strerror or error}") from None


def write_state_file(path: Path, data: bytes) -> None:
    """Replace the state, so that a crash leaves the old one or the new one.

    Raises:
        OSError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
