"""The people an audit is given: a table of any kind as encoded features, and back for the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature, OneHotGroup
from offline_audit.checked_arrays import is_missing
from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.plain_words import count, some

__all__ = ["People", "ToldColumns", "read_people"]

# More distinct words than this in a column are names or ids, not categories.
_MOST_CATEGORIES = 200
# Beyond this a float32 no longer holds every whole number.
_LARGEST = 1e30

ToldColumns = Columns | BundleSpec | Sequence[str]


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
            numbers integer, all else numeric.

    Raises:
        AuditInputError: It is no table of numbers and words, or a value is missing.
    """
    if hasattr(features, "columns") and hasattr(features, "iloc"):
        return _frame(features, columns)
    try:
        table = np.asarray(features)
    except (ValueError, TypeError):
        raise AuditInputError("features: a table of numbers is needed, one row a person") from None
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise AuditInputError(
            f"features: a table of numbers is needed, not {table.ndim} axes of {table.dtype}; "
            "words are taken in a data frame"
        )
    _require_finite(table, columns)
    encoded = np.ascontiguousarray(table, np.float32)
    return People(features=encoded, columns=_columns(encoded, columns), decode=_as_it_is)


def _as_it_is(rows: Features) -> Features:
    return rows


def _columns(encoded: Features, told: ToldColumns | None) -> Columns:
    width = encoded.shape[1]
    if isinstance(told, BundleSpec):
        told = Columns(features=told.features, one_hot_groups=told.one_hot_groups)
    names = [f"x{place}" for place in range(width)]
    if told is not None:
        names = list(told.names if isinstance(told, Columns) else map(str, told))
    if len(names) != width:
        raise AuditInputError(f"columns: {len(names)} are described, but the table has {width}")
    if isinstance(told, Columns):
        _require_one_hot(encoded, told)
        return told
    kinds = [_kind(encoded[:, place]) for place in range(width)]
    return _named(names, kinds, ())


def _named(names: Sequence[str], kinds: Sequence[str], groups: Sequence[OneHotGroup]) -> Columns:
    if len(set(names)) != len(names):
        raise AuditInputError("columns: two have the same name")
    try:
        features = tuple(
            Feature(name=name, kind=kind)  # type: ignore[arg-type]
            for name, kind in zip(names, kinds, strict=True)
        )
    except ValueError:
        raise AuditInputError("columns: a name is empty or too long") from None
    return Columns(features=features, one_hot_groups=tuple(groups))


def _kind(values: NDArray[Any]) -> str:
    if ((values == 0) | (values == 1)).all():
        return "binary"
    return "integer" if (values == np.floor(values)).all() else "numeric"


def _require_finite(table: NDArray[Any], told: ToldColumns | None) -> None:
    if table.dtype.kind != "f":
        return
    wrong = ~np.isfinite(table) | (np.abs(np.nan_to_num(table)) > _LARGEST)
    if not wrong.any():
        return
    place = int(np.argmax(wrong.any(0)))
    name = f"column {place}"
    if told is not None:
        names = told.names if isinstance(told, Columns) else ()
        name = names[place] if place < len(names) else name
    raise AuditInputError(
        f"features: {count(int(wrong.sum()), 'value')} missing or infinite, the first in {name}, "
        f"row {int(np.argmax(wrong[:, place])):,}; leave those rows out, or fill them as the model "
        "does"
    )


def _require_one_hot(encoded: Features, columns: Columns) -> None:
    for variable in columns.variables:
        if variable.kind == "category":
            part = encoded[:, list(variable.columns)]
            total = part.sum(1)
            fits = ((part == 0) | (part == 1)).all(1) & (
                (total == 1) | (variable.dropped & (total == 0))
            )
            if not fits.all():
                wrong = int((~fits).sum())
                raise AuditInputError(
                    f"features: {count(wrong, 'row')} not one-hot in {variable.name}, the first "
                    f"{int(np.argmin(fits)):,}"
                )


def _frame(frame: Any, told: ToldColumns | None) -> People:
    """A data frame: its columns are the variables, words among them one-hot inside."""
    if told is not None:
        names = [str(name) for name in frame.columns]
        expected = told.features if isinstance(told, Columns | BundleSpec) else told
        wanted = [f.name if isinstance(f, Feature) else str(f) for f in expected]
        if missing := [name for name in wanted if name not in names]:
            raise AuditInputError(f"features: no column {some(missing)}")
        return read_people(frame[wanted].to_numpy(), told)
    names, kinds, parts = list[str](), list[str](), list[NDArray[Any]]()
    groups, words = list[OneHotGroup](), dict[Any, list[Any]]()
    for given in frame.columns:
        name, values = str(given), frame[given].to_numpy()
        if values.dtype.kind in "biuf":
            _require_finite(values[:, None].astype(float), [name])
            names.append(name)
            kinds.append(_kind(values.astype(np.float64)))
            parts.append(values.astype(np.float32)[:, None])
            continue
        categories, codes = _categories(values, name)
        words[given] = categories
        members = tuple(f"{name}={category}" for category in categories)
        groups.append(OneHotGroup(name=name, features=members))
        names += members
        kinds += ["onehot"] * len(members)
        parts.append((codes[:, None] == np.arange(len(members))).astype(np.float32))
    if not parts:
        raise AuditInputError("features: the table has no columns")
    columns = _named(names, kinds, groups)
    order = [(given, frame[given].dtype) for given in frame.columns]
    encoded = np.ascontiguousarray(np.concatenate(parts, 1))
    return People(
        features=encoded, columns=columns, decode=_FrameDecoder(type(frame), order, words)
    )


def _categories(values: NDArray[Any], name: str) -> tuple[list[Any], NDArray[np.intp]]:
    lost = [is_missing(value) for value in values.tolist()]
    if any(lost):
        raise AuditInputError(
            f"features: {count(sum(lost), 'value')} of {name} missing, the first in row "
            f"{lost.index(True):,}; leave those rows out, or fill them as the model does"
        )
    try:
        found, codes = np.unique(values.astype(str), return_inverse=True)
    except (TypeError, ValueError):
        raise AuditInputError(f"features: {name} holds neither numbers nor words") from None
    if len(found) > _MOST_CATEGORIES:
        raise AuditInputError(
            f"features: {name} has {len(found):,} different words, which are no categories; leave "
            "it out, or group them"
        )
    return found.tolist(), codes


@dataclass(frozen=True)
class _FrameDecoder:
    """Encoded rows as a data frame like the one that was given."""

    kind: type
    columns: list[tuple[Any, Any]]
    words: dict[Any, list[Any]]

    def __call__(self, rows: Features) -> Any:
        place, found = 0, {}
        for name, dtype in self.columns:
            if name in self.words:
                width = len(self.words[name])
                codes = rows[:, place : place + width].argmax(1)
                found[name] = np.array(self.words[name], object)[codes]
                place += width
            else:
                found[name] = rows[:, place].astype(dtype)
                place += 1
        return self.kind(found).astype(dict(self.columns))
