"""The config reference says what the config says."""

from pathlib import Path

from monitor.config_reference import config_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "config.md"


def test_the_page_is_current():
    assert PAGE.read_text() == config_reference(), "run `make docs`"
