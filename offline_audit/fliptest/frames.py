"""Data frames as encoded features with described columns, and back for the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from monitor.bundle.encoding import Encoding, EncodingError
from monitor.bundle.manifest import BundleSpec, Feature
from monitor.traffic.raw_columns import encoded_rows, raw_column
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.sample import (
    ColumnSpec,
    FeatureTable,
    exact,
    inexact,
    kind_of,
    named_columns,
    read_array,
    require_finite,
)
from offline_audit.maps.columns import Columns
from offline_audit.maps.grid import Grid
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import count
from offline_audit.validation import is_missing, ordered_columns

__all__ = ["encode_raw", "read_frame", "read_raw_frame"]

# A column with more distinct values holds names or ids, not categories.
_MAX_CATEGORIES = 200
# Share of rows outside the range of the fit above which they cannot be raw.
_MOST_OUTSIDE = 0.5


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
    columns = {str(name): chosen[name].to_numpy() for name in chosen.columns}
    for name, values in columns.items():
        if values.dtype.kind in "iu" and exact(values) is None:
            raise inexact(name)
    return read_array(np.column_stack([*columns.values()]), spec)


def read_raw_frame(
    frame: Any, manifest: BundleSpec, ignored: Collection[str] = ()
) -> FeatureTable | None:
    """Encode a data frame of the raw inputs of a bundle; None if it does not have them.

    Args:
        frame: Data frame with a column per raw input.
        manifest: Manifest of the bundle.
        ignored: Further columns that the frame may have.

    Raises:
        AuditInputError: A column is missing, unknown to the manifest, or has neither numbers nor
            text, or the bundle refuses a value.
    """
    encoding = Encoding.of(manifest)
    present = {str(column) for column in frame.columns}
    if encoding is None:
        return None
    # Raw inputs may have the names of features; the frame is of those of which it has more.
    raw = len(present.intersection(encoding.names)) / len(encoding.names)
    if raw < len(present.intersection(f.name for f in manifest.features)) / manifest.width:
        return None
    chosen = frame[ordered_columns(frame, encoding.names, ignored)]
    try:
        table = pa.Table.from_pandas(chosen, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        # Arrow's message may quote a value.
        raise AuditInputError("features: a column has values of several types") from None
    table = table.rename_columns(encoding.names)
    return read_array(encode_raw(table, encoding, manifest, encoding.names), manifest)


def encode_raw(
    table: pa.Table, encoding: Encoding, manifest: BundleSpec, names: Sequence[str | None]
) -> NDArray[np.float32]:
    """Features `[n, d]` of a table of raw inputs.

    Args:
        table: The table.
        encoding: Encoding of the bundle.
        manifest: Manifest of the bundle.
        names: Column of every raw input; None for one that the table does not have.

    Raises:
        AuditInputError: A column has neither numbers nor text, the bundle refuses a value, or the
            rows are encoded already.
    """
    for index, name in enumerate(names):
        if name is None:
            continue
        try:
            raw_column(table[name], encoding, index)
        except pa.ArrowException:
            raise AuditInputError(
                f"features: input {encoding.names[index]!r} is a {encoding.inputs[index].kind} in "
                f"the bundle, but its column holds {table[name].type}"
            ) from None
    try:
        features = encoded_rows(table, encoding, names)
    except EncodingError as error:
        raise AuditInputError(
            f"features: input {error.name!r} {error.reason} in {count(error.rows, 'row')}; the "
            "bundle refuses such rows: exclude them, or use the bundle that was deployed"
        ) from None
    for index, feature in enumerate(manifest.features):
        if feature.low is None or feature.high is None or encoding.input_of(index) not in names:
            continue
        values = features[:, index]
        outside = (values < feature.low) | (values > feature.high)
        if outside.mean() > _MOST_OUTSIDE:
            raise AuditInputError(
                f"features: most values of {encoding.input_of(index)!r} are outside the range of "
                "the fit after their encoding; if the rows are encoded already, pass an array "
                "[n, d] in the order of the manifest"
            )
    return features


def _encoded(frame: Any) -> FeatureTable:
    if not len(frame.columns):
        raise AuditInputError("features: the table has no columns")
    if not len(frame):
        raise AuditInputError("features: the table has no rows")
    if len({str(column) for column in frame.columns}) < len(frame.columns):
        raise AuditInputError("columns: two columns have the same name")
    names, kinds, parts = list[str](), list[str](), list[Features]()
    groups, decoders = dict[str, list[str]](), list[_Numbers | _Categories]()
    for column in frame.columns:
        name, values = str(column), frame[column].to_numpy()
        if not hasattr(frame[column].dtype, "categories") and _are_numbers(values):
            encoded, numbers = _numbers(values, name)
            names.append(name)
            kinds.append(kind_of(encoded))
            parts.append(encoded[:, None])
            decoders.append(numbers)
            continue
        categories, texts, codes = _categories(values, name)
        members = [f"{name}={text}" for text in texts]
        groups[name] = members
        names += members
        kinds += ["onehot"] * len(members)
        parts.append((codes[:, None] == np.arange(len(members))).astype(np.float32))
        decoders.append(_Categories(values=categories))
    features = np.ascontiguousarray(np.concatenate(parts, 1))
    columns = named_columns(names, kinds, groups)
    types = [decoder.type for decoder in decoders for _ in range(decoder.width)]
    return FeatureTable(
        features=features,
        columns=columns,
        grid=Grid.of(features, columns, types),
        decode=_Decoder(
            frame_type=type(frame),
            names=frame.columns,
            dtypes=[frame[column].dtype for column in frame.columns],
            columns=decoders,
        ),
    )


def _are_numbers(values: NDArray[Any]) -> bool:
    """Whether a column holds numbers; objects must be numbers of one type, such as decimals."""
    if values.dtype.kind != "O":
        return values.dtype.kind in "biuf"
    types = {type(value) for value in values.tolist() if not is_missing(value)}
    # A boolean is a number to Python, and a category to users.
    numeric = all(issubclass(kind, Decimal | Real) and kind.__name__ != "bool" for kind in types)
    return numeric and len(types) == 1


def _numbers(values: NDArray[Any], name: str) -> tuple[Features, _Numbers]:
    """Encoded numbers of a column, `[n]`, and their decoder."""
    if values.dtype.kind == "O":
        encoded = np.array([_float(value) for value in values.tolist()])
        require_finite(encoded[:, None], [name])
        return encoded, _Numbers.of_objects(values, name)
    require_finite(values[:, None], [name])
    if (numbers := exact(values)) is not None:
        return numbers, _Numbers(type=values.dtype)
    return values.astype(np.float64), _Numbers.of_objects(values, name)


def _float(value: Any) -> float:
    try:
        return float("nan") if is_missing(value) else float(value)
    except OverflowError:
        return float("inf")


def _categories(
    values: NDArray[Any], name: str
) -> tuple[NDArray[Any], list[str], NDArray[np.intp]]:
    """Distinct values of a column with their original type, their texts, and each row's code."""
    missing = _missing(values)
    if missing.any():
        raise AuditInputError(
            f"features: {count(int(missing.sum()), 'value')} of {name} missing, the first in row "
            f"{int(np.argmax(missing)):,}; exclude those rows, or impute them as the model does"
        )
    texts, first, codes = np.unique(_texts(values), return_index=True, return_inverse=True)
    if len(first) > _MAX_CATEGORIES:
        raise AuditInputError(
            f"features: {name} has too many distinct values for a category ({len(first):,}, limit "
            f"{_MAX_CATEGORIES}); exclude the column, or bin its values"
        )
    return values[first], texts.tolist(), codes


