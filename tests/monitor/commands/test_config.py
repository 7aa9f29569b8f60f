"""`evenhand config check` and `evenhand config reference`."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.commands.config import config_reference
from tests.commands import evenhand

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evenhand.yaml"


def test_check_prints_the_resulting_settings(file):
    file.write_text("compute: {threads: 4}\n")
    result = evenhand("config", "check", file)
    assert result.exit_code == 0
    assert "compute.threads = 4  (set)" in result.stdout
    assert "bundle.probe_rows = 64\n" in result.stdout


def test_check_rejects_an_unknown_field(file):
    file.write_text("compute: {thread: 4}\n")
    result = evenhand("config", "check", file)
    assert result.exit_code == 2
    assert "did you mean threads?" in result.stderr
    assert result.stdout == ""


def test_the_reference_page_is_current():
    assert PAGE.read_text() == config_reference(), "run `make docs`"


def test_reference_prints_the_page():
    assert evenhand("config", "reference").stdout == config_reference()
