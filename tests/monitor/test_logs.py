"""The log is structured, and does not contain the messages of foreign exceptions."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
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
    logging.getLogger("some.library").info("plain %d", 3)
    try:
        fail()
    except ValueError:
        logging.getLogger("some.library").exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["level"], first["logger"], first["message"]) == (
        *("INFO", "some.library"),
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


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_debug_messages_of_libraries_are_never_logged(capsys, level):
    set_up_logs(LogConfig(level=level))
    noisy = logging.getLogger("noisy.library")
    noisy.setLevel(logging.DEBUG)
    noisy.debug("x = 1234.5")
    logging.getLogger("monitor.stream").debug("our own")
    err = capsys.readouterr().err
    assert "1234" not in err
    assert ("our own" in err) == (level == "debug")


@pytest.mark.parametrize("form", ["json", "text"])
def test_times_are_in_utc_and_say_so(capsys, form, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        set_up_logs(LogConfig(format=form))
        logging.getLogger("x").info("now")
    finally:
        monkeypatch.undo()
        time.tzset()
    stamp = re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", capsys.readouterr().err)
    assert stamp is not None
    logged = dt.datetime.fromisoformat(stamp[0])
    assert abs(dt.datetime.now(dt.UTC) - logged) < dt.timedelta(minutes=1)
