"""The log is structured, and what others' exceptions quote stays out of it."""

from __future__ import annotations

import json
import logging

import pytest

from monitor.logs import set_up_logs, without_values
from monitor.settings import LogConfig


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def fail() -> None:
    raise ValueError("income 1234.5 is too high")


def test_an_exception_is_told_by_its_kind_and_place():
    with pytest.raises(ValueError, match="income") as failure:
        fail()
    told = without_values(failure.value)
    assert told.startswith("ValueError at monitor/test_logs.py:")
    assert "1234" not in told


def test_lines_are_objects_and_a_librarys_trace_is_cut(capsys):
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


def test_text_and_levels_are_as_configured(capsys):
    set_up_logs(LogConfig(format="text", level="warning"))
    logging.getLogger("x").info("quiet")
    logging.getLogger("x").warning("loud")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING loud")
