"""Tables of a client as tensors, by column name: pandas, polars, pyarrow, or a mapping of columns.

No library of data frames is imported: a table has the names of its columns, and a column by name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.errors import BadRequestError
from monitor.tensors import category_text

__all__ = ["RawTensor", "encoded_rows", "is_table", "raw_tensors"]

# Name, datatype, number of rows and raw bytes of a tensor.
RawTensor = tuple[str, str, int, bytes]


def is_table(value: Any) -> bool:
    """Whether a value has named columns."""
    return isinstance(value, Mapping) or hasattr(value, "column_names") or hasattr(value, "columns")


def raw_tensors(table: Any, inputs: Mapping[str, str]) -> list[RawTensor]:
    """One tensor per raw input.

    Args:
        table: Table with a column per raw input.
        inputs: Datatype by raw input, FP64 or BYTES.

    Raises:
        BadRequestError: Columns are missing or unknown, a column has other values than its
            datatype, or columns differ in length.
    """
    _check_names(_names(table), list(inputs))
    tensors = [_tensor(name, datatype, table[name]) for name, datatype in inputs.items()]
    _check_lengths({count for _, _, count, _ in tensors})
    return tensors


def encoded_rows(table: Any, features: Sequence[str]) -> NDArray[np.float32]:
    """Columns of a table as rows of the model's input, in its order, `[n, d]`.

    Args:
        table: Table with a column of numbers per feature, in any order.
        features: Names of the features in the order of the model's input; empty if they are not
            known.

    Raises:
        BadRequestError: The features are not known, columns are missing or unknown, a column has
            other values than numbers, or columns differ in length.
    """
    if not features:
        raise BadRequestError(
            "the server does not name the features of the model, so a table cannot be sent by "
            "column name; send an array with the columns in the order of the model's input"
        )
    _check_names(_names(table), features)
    columns = [_numbers(name, table[name]) for name in features]
    _check_lengths({len(column) for column in columns})
    return np.stack(columns, 1).astype("<f4")


def _check_lengths(rows: set[int]) -> None:
    if len(rows) > 1:
        raise BadRequestError(f"the columns have {min(rows)} to {max(rows)} rows; they must agree")


def _names(table: Any) -> list[str]:
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    names = table.column_names if hasattr(table, "column_names") else table.columns
    return [str(name) for name in names]


def _check_names(names: Sequence[str], expected: Sequence[str]) -> None:
    missing = [name for name in expected if name not in names]
    extra = [name for name in names if name not in expected]
    problems = [
        *([f"there is no column for {_listed(missing)}"] if missing else []),
        *([f"the model has no input {_listed(extra)}"] if extra else []),
    ]
    if not problems and len(set(names)) < len(names):
        problems = ["two columns have the same name"]
    if problems:
        raise BadRequestError(
            f"{'; '.join(problems)}; the inputs of the model are {_listed(expected)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _tensor(name: str, datatype: str, column: Any) -> RawTensor:
    if datatype == "BYTES":
        values = _elements(name, column)
        texts = [b"" if _is_missing(v) else category_text(v).encode() for v in values]
        data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
        return name, datatype, len(texts), data
    numbers = _numbers(name, column)
    return name, datatype, len(numbers), numbers.tobytes()


def _numbers(name: str, column: Any) -> NDArray[np.float64]:
    """Elements of a column `[n]`, NaN where one is missing."""
    numbers = []
    for row, value in enumerate(_elements(name, column)):
        try:
            numbers.append(np.nan if _is_missing(value) else float(value))
        except (TypeError, ValueError):
            raise BadRequestError(
                f"column {name!r}: the value of row {row} is not a number"
            ) from None
    return np.array(numbers, "<f8")


def _elements(name: str, column: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, method):
            column = getattr(column, method)()
            break
    if isinstance(column, str | bytes) or not isinstance(column, Iterable):
        raise BadRequestError(
            f"column {name!r} is a single value; send a sequence with one value per row, also for "
            "one row"
        )
    return list(column)


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the missing value of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value
