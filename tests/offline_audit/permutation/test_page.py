"""The examples of the page on permutation tests run and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

PAGE = Path(__file__).parents[3] / "docs/methods/permutation.md"
ADULT = Path(__file__).parents[4] / "shared/data"


def blocks(language: str) -> list[str]:
    matches = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [text for name, text in matches if name == language]


def run(block: str, names: dict[str, object]) -> None:
    exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102 - code of our own page


def same(printed: str, expected: str) -> bool:
    return printed.split() == expected.split()


def test_the_worked_example_prints_what_the_page_shows(capsys):
    names: dict[str, object] = {}
    run(blocks("python")[0], names)
    assert same(capsys.readouterr().out, blocks("")[0])
    run(blocks("python")[1], names)
    assert same(capsys.readouterr().out, blocks("")[1])
    run(blocks("python")[2], names)
    assert same(capsys.readouterr().out, blocks("")[2])


def test_the_example_on_adult_prints_what_the_page_shows(monkeypatch, capsys):
    if not ADULT.exists():
        pytest.skip("the data sets of the papers are not available")
    example = blocks("python")[3]
    monkeypatch.chdir(ADULT)
    names: dict[str, object] = {"LogisticRegression": LogisticRegression}
    run("import numpy as np\nfrom offline_audit import permutation_test", names)
    run(example, names)
    assert same(capsys.readouterr().out, blocks("")[3])
