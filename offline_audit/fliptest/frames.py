"""A data frame as encoded features, words among them one-hot, and rows as such a frame again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import is_missing
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.kinds import kind_of, named_columns, require_finite
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.plain_words import count

__all__ = ["encode_frame", "numbers_of_frame"]

# More distinct words than this in a column are names or ids, not categories.
_MOST_CATEGORIES = 200


def numbers_of_frame(frame: Any) -> NDArray[Any]:
    """Its values as one array `[n, d]`: of objects, if not all of them are numbers."""
    # As a whole, flags beside numbers would be objects.
    return np.column_stack([frame[name].to_numpy() for name in frame.columns])


def encode_frame(frame: Any) -> tuple[Features, Columns, Callable[[Features], Any]]:
    """Features `[n, d]`, what the columns are, and from such rows to a frame like this one.

    Raises:
        AuditInputError: A column holds neither numbers nor a few words, or a value is missing.
    """
    if not len(frame.columns):
        raise AuditInputError("features: the table has no columns")
    if not len(frame):
        raise AuditInputError("no rows were given")
    if len({str(name) for name in frame.columns}) < len(frame.columns):
        raise AuditInputError("columns: two have the same name")
    names, kinds, parts = list[str](), list[str](), list[NDArray[Any]]()
    groups, words = dict[str, list[str]](), dict[Any, NDArray[Any]]()
    for given in frame.columns:
        name, values = str(given), frame[given].to_numpy()
        if values.dtype.kind in "biuf" and not hasattr(frame[given].dtype, "categories"):
            require_finite(values[:, None], [name])
            names.append(name)
            kinds.append(kind_of(values))
            parts.append(values.astype(np.float32)[:, None])
            continue
        words[given], codes = _categories(values, name)
        members = [f"{name}={word}" for word in words[given]]
        groups[name] = members
        names += members
        kinds += ["onehot"] * len(members)
        parts.append((codes[:, None] == np.arange(len(members))).astype(np.float32))
    order = [(given, frame[given].dtype) for given in frame.columns]
    encoded = np.ascontiguousarray(np.concatenate(parts, 1))
    return encoded, named_columns(names, kinds, groups), _Decoder(type(frame), order, words)


def _categories(values: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """One value of each category, as it was, and the place of each row's."""
    lost = _missing(values)
    if lost.any():
        raise AuditInputError(
            f"features: {count(int(lost.sum()), 'value')} of {name} missing, the first in row "
            f"{int(np.argmax(lost)):,}; leave those rows out, or fill them as the model does"
        )
    _, first, codes = np.unique(values.astype(str), return_index=True, return_inverse=True)
    if len(first) > _MOST_CATEGORIES:
        raise AuditInputError(
            f"features: {name} has {len(first):,} different words, which are no categories; leave "
            "it out, or group them"
        )
    return values[first], codes


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    return np.array([is_missing(value) for value in values.tolist()], bool)


@dataclass(frozen=True)
class _Decoder:
    """Encoded rows as a data frame like the one that was given."""

    kind: type
    columns: list[tuple[Any, Any]]
    words: dict[Any, NDArray[Any]]

    def __call__(self, rows: Features) -> Any:
        place, found = 0, {}
        for name, _ in self.columns:
            if name in self.words:
                width = len(self.words[name])
                found[name] = self.words[name][rows[:, place : place + width].argmax(1)]
                place += width
            else:
                found[name] = rows[:, place]
                place += 1
        return self.kind(found).astype(dict(self.columns))
