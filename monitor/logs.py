"""The application's log: structured, on stderr, in UTC, and without feature values.

Texts of exceptions of other libraries may quote their input, so they are never logged, only the
type and the location of the exception.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from typing import TYPE_CHECKING

from pythonjsonlogger.json import JsonFormatter

if TYPE_CHECKING:
    from monitor.settings import LogConfig

__all__ = ["set_up_logs", "without_values"]

# Packages whose messages are logged from log.level on; those of others from log.libraries on.
_OWN = ("monitor", "offline_audit")
_FIELDS = ("asctime", "levelname", "name", "message")


def set_up_logs(config: LogConfig) -> None:
    """Log to stderr as the config says, replacing the handlers that exist."""
    handler = logging.StreamHandler(sys.stderr)
    formatter: logging.Formatter
    if config.format == "json" or (config.format == "auto" and not sys.stderr.isatty()):
        formatter = JsonFormatter(
            _FIELDS,
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    else:
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = time.gmtime
    formatter.default_time_format = "%Y-%m-%dT%H:%M:%S"
    formatter.default_msec_format = "%s.%03dZ"
    handler.setFormatter(formatter)
    handler.setLevel(config.level.upper())
    root = logging.getLogger()
    root.setLevel(config.libraries.upper())
    # The handler rejects them too: some libraries set levels of their own loggers.
    handler.addFilter(_OfLibraries(root.level))
    handler.addFilter(_cut_values)
    root.handlers[:] = [handler]
    for package in _OWN:
        logging.getLogger(package).setLevel(handler.level)


class _OfLibraries(logging.Filter):
    """Rejects messages of other packages below a level: they are many, and may quote values."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._level or record.name.partition(".")[0] in _OWN


def _cut_values(record: logging.LogRecord) -> bool:
    """Replace an exception that a library logs by its type and location."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg = f"{record.getMessage()}: {without_values(record.exc_info[1])}"
        record.args, record.exc_info, record.exc_text = (), None, None
    return True


def without_values(error: BaseException) -> str:
    """Type of an exception and the last lines of its traceback, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    lines = " < ".join(f"{_short(f.filename)}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__} at {lines}"


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
