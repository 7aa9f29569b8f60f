"""The examples of docs/audits.md run, and its figures are correct."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from monitor import Feature, Model, ProtectedAttribute, export_classifier, write_bundle
from tests.bundles import small_spec
from tests.traffic_logs import (
    ATTRIBUTES,
    COLUMNS,
    MODEL,
    outcome_rows,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

PAGE = Path(__file__).parents[2] / "docs/audits.md"


def write_model(folder: Path) -> None:
    """Write the bundle of a model that decides by age and income, the features of the log."""
    spec = small_spec(
        model=Model(name=MODEL, version="1"),
        features=tuple(Feature(name=c.feature, kind="numeric") for c in COLUMNS.features),
        one_hot_groups=(),
        protected_attributes=tuple(
            ProtectedAttribute(name=name, groups=groups) for name, groups in ATTRIBUTES.items()
        ),
    )
    module = torch.nn.Linear(spec.width, 1)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.zeros_(module.bias)
    write_bundle(folder, spec, {"classifier.pt2": export_classifier(module, spec.width)})


def with_older_women(traffic: pa.Table, outcomes: pa.Table) -> pa.Table:
    """The same rows with a higher age for those whose outcome says female."""
    women = {
        (row["request_id"], row["row"])
        for row in outcomes.to_pylist()
        if row["group_sex"] == "female"
    }
    keys = zip(traffic["request_id"].to_pylist(), traffic["row"].to_pylist(), strict=True)
    shift = pa.array([1.5 * (key in women) for key in keys], pa.float32())
    index = traffic.schema.get_field_index("age")
    return traffic.set_column(index, traffic.schema.field(index), pc.add(traffic["age"], shift))


def test_the_examples_run(tmp_path, monkeypatch, capsys):
    outcomes = outcome_rows(rows := traffic_rows(800))
    write_traffic(tmp_path / "log", with_older_women(rows, outcomes))
    write_outcomes(tmp_path / "outcomes", outcomes)
    write_model(tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(example, PAGE.name, "exec"), names)  # noqa: S102 - our own text
    printed = capsys.readouterr().out
    assert "selection_rate" in printed
    assert "statistical_parity" in printed
    assert "female / male" in printed.partition("fliptest")[2]
    assert "change if they were male? advantaged ['age'" in printed


@pytest.mark.parametrize(("minority", "rate", "alarms"), [(0.5, 0.5, 0.32), (0.2, 0.3, 0.39)])
def test_a_fixed_threshold_reports_a_fair_model_as_often_as_the_page_says(minority, rate, alarms):
    rng, runs = np.random.default_rng(1), 100_000
    n = np.clip(rng.binomial(100, minority, runs), 1, 99)
    gap = rng.binomial(n, rate) / n - rng.binomial(100 - n, rate) / (100 - n)
    # Half a percent for the rounding of the page, and four standard errors.
    assert np.mean(np.abs(gap) > 0.1) == pytest.approx(alarms, abs=0.005 + 4 * 0.5 / runs**0.5)
