"""The log is structured, and does not contain the messages of foreign exceptions."""

from __future__ import annotations

import json
import logging

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
