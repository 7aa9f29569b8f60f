"""The log is structured, and does not contain the messages of foreign exceptions."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import re
import sys
import time

import pytest

from monitor.logs import set_up_logs, without_values
from monitor.settings import LogConfig


@pytest.fixture(autouse=True)
def _restore_root_logger():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for package in ("monitor", "offline_audit"):
        logging.getLogger(package).setLevel(logging.NOTSET)


def fail() -> None:
    raise ValueError("income 1234.5 is too high")


def test_an_exception_is_described_by_its_type_and_location():
    with pytest.raises(ValueError, match="income") as error:
        fail()
    message = without_values(error.value)
    assert message.startswith("ValueError at monitor/test_logs.py:")
    assert "1234" not in message


def test_lines_are_json_objects_without_traceback_and_message_of_an_exception(capsys):
    set_up_logs(LogConfig())
    logging.getLogger("some.library").warning("plain %d", 3)
    try:
        fail()
    except ValueError:
        logging.getLogger("some.library").exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == (
        *("WARNING", "some.library"),
        "plain 3",
    )
    assert second["message"].startswith("it failed: ValueError at monitor/test_logs.py:")
    assert "1234" not in json.dumps(second)


def test_format_and_level_are_those_of_the_config(capsys):
    set_up_logs(LogConfig(format="text", level="warning"))
    logging.getLogger("x").info("quiet")
    logging.getLogger("x").warning("loud")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING loud")


LIBRARIES = ("grpc._cython", "uvicorn.error", "pyarrow", "numba.core", "matplotlib.font_manager")


@pytest.fixture
def noisy():
    """Loggers of libraries that set their own level to debug."""
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    yield loggers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("libraries", ["info", "warning", "error"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_messages_of_libraries_are_logged_from_their_own_level_on(capsys, noisy, level, libraries):
    set_up_logs(LogConfig(level=level, libraries=libraries))
    names = ("debug", "info", "warning", "error")
    for logger in (*noisy, logging.getLogger("monitor.stream")):
        for number in range(1, 5):
            logger.log(10 * number, "x is %d", 1234)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    own = [line["level"].lower() for line in lines if line["logger"] == "monitor.stream"]
    assert own == list(names[names.index(level) :])
    least = max(names.index(level), names.index(libraries))
    for logger in noisy:
        shown = [line["level"].lower() for line in lines if line["logger"] == logger.name]
        assert shown == list(names[least:])


def test_by_default_libraries_log_warnings_only_even_at_level_debug(capsys, noisy):
    set_up_logs(LogConfig(level="debug"))
    for logger in noisy:
        logger.debug("x = 1234.5")
        logger.info("x = 1234.5")
    assert capsys.readouterr().err == ""


def test_the_log_is_text_on_a_terminal_and_json_elsewhere(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_json in ((Terminal(), False), (io.StringIO(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logs(LogConfig())
        logging.getLogger("monitor").warning("loud")
        (line,) = stream.getvalue().splitlines()
        assert line.startswith("{") == is_json
        assert is_json or line.endswith("Z WARNING loud")


@pytest.mark.parametrize("form", ["json", "text"])
def test_times_are_in_utc_and_say_so(capsys, form, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        set_up_logs(LogConfig(format=form))
        logging.getLogger("x").warning("now")
    finally:
        monkeypatch.undo()
        time.tzset()
    stamp = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", capsys.readouterr().err)
    assert stamp is not None
    logged = dt.datetime.fromisoformat(stamp[0])
    assert abs(dt.datetime.now(dt.UTC) - logged) < dt.timedelta(minutes=1)
