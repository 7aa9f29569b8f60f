"""The people behind the rows of a window, from the pseudonyms of subjects in its outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from offline_audit.rendering import are, count
from offline_audit.units import split_units
from offline_audit.validation import UNKNOWN

__all__ = ["Subjects", "with_one_group"]

Int = NDArray[np.int64]


class Subjects:
    """Units of rows that are read in batches; a row without a subject is a unit of its own."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._parts: list[Int] = []

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Add the subjects of further rows, `[n]`."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk in chunks:
            encoded = chunk.cast(pa.string()).dictionary_encode()
            words = encoded.dictionary.to_pylist()
            numbers = [self._numbers.setdefault(word, len(self._numbers)) for word in words]
            indices = encoded.indices.fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
            self._parts.append(np.array([*numbers, UNKNOWN], np.int64)[indices])

    @property
    def units(self) -> Int:
        """Unit of each row, `[n]`."""
        codes = np.concatenate([*self._parts, np.empty(0, np.int64)])
        own = np.flatnonzero(codes == UNKNOWN)
        codes[own] = len(self._numbers) + np.arange(len(own))
        return codes

    @property
    def warnings(self) -> tuple[str, ...]:
        """How many rows have no subject, if only some have one."""
        codes = np.concatenate([*self._parts, np.empty(0, np.int64)])
        without = int(np.count_nonzero(codes == UNKNOWN))
        if not without:
            return ()
        warning = (
            f"{without:,} of {len(codes):,} rows {are(without)} without a subject; each counts as "
            "another person."
        )
        return (warning,)


def with_one_group(units: Int, codes: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Group codes in which people with several groups have an unknown one, and a warning of it.

    Args:
        units: Unit of each row, `[n]`.
        codes: Group of each row; `UNKNOWN` if it is unknown, `[n]`.
    """
    split = split_units(units, codes)
    if not len(split):
        return codes, ()
    affected = np.isin(units, split)
    n = int(np.count_nonzero(affected))
    warning = (
        f"{count(n, 'row')} of {count(len(split), 'person', 'people')} with several groups "
        f"{are(n)} excluded."
    )
    return np.where(affected, UNKNOWN, codes), (warning,)
