"""What the columns of a table are: told, and held against the values, or read off these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature, OneHotGroup
from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features
from offline_audit.plain_words import count

__all__ = [
    "LARGEST",
    "ToldColumns",
    "columns_of",
    "fits_kind",
    "kind_of",
    "named_columns",
    "require_finite",
]

# Its square is still a number, and so is the sum of many.
LARGEST = 1e30

ToldColumns = Columns | BundleSpec | Sequence[str]


def columns_of(encoded: Features, told: ToldColumns | None) -> Columns:
    """What the columns of an array are.

    Raises:
        AuditInputError: They are not what is told of them, or there are none.
    """
    width = encoded.shape[1]
    if width == 0:
        raise AuditInputError("features: the table has no columns")
    if isinstance(told, BundleSpec):
        told = Columns(features=told.features, one_hot_groups=told.one_hot_groups)
    names = _names(told) or [f"x{place}" for place in range(width)]
    if len(names) != width:
        raise AuditInputError(f"columns: {len(names)} are described, but the table has {width}")
    if isinstance(told, Columns):
        _require_whole_groups(told)
        for variable in told.variables:
            _require_kind(encoded[:, list(variable.columns)], variable)
        return told
    return named_columns(names, [kind_of(encoded[:, place]) for place in range(width)])


def named_columns(
    names: Sequence[str], kinds: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None
) -> Columns:
    """Columns of these names and kinds, and which of them are one-hot together.

    Raises:
        AuditInputError: A name cannot be one.
    """
    if len(set(names)) != len(names):
        raise AuditInputError("columns: two have the same name")
    try:
        return Columns(
            features=tuple(
                Feature(name=name, kind=kind)  # type: ignore[arg-type]
                for name, kind in zip(names, kinds, strict=True)
            ),
            one_hot_groups=tuple(
                OneHotGroup(name=name, features=tuple(members))
                for name, members in (groups or {}).items()
            ),
        )
    except ValueError:
        # Not its text, which quotes the name, and words are people's.
        raise AuditInputError(
            "columns: a name or a word is empty, longer than 200 letters or not printable"
        ) from None


def kind_of(values: NDArray[Any]) -> str:
    """As what these numbers can pass, `[n]`."""
    if ((values == 0) | (values == 1)).all():
        return "binary"
    return "integer" if (values == np.floor(values)).all() else "numeric"


def require_finite(table: NDArray[Any], told: ToldColumns | None) -> None:
    """Refuse what is missing, infinite or too large, `[n, d]`.

    Raises:
        AuditInputError: There is any; the message says where, not what.
    """
    if table.dtype.kind != "f":
        _require_exact(table, told)
        return
    # What is not a number is not smaller either.
    wrong = ~(np.abs(table.astype(np.float64)) <= LARGEST)
    if not wrong.any():
        return
    place, names = int(np.argmax(wrong.any(0))), _names(told)
    name = names[place] if place < len(names) else f"column {place}"
    raise AuditInputError(
        f"features: {count(int(wrong.sum()), 'value')} missing, infinite or beyond 1e30, the first "
        f"in {name}, row {int(np.argmax(wrong[:, place])):,}; leave those rows out, or fill them "
        "as the model does"
    )


def _require_exact(table: NDArray[Any], told: ToldColumns | None) -> None:
    """Whole numbers beyond 2²⁴ are others as float32, and so might be decisions."""
    if table.dtype.kind == "b":
        return
    lost = table.astype(np.float32).astype(np.float64) != table
    if lost.any():
        place, names = int(np.argmax(lost.any(0))), _names(told)
        name = names[place] if place < len(names) else f"column {place}"
        raise AuditInputError(
            f"features: whole numbers of {name} are too long for a float32, in which the model is "
            "asked; divide them, or leave them out if they are ids"
        )


def _names(told: ToldColumns | None) -> list[str]:
    if isinstance(told, Columns | BundleSpec):
        return [feature.name for feature in told.features]
    return [] if told is None else [str(name) for name in told]


def _require_whole_groups(columns: Columns) -> None:
    """One-hot columns and the groups that list them must fit, as a manifest makes sure."""
    onehot = sorted(each.name for each in columns.features if each.kind == "onehot")
    listed = sorted(name for group in columns.one_hot_groups for name in group.features)
    if onehot != listed or len(set(columns.names)) != len(columns.names):
        raise AuditInputError(
            "columns: every name must stand there once, and every column of kind onehot in one "
            "one-hot group"
        )


def fits_kind(values: Features, variable: Variable) -> NDArray[np.bool_]:
    """Which rows of a variable's columns hold what its kind can be, `[n, c]` to bool `[n]`."""
    if variable.kind == "numeric":
        return np.ones(len(values), bool)
    if variable.kind == "integer":
        return np.asarray(values[:, 0] == np.floor(values[:, 0]))
    fits = ((values == 0) | (values == 1)).all(1)
    if variable.kind == "category":
        total = values.sum(1)
        fits &= (total == 1) | (variable.dropped & (total == 0))
    return np.asarray(fits)


def _require_kind(values: Features, variable: Variable) -> None:
    fits = fits_kind(values, variable)
    if not fits.all():
        kind = "one-hot" if variable.kind == "category" else variable.kind
        raise AuditInputError(
            f"features: {count(int((~fits).sum()), 'row')} not {kind} in {variable.name}, the "
            f"first {int(np.argmin(fits)):,}"
        )