def _texts(values: NDArray[Any]) -> NDArray[np.str_]:
    """Text of each value; with the type where values of several types have one text."""
    texts = values.astype(str)
    if values.dtype.kind != "O":
        return texts
    types = np.array([type(value).__name__ for value in values.tolist()])
    if (types == types[0]).all():
        return texts
    pairs = Counter(text for text, _ in {*zip(texts.tolist(), types.tolist(), strict=True)})
    with_types = np.array([f"{t} ({kind})" for t, kind in zip(texts, types, strict=True)])
    ambiguous = np.array([pairs[text] > 1 for text in texts.tolist()])
    return np.where(ambiguous, with_types, texts)


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind in "mM":
        return np.asarray(np.isnat(values))
    return np.array([is_missing(value) for value in values.tolist()], bool)


@dataclass(frozen=True, kw_only=True)
class _Categories:
    """One-hot columns as the categories of the frame.

    Attributes:
        values: The categories with their original type, `[c]`.
    """

    values: NDArray[Any]

    @property
    def type(self) -> np.dtype[Any]:
        return self.values.dtype

    @property
    def width(self) -> int:
        return len(self.values)

    def decode(self, rows: Features) -> NDArray[Any]:
        """Categories of one-hot rows, `[n, c]` to `[n]`."""
        categories: NDArray[Any] = self.values[rows.argmax(1)]
        return categories


