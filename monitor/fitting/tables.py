"""Tables of data: files and data frames, their columns, and raw columns encoded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from monitor.bundle.encoding import Encoding
from monitor.bundle.inputs import RawCategory, RawNumber
from monitor.errors import EncodingError, FitError
from monitor.traffic.raw_columns import raw_column

__all__ = ["column_of", "encoded_table", "numbers_of", "read_table", "texts_of"]

# Read as missing by pandas, but not by Arrow.
_FURTHER_NULLS = ("None", "<NA>")


def read_table(
    source: Path | str | Any, inputs: Sequence[RawNumber | RawCategory] = ()
) -> pa.Table:
    """Read a file or convert a data frame; the categories of raw inputs in a CSV file are text.

    Raises:
        FitError: The file cannot be read, or the source is no table.
    """
    if not isinstance(source, Path | str):
        return _as_table(source)
    path = Path(source)
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        if path.suffix == ".csv":
            return csv.read_csv(path, convert_options=_csv_options(inputs))
    except FileNotFoundError:
        raise FitError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException):
        # Arrow's message may quote a row.
        raise FitError(f"{path}: not a valid {path.suffix} file") from None
    raise FitError(f"{path}: expected a .parquet or a .csv file")


def _as_table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    try:
        if hasattr(frame, "iloc"):
            return pa.Table.from_pandas(frame, preserve_index=False)
        return frame.to_arrow() if hasattr(frame, "to_arrow") else pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        # Arrow's message may quote a value.
        raise FitError(
            "the data are not a table of numbers, text and booleans; pass a file, a data frame or "
            "a pyarrow table"
        ) from None


def column_of(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    """A column by name.

    Args:
        table: Table.
        name: Name of the column.
        where: Name of the table in messages.

    Raises:
        FitError: There is no such column, or more than one.
    """
    count = table.column_names.count(name)
    if count == 0:
        raise FitError(
            f"{where}: no column {name!r}{similar(table, name)}; add it, or remove it from the spec"
        )
    if count > 1:
        raise FitError(f"{where}: more than one column {name!r}; rename or remove all but one")
    return table.column(name)


def similar(table: pa.Table, name: str) -> str:
    """A question whether a similar column is meant; empty if there is none."""
    lower = {column.lower(): column for column in table.column_names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f" (did you mean {lower[close[0]]!r}?)" if close else ""


def numbers_of(column: pa.ChunkedArray, name: str, where: str) -> NDArray[np.float64]:
    """Values of a column as numbers, NaN where one is missing.

    Raises:
        FitError: The column does not hold numbers.
    """
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        # Missing values become NaN, which is checked with other non-finite values.
        numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise FitError(f"{where}: column {name!r} holds {column.type}, not numbers") from None
    return numbers


def texts_of(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    """Values as text, as a spec names them: whole numbers without a decimal point.

    Raises:
        FitError: The column holds neither text nor numbers.
    """
    try:
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
            whole = column.cast(pa.int64(), safe=False)
            if pc.all(pc.equal(whole.cast(column.type), column)).as_py():
                column = whole
        return column.cast(pa.string())
    except pa.ArrowException:
        raise FitError(f"{where}: column {name!r} contains neither text nor numbers") from None


def _csv_options(inputs: Sequence[RawNumber | RawCategory]) -> csv.ConvertOptions:
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
        FitError: A column is missing or has no usable values, or a value is refused; the message
            lists all columns.
    """
    encoding = Encoding(inputs, features)
    raw, problems = np.empty((len(table), len(inputs))), list[str]()
    for index, name in enumerate(encoding.names):
        count = table.column_names.count(name)
        if count != 1:
            found = "no column" if count == 0 else "more than one column"
            hint = similar(table, name) if count == 0 else ""
            problems.append(f"{found} {name!r}{hint}; the spec has it as a raw input")
            continue
        column = table.column(name)
        try:
            raw[:, index] = raw_column(column, encoding, index)
        except pa.ArrowException:
            expected = f"a {encoding.inputs[index].kind}"
            problems.append(f"column {name!r} holds {column.type}, not {expected}")
    if problems:
        raise FitError("\n".join(problems))
    if refused := encoding.refused(raw):
        raise FitError(
            "\n".join(
                f"input {e.name!r} {e.reason} in {e.rows} rows, first in row {e.row}"
                for e in refused
            )
            + f"\nSay in the spec how such values are encoded, as in the classifier's training "
            f"({'; '.join(_remedies(encoding, refused))}), or remove the rows"
        )
    return encoding.encode(raw)


def _remedies(encoding: Encoding, refused: Iterable[EncodingError]) -> list[str]:
    """The fields of the spec that say how refused values are encoded."""
    kinds = {raw.name: raw for raw in encoding.inputs}
    fields: dict[str, list[str]] = {}
    for error in refused:
        raw = kinds[error.name]
        if isinstance(raw, RawNumber):
            field = "`impute: …`"
        else:
            what = "missing" if error.reason == "is missing" else "unseen"
            zeros = f"`{what}: zeros` or " if raw.encoding == "onehot" else ""
            value = "code" if raw.encoding == "ordinal" else "category"
            field = f"{zeros}`{what}: {{{value}: …}}`"
        fields.setdefault(field, []).append(error.name)
    return [f"{field} for {', '.join(names)}" for field, names in fields.items()]
