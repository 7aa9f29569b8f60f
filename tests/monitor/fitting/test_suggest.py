"""`evenhand fit --suggest-spec` derives a spec from the data."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from monitor import RawCategory, World, read_data, read_spec
from monitor.fitting.column_roles import column_role, is_protected_name
from monitor.fitting.spec import LabelColumn
from monitor.fitting.suggest import suggest_spec
from tests.commands import evenhand
from tests.monitor.fitting.conftest import WORLD, columns


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
    }
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "spec.yaml").write_text(suggest_spec(tmp_path / "t.parquet"))
    spec = read_spec(tmp_path / "spec.yaml")
    assert [f.name for f in spec.features] == ["a: b", "job_cook", "job_smith", "gender"]
    assert spec.one_hot_groups[0].dropped == "other"
    assert [(a.name, a.feature) for a in spec.protected_attributes] == [("gender", "gender")]


ROWS = 1_000
RNG = np.random.default_rng(0)
RAW: dict[str, Any] = {
    "": range(ROWS),
    "customer_id": [f"C{row:05d}" for row in range(ROWS)],
    "income": [None if row % 10 == 0 else 1000.5 + row % 50 for row in range(ROWS)],
    "age": RNG.integers(18, 80, ROWS),
    "job": [("cook", "smith", None)[row % 3] for row in range(ROWS)],
    "late": np.where(np.arange(ROWS) % 20 == 0, -999, RNG.integers(0, 6, ROWS)),
    "is_student": RNG.random(ROWS) < 0.2,
    "essex_branch": RNG.integers(0, 2, ROWS),
    "ethnicGroup": ["north"] * 860 + ["west"] * 140,
    "note": [f"text {row}" for row in range(ROWS)],
    "day": [dt.date(2026, 1, 1)] * ROWS,
    "score": RNG.random(ROWS),
    "repaid": RNG.integers(0, 2, ROWS),
}


def test_raw_data_get_raw_inputs_and_nothing_that_production_does_not_have(tmp_path):
    csv.write_csv(
        pa.table({name: list(values) for name, values in RAW.items()}), tmp_path / "r.csv"
    )
    text = suggest_spec(tmp_path / "r.csv")
    (tmp_path / "spec.yaml").write_text(text)
    spec = read_spec(tmp_path / "spec.yaml")
    assert [(raw.name, raw.kind) for raw in spec.inputs] == [
        ("income", "number"), ("age", "number"), ("job", "category"), ("late", "number"),
        ("is_student", "category"), ("essex_branch", "number"),
    ]  # fmt: skip
    kinds = {feature.name: feature.kind for feature in spec.features}
    assert (kinds["is_student"], kinds["essex_branch"]) == ("binary", "binary")
    for line in (
        '#   "": the index of the table', "#   customer_id: an id", "note: text with 1,000 values",
        "day: date32[day], neither numbers nor text", "#   score: a prediction",
        "#   repaid: a label", "does -999 stand for a missing value?", "west (140 rows)",
        "encoding_from_sklearn(transformer).to_yaml()",
    ):  # fmt: skip
        assert line in text, line
    assert spec.label == LabelColumn(column="repaid", favourable="1")
    assert [(a.name, a.groups) for a in spec.protected_attributes] == [
        ("ethnicGroup", ("north", "west"))
    ]
    assert "#   job, late, is_student, essex_branch, age" in text
    data = read_data(tmp_path / "r.csv", spec)
    assert data.labels is not None
    assert data.labels.tolist() == list(RAW["repaid"])


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1", "__index_level_0__", "index"])
def test_index_columns_are_left_out(tmp_path, name):
    table = {name: list(range(60)), "income": RNG.random(60), "sex": ["a", "b"] * 30}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    text = suggest_spec(tmp_path / "t.parquet")
    assert "the index of the table" in text
    (tmp_path / "spec.yaml").write_text(text)
    assert [f.name for f in read_spec(tmp_path / "spec.yaml").features] == ["income"]


@pytest.mark.parametrize(
    ("name", "values", "line"),
    [
        ("target", [0, 1], "label: {column: target, favourable: 1}"),
        ("default", [0, 1], "label: {column: default, favourable: 0}"),
        ("loan_status", ["paid", "late"], "label: {column: loan_status, favourable: paid}"),
        ("class", ["g", "h"], "# label: {column: class, favourable: …}    # g or h"),
        ("income", [0.5, 1.5], "# label: {column: repaid, favourable: 1}"),
        ("marital_status", [0, 1], "# label: {column: repaid, favourable: 1}"),
    ],
)
def test_a_label_is_recognised_by_its_name_and_values(tmp_path, name, values, line):
    table = {"age": [20.5, 30, 40, 50], "sex": list("abab"), name: values * 2}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    text = suggest_spec(tmp_path / "t.parquet")
    assert text.splitlines()[-1] == line
    assert (f"#   {name}: a label" in text) == ("repaid" not in line)


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        ("sex", True), ("Gender", True), ("applicantSex", True), ("race", True), ("sex_code", True),
        ("maritalStatus", True), ("nationality", True), ("essex", False), ("trace", False),
        ("international_calls", False), ("race_time", True), ("grace_period", False),
    ],
)  # fmt: skip
def test_only_whole_words_make_an_attribute_protected(name, protected):
    assert is_protected_name(name) == protected


def test_whole_numbers_whose_name_says_so_are_codes(tmp_path):
    rows = np.arange(120)
    table = {"branch_code": rows % 3 + 1, "children": rows % 3 + 1, "sex": ["a", "b"] * 60}
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "spec.yaml").write_text(suggest_spec(tmp_path / "t.parquet"))
    code, children = read_spec(tmp_path / "spec.yaml").inputs
    assert isinstance(code, RawCategory)
    assert (code.encoding, code.classifier_codes) == ("code", (1.0, 2.0, 3.0))
    assert children.kind == "number"


def test_visible_one_hot_attributes_name_their_feature(tmp_path):
    world = World(visible=("ethnicity",))
    parquet.write_table(pa.table(columns(world.people(1_000, seed=1))), tmp_path / "t.parquet")
    (tmp_path / "spec.yaml").write_text(suggest_spec(tmp_path / "t.parquet"))
    attributes = {a.name: a for a in read_spec(tmp_path / "spec.yaml").protected_attributes}
    assert attributes["ethnicity"].feature == "ethnicity"
    assert attributes["ethnicity"].groups == ("ardan", "belu", "cori", "dovar")
    assert attributes["sex"].feature is None


def test_suggest_spec_writes_to_a_new_file_only(user_files, tmp_path):
    target = tmp_path / "features.yaml"
    command = ("fit", "--suggest-spec", user_files / "train.parquet", "--spec", target)
    assert evenhand(*command).exit_code == 0
    again = evenhand(*command)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert "Give another path as --spec, or delete the file first" in " ".join(again.stderr.split())
    assert Path(target).read_text() == (user_files / "features.yaml").read_text()


@pytest.mark.parametrize("others", ["uniform", "lognormal"])
def test_a_code_for_missing_numbers_is_asked_about_whatever_the_other_values(others):
    rng = np.random.default_rng(3)
    amounts = rng.lognormal(8, 1, 600) if others == "lognormal" else rng.uniform(50, 1250, 600)
    savings = np.where(rng.random(600) < 0.08, -999, amounts.round())
    role = column_role("savings", pa.chunked_array([savings]))
    assert role.missing_code == -999
    signed = np.where(savings == -999, savings, amounts - 600).round()
    assert column_role("balance", pa.chunked_array([signed])).missing_code is None


@pytest.mark.parametrize(
    "name", ["bank_decision", "approved", "decision", "granted", "hired", "loanApproved"]
)
def test_a_past_decision_is_no_input_and_no_attribute(tmp_path, name):
    rows = np.arange(200)
    table = {
        "income": rows + 0.5, "job": ["cook", "smith"] * 100, "sex": list("mwwm") * 50,
        name: rows // 3 % 2,
    }  # fmt: skip
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table(table), path)
    text = suggest_spec(path)
    assert f"#   {name}: a past decision" in text
    assert f"# label: {{column: {name}, favourable: …}}" in text
    parquet.write_table(pa.table(table | {"repaid": rows % 2}), path)
    text = suggest_spec(path)
    assert text.splitlines()[-1] == "label: {column: repaid, favourable: 1}"
    (tmp_path / "spec.yaml").write_text(text)
    spec = read_spec(tmp_path / "spec.yaml")
    assert [raw.name for raw in spec.inputs] == ["income", "job"]
    assert [attribute.name for attribute in spec.protected_attributes] == ["sex"]
    assert "{name: income, kind: number}  # steps: […]  # as in your training" in text
    (job,) = (line for line in text.splitlines() if "name: job" in line)
    assert job.endswith("# unseen: zeros  # if so in your training")


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("values", [[0, 1], [1, 2, 3], ["m", "w"]])
def test_a_suggested_spec_with_a_coded_attribute_is_valid(tmp_path, values, raw):
    table = {"income": np.arange(240) + 0.5, "sex": pa.array(values * (240 // len(values)))}
    if raw:
        table["job"] = ["cook", "smith"] * 120
    parquet.write_table(pa.table(table), tmp_path / "t.parquet")
    (tmp_path / "spec.yaml").write_text(suggest_spec(tmp_path / "t.parquet"))
    (attribute,) = read_spec(tmp_path / "spec.yaml").protected_attributes
    assert attribute.feature == (None if raw or values != [0, 1] else "sex")
