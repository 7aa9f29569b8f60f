"""`evenhand fit --suggest-spec` derives a spec from the data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from monitor import (
    read_spec,
)
from monitor.fitting.suggest import suggest_spec
from tests.commands import evenhand
from tests.monitor.fitting.conftest import WORLD


def test_the_suggested_spec_matches_the_world(user_files):
    spec = read_spec(user_files / "features.yaml")
    assert spec.features == WORLD.features
    assert spec.one_hot_groups == WORLD.one_hot_groups
    for column, attribute in zip(spec.protected_attributes, WORLD.attributes, strict=True):
        assert (column.name, set(column.groups)) == (attribute.name, set(attribute.groups))


def test_a_suggestion_handles_dropped_categories_and_unusual_names(tmp_path):
    table = {
        "a: b": [0.5, 1.5, 2.5],
        "job_cook": [1, 0, 0],
        "job_smith": [0, 1, 0],
        "gender": [0, 1, 0],
        "no": ["x", "y", None],
    }
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "spec.yaml").write_text(suggest_spec(tmp_path / "t.parquet"))
    spec = read_spec(tmp_path / "spec.yaml")
    assert [f.name for f in spec.features] == ["a: b", "job_cook", "job_smith", "gender"]
    assert spec.one_hot_groups[0].dropped == "other"
    assert [(a.name, a.feature) for a in spec.protected_attributes] == [
        ("gender", "gender"),
        ("no", None),
    ]


def test_suggest_spec_writes_to_a_new_file_only(user_files, tmp_path):
    target = tmp_path / "features.yaml"
    command = ("fit", "--suggest-spec", user_files / "train.parquet", "--spec", target)
    assert evenhand(*command).exit_code == 0
    again = evenhand(*command)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert Path(target).read_text() == (user_files / "features.yaml").read_text()
