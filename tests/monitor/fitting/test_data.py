"""Training data are read from Parquet and CSV files, and invalid data are rejected by name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from monitor import (
    FitSpec,
    fit,
    read_data,
    read_spec,
)
from monitor.errors import FitError
from monitor.fitting.spec import ProtectedColumn
from tests.commands import evenhand
from tests.monitor.fitting.conftest import WORLD, columns


def changed_table(change):
    """The user's table after a change."""
    table = columns(WORLD.people(3_000, seed=47))
    change(table)
    return pa.table(table)


def put(name, row, value):
    def change(table):
        table[name] = table[name].copy()
        table[name][row] = value

    return change


def rare(table):
    table["ethnicity"] = np.where(table["ethnicity"] == "dovar", "ardan", table["ethnicity"])
    table["ethnicity"][:12] = "dovar"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("income", 3, np.nan), "feature 'income' is missing or not finite in 1 rows"),
        (put("income", 3, np.inf), "feature 'income' is missing or not finite in 1 rows"),
        (put("part_time", 3, 0.5), "feature 'part_time' is binary, but neither 0 nor 1 in 1 rows"),
        (put("late_payments", 3, 0.5), "feature 'late_payments' is not an integer in 1 rows"),
        (put("sector=care", slice(None), 0), "one-hot group 'sector' is not one-hot"),
        (rare, "group 'dovar' of 'ethnicity' has 12 rows; at least 200 are required"),
        (put("sex", slice(None), "man"), "group 'woman' of 'sex' has 0 rows"),
        (put("sex", 0, "Jane"), "groups of 'sex' that are not in the spec, in 1 rows"),
        (put("sex", slice(0, 20), "x"), "not in the spec, in 20 rows: 'x'"),
        (lambda table: table.pop("income"), "no column 'income'"),
        (lambda table: table.update(income=["high"] * 3_000), "column 'income' holds string"),
    ],
)
def test_invalid_data_are_rejected_by_name(user_files, tmp_path, change, message):
    parquet.write_table(changed_table(change), tmp_path / "train.parquet")
    out = tmp_path / "bundle"
    result = evenhand(
        "fit", "--classifier", user_files / "model.pt2", "--data", tmp_path / "train.parquet",
        "--spec", user_files / "features.yaml", "--out", out,
    )  # fmt: skip
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Jane" not in result.stderr
    assert not out.exists()


def test_an_empty_cell_of_a_csv_is_a_missing_group(user_files, tmp_path):
    table: dict[str, Any] = columns(WORLD.people(300, seed=48))
    table["sex"] = ["" if i < 7 else g for i, g in enumerate(table["sex"])]
    csv.write_csv(pa.table(table), tmp_path / "a.csv")
    data = read_data(tmp_path / "a.csv", read_spec(user_files / "features.yaml"))
    assert (data.groups["sex"] == -1).sum() == 7


def test_errors_do_not_quote_rows_of_a_malformed_csv(user_files, tmp_path):
    (tmp_path / "a.csv").write_text("income,sex\n1,man\n2,woman,Jane Doe\n")
    with pytest.raises(FitError, match=r"not a valid \.csv file") as error:
        read_data(tmp_path / "a.csv", read_spec(user_files / "features.yaml"))
    assert "Jane" not in str(error.value)


def test_a_csv_file_gives_the_same_data(user_files, tmp_path):
    table = pa.table(columns(WORLD.people(500, seed=46)))
    parquet.write_table(table, tmp_path / "a.parquet")
    csv.write_csv(table, tmp_path / "a.csv")
    spec = read_spec(user_files / "features.yaml")
    one, other = (read_data(tmp_path / name, spec) for name in ("a.parquet", "a.csv"))
    assert np.allclose(one.features, other.features)
    assert np.array_equal(one.groups["ethnicity"], other.groups["ethnicity"])


def few(table):
    """Three small groups of two attributes, a value of a wrong kind, and a group without a name."""
    ethnicity = table["ethnicity"].copy()
    for group, rows in (("cori", 140), ("dovar", 30)):
        members = np.flatnonzero(ethnicity == group)
        ethnicity[members[rows:]] = "ardan"
    table["ethnicity"] = ethnicity
    table["sex"] = np.where(np.arange(len(ethnicity)) < 5, "woman", "man")
    put("part_time", 3, 0.5)(table)


def test_all_problems_of_the_data_are_reported_at_once(user_files):
    spec = read_spec(user_files / "features.yaml")
    with pytest.raises(FitError) as error:
        read_data(changed_table(few), spec).checked(spec)
    assert str(error.value).splitlines() == [
        "feature 'part_time' is binary, but neither 0 nor 1 in 1 rows",
        "group 'woman' of 'sex' has 5 rows; at least 200 are required",
        "small groups of 'sex': collect more rows",
        "group 'cori' of 'ethnicity' has 140 rows; at least 200 are required",
        "group 'dovar' of 'ethnicity' has 30 rows; at least 200 are required",
        (
            "small groups of 'ethnicity': collect more rows; or merge groups, such as `groups: "
            "[ardan, {other: [dovar, cori, belu]}]`; or leave them out: `groups: [ardan, belu]` "
            "and `excluded: [cori, dovar]`. A merged group can hide how each of its parts is "
            "treated: merge groups that are alike, not any small ones. `permutation_test` compares "
            "rates of decisions of groups too small for a fit"
        ),
    ]


