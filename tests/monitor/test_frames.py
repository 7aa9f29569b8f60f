"""Tables of a client are read by column name, whatever their library and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.errors import BadRequestError
from monitor.frames import encoded_rows, raw_tensors

pd: Any = pytest.importorskip("pandas")

COLUMNS = {"income": [1.5, 2.5], "years": [3, None], "owner": [True, False]}
ROWS = np.array([[1.5, 3, 1], [2.5, np.nan, 0]], np.float32)


@pytest.mark.parametrize("order", [["income", "years", "owner"], ["owner", "income", "years"]])
@pytest.mark.parametrize("kind", [dict, pd.DataFrame, pa.table])
def test_columns_are_taken_by_name(kind, order):
    table = kind({name: COLUMNS[name] for name in order})
    rows = encoded_rows(table, list(COLUMNS))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"income": [1], "owner": [1]}, "no column for 'years'; the inputs of the model are"),
        (COLUMNS | {"id": [1, 2]}, "the model has no input 'id'"),
        (
            pd.DataFrame(ROWS),
            "no column for 'income', 'years', 'owner'; the model has no input '0'",
        ),
        (COLUMNS | {"years": [1]}, "1 to 2 rows"),
        (COLUMNS | {"years": ["Jane", "1"]}, "column 'years': the value of row 0 is not a number"),
    ],
)
def test_other_columns_are_refused_by_name(table, message):
    with pytest.raises(BadRequestError, match=message) as error:
        encoded_rows(table, list(COLUMNS))
    assert "Jane" not in str(error.value)


def test_a_table_is_refused_if_the_server_does_not_name_the_features():
    with pytest.raises(BadRequestError, match="does not name the features"):
        encoded_rows(COLUMNS, [])


@pytest.mark.parametrize("value", [57, "full-time"])
def test_a_single_value_instead_of_a_column_is_refused(value):
    with pytest.raises(BadRequestError, match="'age' is a single value; send a sequence"):
        raw_tensors({"age": value}, {"age": "FP64"})
    with pytest.raises(BadRequestError, match="'age' is a single value"):
        encoded_rows({"age": value}, ["age"])
