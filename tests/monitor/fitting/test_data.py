"""Training data are read from Parquet and CSV files, and invalid data are rejected by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from monitor import (
    read_data,
    read_spec,
)
from monitor.errors import FitError
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
