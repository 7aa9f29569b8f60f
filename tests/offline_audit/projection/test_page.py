"""The examples of the page on the projection test run, and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/methods/projection.md"
CODE = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
SHOWN = re.findall(r"```\n\n```\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]


def run(code: str) -> None:
    exec(compile(code, PAGE.name, "exec"), {})  # noqa: S102 - code of our own page


def test_the_worked_example_prints_what_the_page_shows(capsys):
    run(CODE[0])
    assert capsys.readouterr().out == SHOWN


def test_the_example_on_adult_runs(tmp_path, monkeypatch, capsys):
    candidates = [p / "shared/data/adult/adult.data" for p in ROOT.parents]
    data = next((path for path in candidates if path.exists()), None)
    if data is None:
        pytest.skip("the Adult data are not on this machine")
    (tmp_path / "adult.data").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    run(CODE[1])
    printed = capsys.readouterr().out
    assert "sex: Female – Male" in printed
    assert "Smallest fair change" in printed