@dataclass(frozen=True, kw_only=True)
class _Numbers:
    """A column of numbers as the numbers of the frame.

    Attributes:
        type: Type of the numbers.
        originals: Distinct values that float64 does not hold exactly, such as decimals or large
            whole numbers, `[m]`; None if it holds all of them.
        encoded: Their nearest float64, sorted, `[m]`.
    """

    type: np.dtype[Any]
    originals: NDArray[Any] | None = None
    encoded: NDArray[np.float64] | None = None
    width = 1

    @classmethod
    def of_objects(cls, values: NDArray[Any], name: str) -> _Numbers:
        """The decoder of a column whose values are looked up, `[n]`.

        Raises:
            AuditInputError: Two different values are the same number in float64.
        """
        originals = np.empty(len(distinct := sorted({*values.tolist()})), values.dtype)
        originals[:] = distinct
        encoded = np.array([float(value) for value in distinct])
        if (np.diff(encoded) <= 0).any():
            raise inexact(name)
        return cls(type=values.dtype, originals=originals, encoded=encoded)

    def decode(self, rows: Features) -> NDArray[Any]:
        """Numbers of encoded rows, `[n, 1]` to `[n]`."""
        values = rows[:, 0]
        if self.originals is None or self.encoded is None:
            return values.astype(self.type, copy=False)
        at = np.minimum(np.searchsorted(self.encoded, values), len(self.encoded) - 1)
        decoded, known = self.originals[at], self.encoded[at] == values
        decoded[~known] = [_like(self.originals[0], value) for value in values[~known].tolist()]
        return decoded


def _like(original: Any, value: float) -> Any:
    """A number of the type of another one; decimals with as few digits as `value` is printed."""
    kind = type(original)
    return kind(repr(value)) if issubclass(kind, Decimal | Fraction) else kind(value)


@dataclass(frozen=True, kw_only=True)
class _Decoder:
    """Function from encoded rows to a data frame with the original columns and types.

    Attributes:
        frame_type: Type of the frame.
        names: Its columns.
        dtypes: Their types in the frame.
        columns: Their decoders.
    """

    frame_type: type
    names: Any
    dtypes: Sequence[Any]
    columns: Sequence[_Numbers | _Categories]

    def __call__(self, rows: Features) -> Any:
        starts = np.cumsum([0, *(column.width for column in self.columns)])
        values = {
            index: column.decode(rows[:, start : start + column.width])
            for index, (column, start) in enumerate(zip(self.columns, starts, strict=False))
        }
        frame = self.frame_type(values).astype(dict(enumerate(self.dtypes)))
        frame.columns = self.names
        return frame