def test_small_groups_and_a_foreign_model_come_with_the_other_problems(user_files, tmp_path):
    """One call names all: the missing column, the small groups and the kind of the model file."""

    def change(table):
        few(table)
        table["Income"] = table.pop("income")

    spec = read_spec(user_files / "features.yaml")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(FitError) as error:
        fit(tmp_path / "model.pkl", changed_table(change), spec, tmp_path / "b", compiled=False)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("the data: no column 'income' (did you mean 'Income'?); add it")
    assert lines[1] == "group 'woman' of 'sex' has 5 rows; at least 200 are required"
    assert "model.pkl" in lines[-1]
    assert "is a Python pickle" in lines[-1]


def test_a_column_with_none_of_the_groups_says_so(user_files):
    def change(table):
        table["sex"] = np.where(table["sex"] == "man", "m", "w")

    with pytest.raises(FitError) as error:
        read_data(changed_table(change), read_spec(user_files / "features.yaml"))
    message = str(error.value)
    assert "column 'sex' contains none of the groups of 'sex' that the spec lists" in message
    assert "('man', 'woman'); it contains 'm', 'w'; correct `groups`" in message.replace(
        "'w', 'm'", "'m', 'w'"
    )


def test_refused_values_name_the_field_that_accepts_them():
    spec = FitSpec.model_validate(
        {
            "model": {"name": "a", "version": "1"},
            "classifier": {"output": "logit"},
            "inputs": [
                {"name": "income", "kind": "number"},
                {"name": "job", "kind": "category", "categories": ["cook", "smith"]},
                {
                    "name": "degree", "kind": "category", "categories": ["low", "high"],
                    "encoding": "ordinal",
                },
            ],
            "protected_attributes": [{"name": "sex", "column": "sex", "groups": ["m", "w"]}],
        }
    )  # fmt: skip
    table = {
        "income": [1.0, None], "job": ["cook", "pilot"], "degree": ["low", None],
        "sex": ["m", "w"],
    }  # fmt: skip
    with pytest.raises(FitError) as error:
        read_data(pa.table(table), spec)
    advice = str(error.value)
    assert "`impute: …` for income" in advice
    assert "`unseen: zeros` or `unseen: {category: …}` for job" in advice
    assert "`missing: {code: …}` for degree" in advice
    assert "pilot" not in advice


def test_all_missing_columns_and_unlisted_groups_are_reported_at_once(user_files):
    def change(table):
        del table["income"], table["savings"]
        table["ethnicity"] = np.where(table["ethnicity"] == "dovar", "elun", table["ethnicity"])

    with pytest.raises(FitError) as error:
        read_data(changed_table(change), read_spec(user_files / "features.yaml"))
    income, savings, ethnicity = str(error.value).splitlines()
    assert income.startswith("the data: no column 'income'")
    assert savings.startswith("the data: no column 'savings'")
    assert "rows: 'elun'; add them to `groups`, or to `excluded`" in ethnicity


@pytest.mark.parametrize("codes", [[1, 2, 3, 9, None], [1.0, 2.0, 3.0, 9.0, np.nan]])
def test_groups_are_merged_excluded_and_counted(user_files, codes):
    spec = read_spec(user_files / "features.yaml")
    coded = ProtectedColumn(
        name="origin",
        column="code",
        groups=["1", {"other": [2, 3]}],  # type: ignore[arg-type]
        excluded=[9],  # type: ignore[arg-type]
    )
    spec = spec.model_copy(update={"protected_attributes": (coded,)})
    table: dict[str, Any] = columns(WORLD.people(1_000, seed=47))
    data = read_data(pa.table(table | {"code": codes * 200}), spec)
    assert data.groups["origin"].tolist() == [0, 1, 1, -1, -1] * 200
    assert data.merged == {"origin": {"other": {"2": 200, "3": 200}}}
    assert data.excluded == {"origin": {"9": 200}}
    assert coded.attribute.recorded_groups == ("1", "other", "9")


def test_a_data_frame_is_read_like_a_file(user_files, tmp_path):
    pd: Any = pytest.importorskip("pandas")
    spec = read_spec(user_files / "features.yaml")
    table = pa.table(columns(WORLD.people(500, seed=46)))
    frame = table.to_pandas()
    one, other = read_data(table, spec), read_data(frame[frame.columns[::-1]], spec)
    assert np.array_equal(one.features, other.features)
    assert np.array_equal(one.groups["ethnicity"], other.groups["ethnicity"])
    with pytest.raises(FitError, match="not a table"):
        read_data(pd.DataFrame({"a": ["Jane", 1]}), spec)
    with pytest.raises(FitError, match="not a table"):
        read_data(17, spec)
