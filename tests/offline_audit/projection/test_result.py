"""A result prints as text and HTML, and becomes JSON and a figure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from offline_audit import linear_distances
from tests.offline_audit.projection.projected import projected

RNG = np.random.default_rng(0)
N = 6_000
GROUPS = RNG.choice(["f", "m"], N, p=[0.3, 0.7])
X = RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] - 0.3 * (GROUPS == "f")[:, None] * [1, 0, 0]
W = np.array([1.0, 0.05, 0.0])
SCORE = X @ W
DECISIONS = (SCORE >= 0).astype(int)
LABELS = (SCORE + RNG.normal(size=N) >= 0).astype(int)
BOUNDARY: Any = linear_distances(X, W, 0.0, feature_names=["income", "age", "noise"])


def test_a_result_prints_in_a_terminal_and_a_notebook_and_becomes_json_and_a_figure(tmp_path):
    odd = np.where(GROUPS == "f", "<b>f</b>", GROUPS)
    result = projected(DECISIONS, BOUNDARY, odd, criterion="equalized_odds", labels=LABELS)
    printed = str(result)
    assert printed.startswith("Do groups get decision 1 equally often within each label?")
    assert "Smallest fair change" in printed
    assert "income" in printed
    assert "<b>f</b>" not in result._repr_html_()
    assert "&lt;b&gt;f&lt;/b&gt;" in result._repr_html_()
    data = json.loads(json.dumps(result.to_dict()))
    assert data["p_value"] == result.p_value
    assert data["rejected"] is True
    assert data["cost_per_row"] == result.statistic / N
    assert data["explanation"]["moves"][0]["rows"] > 0
    result.plot().savefig(tmp_path / "gaps.png")
    assert (tmp_path / "gaps.png").stat().st_size > 5_000


def test_a_figure_names_the_attribute_if_there_are_several():
    race = RNG.choice(["x", "y"], N)
    one = projected(DECISIONS, BOUNDARY, {"sex": GROUPS}).plot()
    both = projected(DECISIONS, BOUNDARY, {"sex": GROUPS, "race": race}).plot()
    assert [label.get_text() for label in one.axes[0].get_yticklabels()] == ["f – m"]
    labels = [label.get_text() for label in both.axes[0].get_yticklabels()]
    assert labels == ["f – m", "x – y"]
    headings = [text.get_text() for text in both.axes[0].texts if text.get_weight() == "bold"]
    assert headings == ["sex", "race"]


def test_a_figure_without_gaps_has_a_message(tmp_path):
    nothing = projected(np.ones(N), BOUNDARY.distances, GROUPS).plot()
    assert [text.get_text() for text in nothing.axes[0].texts] == ["No gaps were computed."]
    nothing.savefig(tmp_path / "empty.png")
