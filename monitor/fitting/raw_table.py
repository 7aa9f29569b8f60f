"""Raw tables: columns as people filled them in, encoded for the classifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from monitor.bundle.encoding import Encoding
from monitor.bundle.inputs import RawCategory, RawNumber
from monitor.errors import EncodingError, FitError
from monitor.traffic.raw_columns import raw_column

__all__ = ["csv_options", "encoded_table"]

# Read as missing by pandas, but not by Arrow.
_FURTHER_NULLS = ("None", "<NA>")


def csv_options(inputs: Sequence[RawNumber | RawCategory]) -> csv.ConvertOptions:
    """Options to read a CSV file: categories are text, and a listed category is never missing."""
    options = csv.ConvertOptions(strings_can_be_null=True)
    categories = [raw for raw in inputs if isinstance(raw, RawCategory)]
    if inputs:
        listed = {name for raw in categories for name in raw.categories}
        nulls = [*options.null_values, *_FURTHER_NULLS]
        options.null_values = [text for text in nulls if text not in listed]
    options.column_types = {raw.name: pa.string() for raw in categories}
    return options


def encoded_table(
    table: pa.Table, inputs: Sequence[RawNumber | RawCategory], features: Sequence[str]
) -> NDArray[np.float32]:
    """Features `[n, d]` of a table with a column per raw input; other columns are ignored.

    Raises:
        FitError: A column is missing or has no usable values, or a value is refused.
    """
    encoding = Encoding(inputs, features)
    raw = np.empty((len(table), len(inputs)))
    for index, name in enumerate(encoding.names):
        count = table.column_names.count(name)
        if count != 1:
            found = "no column" if count == 0 else "more than one column"
            raise FitError(f"{found} {name!r}; the spec has it as a raw input")
        column = table.column(name)
        try:
            raw[:, index] = raw_column(column, encoding, index)
        except pa.ArrowException:
            expected = f"a {encoding.inputs[index].kind}"
            raise FitError(f"column {name!r} holds {column.type}, not {expected}") from None
    try:
        return encoding.encode(raw)
    except EncodingError as error:
        raise FitError(
            f"input {error.name!r} {error.reason} in {error.rows} rows, first in row {error.row}; "
            "say in the spec how such values are encoded, or remove the rows"
        ) from None
