"""The people an audit is given: a table of any kind as encoded features, and back for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.bundle.manifest import BundleSpec, Feature
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.frames import encode_frame, numbers_of_frame
from offline_audit.fliptest.kinds import ToldColumns, columns_of, require_finite
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.plain_words import some

__all__ = ["People", "ToldColumns", "read_people"]


@dataclass(frozen=True, kw_only=True)
class People:
    """People as the maps take them, and as the model does.

    Attributes:
        features: Encoded, float32 `[n, d]`.
        columns: What the columns are.
        decode: From encoded rows to what the model is called with.
    """

    features: Features
    columns: Columns
    decode: Callable[[Features], Any]


def read_people(features: Any, columns: ToldColumns | None = None) -> People:
    """Read a table.

    Args:
        features: A data frame (words become categories, and are words again for the model), or an
            array `[n, d]` of encoded columns.
        columns: What the columns of an array are: a bundle's manifest, or `Columns`, or only their
            names. What is not told is read off the values: zeros and ones are binary, whole
            numbers integer, all else numeric. Of a data frame they also choose the columns, in
            their order; one that a manifest or `Columns` describe is encoded already, and is an
            array for the model.

    Raises:
        AuditInputError: It is no table of numbers and words, a value is missing, or the columns are
            not what is told of them.
    """
    if hasattr(features, "columns") and hasattr(features, "iloc"):
        return _of_frame(features, columns)
    try:
        table = np.asarray(features)
    except (ValueError, TypeError):
        raise AuditInputError("features: a table of numbers is needed, one row a person") from None
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise AuditInputError(
            f"features: a table of numbers is needed, not {table.ndim} axes of {table.dtype}; "
            "words are taken in a data frame, without a description of its columns"
        )
    require_finite(table, columns)
    encoded = np.ascontiguousarray(table, np.float32)
    return People(features=encoded, columns=columns_of(encoded, columns), decode=_as_it_is)


def _as_it_is(rows: Features) -> Features:
    return rows


def _of_frame(frame: Any, told: ToldColumns | None) -> People:
    if told is None:
        encoded, columns, decode = encode_frame(frame)
        return People(features=encoded, columns=columns, decode=decode)
    given = {str(name): name for name in frame.columns}
    expected = told.features if isinstance(told, Columns | BundleSpec) else told
    wanted = [each.name if isinstance(each, Feature) else str(each) for each in expected]
    if missing := [name for name in wanted if name not in given]:
        raise AuditInputError(f"features: no column {some(missing)}")
    chosen = frame[[given[name] for name in wanted]]
    if not isinstance(told, Columns | BundleSpec):
        return _of_frame(chosen, None)
    return read_people(numbers_of_frame(chosen), told)
