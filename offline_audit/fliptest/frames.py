"""Data frames as encoded features with described columns, and back for the model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.sample import (
    ColumnSpec,
    FeatureTable,
    kind_of,
    named_columns,
    read_array,
    require_finite,
)
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import count
from offline_audit.validation import is_missing, ordered_columns

__all__ = ["read_frame"]

# A column with more distinct values holds names or ids, not categories.
_MAX_CATEGORIES = 200


def read_frame(
    frame: Any, spec: ColumnSpec | None = None, ignored: Collection[str] = ()
) -> FeatureTable:
    """Encode a data frame; text columns become categories, and text again for the model.

    Args:
        frame: Data frame of numbers and text.
        spec: Columns to use, in this order. If a manifest or `Columns` describes them, the frame
            is already encoded, and the model is called with arrays. A manifest describes all
            columns of the frame; otherwise columns that are not named are left out.
        ignored: Further columns that a frame described by a manifest may have.

    Raises:
        AuditInputError: A column is absent, unknown to the manifest, or holds neither numbers nor
            categories, or a value is missing.
    """
    if spec is None:
        return _encoded(frame)
    described = spec.features if isinstance(spec, Columns | BundleSpec) else spec
    names = [item.name if isinstance(item, Feature) else str(item) for item in described]
    if not isinstance(spec, BundleSpec):
        ignored = [str(column) for column in frame.columns]
    chosen = frame[ordered_columns(frame, names, ignored)]
    if not isinstance(spec, Columns | BundleSpec):
        return _encoded(chosen)
    # Column by column: the conversion of a whole frame makes objects of booleans next to numbers.
    return read_array(np.column_stack([chosen[name].to_numpy() for name in chosen.columns]), spec)


def _encoded(frame: Any) -> FeatureTable:
    if not len(frame.columns):
        raise AuditInputError("features: the table has no columns")
    if not len(frame):
        raise AuditInputError("features: the table has no rows")
    if len({str(column) for column in frame.columns}) < len(frame.columns):
        raise AuditInputError("columns: two columns have the same name")
    names, kinds, parts = list[str](), list[str](), list[NDArray[Any]]()
    groups, categories = dict[str, list[str]](), dict[Any, NDArray[Any]]()
    for column in frame.columns:
        name, values = str(column), frame[column].to_numpy()
        if values.dtype.kind in "biuf" and not hasattr(frame[column].dtype, "categories"):
            require_finite(values[:, None], [name])
            names.append(name)
            kinds.append(kind_of(values))
            parts.append(values.astype(np.float32)[:, None])
            continue
        categories[column], codes = _categories(values, name)
        members = [f"{name}={category}" for category in categories[column]]
        groups[name] = members
        names += members
        kinds += ["onehot"] * len(members)
        parts.append((codes[:, None] == np.arange(len(members))).astype(np.float32))
    dtypes = [(column, frame[column].dtype) for column in frame.columns]
    return FeatureTable(
        features=np.ascontiguousarray(np.concatenate(parts, 1)),
        columns=named_columns(names, kinds, groups),
        decode=_Decoder(type(frame), dtypes, categories),
    )


def _categories(values: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Distinct values of a column with their original type, and the code of each row."""
    missing = _missing(values)
    if missing.any():
        raise AuditInputError(
            f"features: {count(int(missing.sum()), 'value')} of {name} missing, the first in row "
            f"{int(np.argmax(missing)):,}; exclude those rows, or impute them as the model does"
        )
    _, first, codes = np.unique(values.astype(str), return_index=True, return_inverse=True)
    if len(first) > _MAX_CATEGORIES:
        raise AuditInputError(
            f"features: {name} has too many distinct values for a category ({len(first):,}, limit "
            f"{_MAX_CATEGORIES}); exclude the column, or bin its values"
        )
    return values[first], codes


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    return np.array([is_missing(value) for value in values.tolist()], bool)


@dataclass(frozen=True)
class _Decoder:
    """Function from encoded rows to a data frame with the original columns and types."""

    frame_type: type
    dtypes: list[tuple[Any, Any]]
    categories: dict[Any, NDArray[Any]]

    def __call__(self, rows: Features) -> Any:
        index, values = 0, {}
        for name, _ in self.dtypes:
            if name in self.categories:
                width = len(self.categories[name])
                codes = rows[:, index : index + width].argmax(1)
                values[name] = self.categories[name][codes]
                index += width
            else:
                values[name] = rows[:, index]
                index += 1
        return self.frame_type(values).astype(dict(self.dtypes))
