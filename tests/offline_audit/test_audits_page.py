"""The page on audits: its example runs as it stands, and its figures are true."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.traffic_logs import outcome_rows, traffic_rows, write_outcomes, write_traffic

PAGE = Path(__file__).parents[2] / "docs/audits.md"


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    rows = traffic_rows(800)
    write_traffic(tmp_path / "log", rows)
    write_outcomes(tmp_path / "outcomes", outcome_rows(rows))
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, PAGE.name, "exec"), {})  # noqa: S102 - our own words
    printed = capsys.readouterr().out
    assert "selection_rate" in printed
    assert "statistical_parity" in printed


@pytest.mark.parametrize(("minority", "rate", "told"), [(0.5, 0.5, 0.32), (0.2, 0.3, 0.39)])
def test_the_rule_of_a_fixed_difference_calls_a_fair_model_unfair_as_often_as_told(
    minority, rate, told
):
    rng, runs = np.random.default_rng(1), 100_000
    n = np.clip(rng.binomial(100, minority, runs), 1, 99)
    gap = rng.binomial(n, rate) / n - rng.binomial(100 - n, rate) / (100 - n)
    # Half a percent for the rounding of the page, and four standard errors.
    assert np.mean(np.abs(gap) > 0.1) == pytest.approx(told, abs=0.005 + 4 * 0.5 / runs**0.5)
