"""Arrow columns of raw inputs as raw rows: numbers, and codes of categories.

Used for tables that people prepared and for columns of the log alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from monitor.bundle.encoding import MISSING, NOT_LISTED, Encoding
from monitor.traffic.columns import ENCODED_REQUEST

__all__ = ["encoded_rows", "raw_column"]

_BOOLEANS = {"true", "false"}


def raw_column(column: pa.ChunkedArray, encoding: Encoding, index: int) -> NDArray[np.float64]:
    """Raw rows of one input, `[n]`, from an Arrow column.

    Raises:
        pa.ArrowException: The column has neither numbers nor text, or a number is expected.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if encoding.inputs[index].kind == "number":
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
        return numbers
    words = column.combine_chunks().dictionary_encode()
    if isinstance(words, pa.ChunkedArray):
        words = words.combine_chunks()
    codes = np.append(_codes(words.dictionary, encoding, index), MISSING)
    # A null has the index −1, the last code.
    positions = pc.fill_null(words.indices, -1).to_numpy(zero_copy_only=False)
    raw: NDArray[np.float64] = codes[positions]
    return raw


def encoded_rows(
    table: pa.Table, encoding: Encoding, names: Sequence[str | None]
) -> NDArray[np.float32]:
    """Features `[n, d]` of raw inputs; NaN where a logged request had encoded features.

    Args:
        table: Rows of the log, or of a table of raw inputs.
        encoding: Encoding of the bundle.
        names: Column of every raw input; None for one that the table does not have, whose features
            are those of an arbitrary value.

    Raises:
        EncodingError: The encoding refuses a value, so it is not that of the log.
    """
    encoded = np.zeros(len(table), bool)
    if ENCODED_REQUEST in table.column_names:
        encoded = pc.fill_null(table[ENCODED_REQUEST], fill_value=True).to_numpy()
    raw = np.zeros((len(table), len(names)))
    for index, name in enumerate(names):
        if name is not None:
            raw[:, index] = raw_column(table[name], encoding, index)
    raw[encoded] = 0.0
    features = encoding.encode(raw)
    features[encoded] = np.nan
    return features


def _codes(values: pa.Array, encoding: Encoding, index: int) -> NDArray[np.float64]:
    """Codes of distinct values, `[k]`."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return encoding.codes_of_numbers(index, np.array(values.to_pylist(), bool))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return encoding.codes_of_numbers(index, values.to_numpy(zero_copy_only=False))
    texts = values.cast(pa.string()).to_pylist()
    codes = encoding.codes_of_texts(index, [text.encode() for text in texts])
    unmatched = np.flatnonzero(codes == NOT_LISTED)
    if len(unmatched):
        others = _as_written([texts[i] for i in unmatched.tolist()], encoding, index)
        codes[unmatched] = others
    return codes


def _as_written(texts: Sequence[str], encoding: Encoding, index: int) -> NDArray[np.float64]:
    """Codes of texts such as 1.0 and True, which a CSV file has for the categories 1 and true."""
    raw = encoding.inputs[index]
    assert raw.kind == "category"
    if set(raw.categories) <= _BOOLEANS:
        return encoding.codes_of_texts(index, [text.lower().encode() for text in texts])
    numbers = np.array([_number(text) for text in texts])
    codes = encoding.codes_of_numbers(index, numbers)
    codes[np.isnan(numbers)] = NOT_LISTED
    return codes


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
