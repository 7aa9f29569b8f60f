"""The application's log: structured, on stderr, and without any value of a person.

Other people's exceptions may quote what they were given, so their texts are never logged: where one
was raised, and of what kind it is, has to do.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import TYPE_CHECKING

from pythonjsonlogger.json import JsonFormatter

if TYPE_CHECKING:
    from monitor.settings import LogConfig

__all__ = ["set_up_logs", "without_values"]

_FIELDS = ("asctime", "levelname", "name", "message")


def set_up_logs(config: LogConfig) -> None:
    """Log to stderr as the config says, whatever was set up before."""
    handler = logging.StreamHandler(sys.stderr)
    if config.format == "json":
        handler.setFormatter(
            JsonFormatter(
                _FIELDS,
                rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            )
        )
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(_cut_values)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())
    # Says at every start what is said already.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def _cut_values(record: logging.LogRecord) -> bool:
    """Cut the text of an exception that a library logs along with its trace."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg = f"{record.getMessage()}: {without_values(record.exc_info[1])}"
        record.args, record.exc_info, record.exc_text = (), None, None
    return True


def without_values(error: BaseException) -> str:
    """The kind of an exception and the last lines of code it came through, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = " < ".join(f"{_short(f.filename)}:{f.lineno}" for f in reversed(frames))
    return f"{type(error).__name__} at {places}"


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])
