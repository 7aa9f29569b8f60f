"""Training data: read from a Parquet or CSV file, and validated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from monitor.bundle.inputs import RawCategory, RawNumber
from monitor.bundle.manifest import BundleSpec
from monitor.errors import FitError
from monitor.fitting.raw_table import csv_options, encoded_table
from monitor.fitting.spec import FitSpec, ProtectedColumn

__all__ = ["FEWEST_ROWS", "FitData", "check_features", "read_data", "read_features", "read_table"]

# With fewer rows neither transport maps nor a status model can be fitted.
FEWEST_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    """Data for a fit.

    Attributes:
        features: Input of the classifier, float32 `[n, d]`.
        groups: Index of each row's group by protected attribute, −1 if unknown, int8 `[n]`.
        labels: True class of each row, 1 or 0, −1 if unknown, int8 `[n]`; None without labels.
    """

    features: NDArray[np.float32]
    groups: Mapping[str, NDArray[np.int8]]
    labels: NDArray[np.int8] | None = None

    def checked(self, spec: FitSpec) -> FitData:
        """Validated data.

        Raises:
            FitError: The shape does not match the spec, values are not finite or not of their
                feature's kind, or a group has too few rows.
        """
        if self.features.dtype != np.float32:
            return replace(self, features=self.features.astype(np.float32)).checked(spec)
        check_features(self.features, spec)
        if self.labels is not None and (
            self.labels.shape != (len(self.features),) or not np.isin(self.labels, (-1, 0, 1)).all()
        ):
            raise FitError("labels must be 1, 0 or −1 for unknown, one per row")
        self._check_groups(spec)
        return self

    def select(self, rows: NDArray[np.bool_]) -> FitData:
        """Some of the rows, by a mask `[n]`."""
        groups = {name: values[rows] for name, values in self.groups.items()}
        return FitData(features=self.features[rows], groups=groups)

    def _check_groups(self, spec: FitSpec) -> None:
        rows = len(self.features)
        for attribute in spec.protected_attributes:
            groups = self.groups.get(attribute.name)
            if groups is None or groups.shape != (rows,):
                raise FitError(f"groups of {attribute.name!r} are missing; expected one per row")
            if groups.min() < -1 or groups.max() >= len(attribute.groups):
                raise FitError(
                    f"groups of {attribute.name!r} must be −1 or 0 to {len(attribute.groups) - 1}"
                )
            for index, group in enumerate(attribute.groups):
                if (count := int((groups == index).sum())) < FEWEST_ROWS:
                    raise FitError(
                        f"group {group!r} of {attribute.name!r} has {count} rows; at least "
                        f"{FEWEST_ROWS} are required"
                    )


def check_features(features: NDArray[np.float32], spec: FitSpec | BundleSpec) -> None:
    """Check the shape and the values of features.

    Raises:
        FitError: The shape does not match the spec, or values are not finite or not of their
            feature's kind.
    """
    if features.ndim != 2 or features.shape[1] != len(spec.features):
        raise FitError(
            f"the data have shape {list(features.shape)}; the spec lists {len(spec.features)} "
            "features"
        )
    _check_values(features, spec)
    _check_one_hot(features, spec)


def _check_values(features: NDArray[np.float32], spec: FitSpec | BundleSpec) -> None:
    for column, feature in zip(features.T, spec.features, strict=True):
        if bad := int((~np.isfinite(column)).sum()):
            raise FitError(f"feature {feature.name!r} is missing or not finite in {bad} rows")
        if feature.kind in ("binary", "onehot") and (
            bad := int(((column != 0) & (column != 1)).sum())
        ):
            raise FitError(
                f"feature {feature.name!r} is {feature.kind}, but neither 0 nor 1 in {bad} rows"
            )
        if feature.kind == "integer" and (bad := int((column != np.round(column)).sum())):
            raise FitError(f"feature {feature.name!r} is not an integer in {bad} rows")


def _check_one_hot(features: NDArray[np.float32], spec: FitSpec | BundleSpec) -> None:
    position = {feature.name: column for column, feature in enumerate(spec.features)}
    for group in spec.one_hot_groups:
        total = features[:, [position[name] for name in group.features]].sum(1)
        wrong = total > 1 if group.dropped else total != 1
        if bad := int(wrong.sum()):
            hint = "" if group.dropped else "; if a category was dropped, name it as 'dropped'"
            raise FitError(f"one-hot group {group.name!r} is not one-hot in {bad} rows{hint}")


def read_data(path: Path | str, spec: FitSpec) -> FitData:
    """Read the columns that a spec names from a `.parquet` or `.csv` file.

    Raises:
        FitError: The file or a column cannot be read, or a group is not one that the spec lists.
    """
    path = Path(path)
    table = read_table(path, spec.inputs)
    features = _features(table, spec, path)
    groups = {
        attribute.name: _groups(_column(table, attribute.column, path), attribute, path)
        for attribute in spec.protected_attributes
    }
    return FitData(features=features, groups=groups, labels=_labels(table, spec, path))


def read_features(path: Path | str, spec: BundleSpec) -> NDArray[np.float32]:
    """Read the features of a bundle, without groups, from a `.parquet` or `.csv` file.

    Returns:
        Features in manifest order, float32 `[n, d]`, validated.

    Raises:
        FitError: The file or a column cannot be read, or a value is not of its feature's kind.
    """
    path = Path(path)
    features = _features(read_table(path, spec.inputs), spec, path)
    try:
        check_features(features, spec)
    except FitError as error:
        raise FitError(f"{path}: {error}") from None
    return features


def _features(table: pa.Table, spec: FitSpec | BundleSpec, path: Path) -> NDArray[np.float32]:
    if spec.inputs:
        try:
            return encoded_table(table, spec.inputs, [feature.name for feature in spec.features])
        except FitError as error:
            raise FitError(f"{path}: {error}") from None
    features = np.empty((table.num_rows, len(spec.features)), np.float32)
    for index, feature in enumerate(spec.features):
        features[:, index] = _numbers(_column(table, feature.name, path), feature.name, path)
    return features


def read_table(path: Path, inputs: Sequence[RawNumber | RawCategory] = ()) -> pa.Table:
    """Read a Parquet or CSV file; the categories of raw inputs in a CSV file are text.

    Raises:
        FitError: The file cannot be read.
    """
    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path)
        if path.suffix == ".csv":
            return csv.read_csv(path, convert_options=csv_options(inputs))
    except FileNotFoundError:
        raise FitError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException):
        # Arrow's message may quote a row.
        raise FitError(f"{path}: not a valid {path.suffix} file") from None
    raise FitError(f"{path}: expected a .parquet or a .csv file")


def _column(table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
    count = table.column_names.count(name)
    if count == 0:
        raise FitError(f"{path}: no column {name!r}; add it, or remove it from the spec")
    if count > 1:
        raise FitError(f"{path}: more than one column {name!r}; rename or remove all but one")
    return table.column(name)


def _numbers(column: pa.ChunkedArray, name: str, path: Path) -> NDArray[np.float64]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    try:
        # Missing values become NaN, which is checked with other non-finite values.
        numbers: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    except pa.ArrowException:
        raise FitError(f"{path}: column {name!r} holds {column.type}, not numbers") from None
    return numbers


def _named(values: pa.ChunkedArray) -> str:
    """The values, unless they are so rare that they may be personal data."""
    counts = pc.value_counts(values).to_pylist()
    if len(counts) > 10 or min(count["counts"] for count in counts) < 10:
        return ""
    return ": " + ", ".join(repr(count["values"]) for count in counts)


def _labels(table: pa.Table, spec: FitSpec, path: Path) -> NDArray[np.int8] | None:
    """Class of each row, −1 if the label is missing; None without a label in the spec."""
    if spec.label is None:
        return None
    name, favourable = spec.label.column, spec.label.favourable
    text = _texts(_column(table, name, path), name, path)
    values = pc.unique(text.drop_null())
    if favourable not in values.slice(0, 3).to_pylist():
        raise FitError(
            f"{path}: label column {name!r} does not contain the favourable value {favourable!r}"
            f"{_named(text.drop_null())}"
        )
    if len(values) > 2:
        raise FitError(
            f"{path}: label column {name!r} has {len(values)} values; it must have two, and empty "
            "fields where the outcome is not known"
        )
    favoured = pc.equal(text, favourable).combine_chunks()
    classes = favoured if spec.decision.favourable == 1 else pc.invert(favoured)
    codes: NDArray[np.int8] = pc.fill_null(classes.cast(pa.int8()), -1).to_numpy()
    return codes


def _texts(column: pa.ChunkedArray, name: str, path: Path) -> pa.ChunkedArray:
    """Values as text, as a spec names them: whole numbers without a decimal point."""
    try:
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
            whole = column.cast(pa.int64(), safe=False)
            if pc.all(pc.equal(whole.cast(column.type), column)).as_py():
                column = whole
        return column.cast(pa.string())
    except pa.ArrowException:
        raise FitError(f"{path}: column {name!r} contains neither text nor numbers") from None


def _groups(column: pa.ChunkedArray, attribute: ProtectedColumn, path: Path) -> NDArray[np.int8]:
    """Index of each row's group, −1 if it is missing."""
    text = _texts(column, attribute.column, path)
    index = pc.index_in(text, value_set=pa.array(attribute.groups))
    unlisted = text.filter(pc.and_(pc.is_null(index), pc.is_valid(text)))
    if len(unlisted):
        raise FitError(
            f"{path}: column {attribute.column!r} contains groups of {attribute.name!r} that are "
            f"not in the spec, in {len(unlisted)} rows{_named(unlisted)}"
        )
    codes: NDArray[np.int8] = pc.fill_null(index, -1).to_numpy().astype(np.int8)
    return codes
