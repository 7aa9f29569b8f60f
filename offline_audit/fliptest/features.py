"""Tables of any kind as encoded features with described columns, and back for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature, OneHotGroup
from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import count, some
from offline_audit.validation import is_missing

__all__ = [
    "LARGEST",
    "People",
    "ToldColumns",
    "columns_of",
    "encode_frame",
    "fits_kind",
    "kind_of",
    "named_columns",
    "numbers_of_frame",
    "read_people",
    "require_finite",
]


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
