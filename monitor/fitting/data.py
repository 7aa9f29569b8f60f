"""Training data: read from a Parquet or CSV file, and validated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature
from monitor.errors import FitError
from monitor.fitting.spec import FitSpec, ProtectedColumn
from monitor.fitting.tables import column_of, encoded_table, numbers_of, read_table, texts_of

__all__ = ["FEWEST_ROWS", "FitData", "check_features", "read_data", "read_features"]

# With fewer rows neither transport maps nor a status model can be fitted.
FEWEST_ROWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    """Data for a fit.

    Attributes:
        features: Input of the classifier, float32 `[n, d]`.
        groups: Index of each row's group by protected attribute, −1 if unknown, int8 `[n]`.
        labels: True class of each row, 1 or 0, −1 if unknown, int8 `[n]`; None without labels.
        merged: Number of rows by value, for every group of an attribute that merges values.
        excluded: Number of rows by value that was left out of an attribute; their group is −1.
    """

    features: NDArray[np.float32]
    groups: Mapping[str, NDArray[np.int8]]
    labels: NDArray[np.int8] | None = None
    merged: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    excluded: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def checked(self, spec: FitSpec) -> FitData:
        """Validated data.

        Raises:
            FitError: The shape does not match the spec, values are not finite or not of their
                feature's kind, or a group has too few rows; the message lists all problems.
        """
        if self.features.dtype != np.float32:
            return replace(self, features=self.features.astype(np.float32)).checked(spec)
        problems = [*_feature_problems(self.features, spec), *self._group_problems(spec)]
        if self.labels is not None and (
            self.labels.shape != (len(self.features),) or not np.isin(self.labels, (-1, 0, 1)).all()
        ):
            problems.append("labels must be 1, 0 or −1 for unknown, one per row")
        _raise(problems)
        return self

    def select(self, rows: NDArray[np.bool_]) -> FitData:
        """Some of the rows, by a mask `[n]`."""
        return replace(
            self,
            features=self.features[rows],
            groups={name: values[rows] for name, values in self.groups.items()},
            labels=None if self.labels is None else self.labels[rows],
        )

    def _group_problems(self, spec: FitSpec) -> Iterator[str]:
        for attribute in spec.protected_attributes:
            groups, count = self.groups.get(attribute.name), len(attribute.groups)
            if groups is None or groups.shape != (len(self.features),):
                yield f"groups of {attribute.name!r} are missing; expected one per row"
            elif len(groups) and (groups.min() < -1 or groups.max() >= count):
                yield f"groups of {attribute.name!r} must be −1 or 0 to {count - 1}"
            else:
                yield from _size_problems(attribute, groups)


def _size_problems(attribute: ProtectedColumn, groups: NDArray[np.int8]) -> Iterator[str]:
    """Groups with too few rows, and what to do about them."""
    sizes = np.bincount(groups[groups >= 0], minlength=len(attribute.groups)).tolist()
    rows = dict(zip(attribute.groups, sizes, strict=True))
    if small := {group: n for group, n in rows.items() if n < FEWEST_ROWS}:
        for group, n in small.items():
            yield (
                f"group {group!r} of {attribute.name!r} has {n} rows; at least {FEWEST_ROWS} are "
                "required"
            )
        yield _remedy(attribute, rows, small)


def _remedy(attribute: ProtectedColumn, rows: Mapping[str, int], small: Collection[str]) -> str:
    """What to do about small groups, with the lines for the spec."""
    if attribute.feature is not None:
        return (
            f"{attribute.name!r} is an input of the classifier, so its groups cannot be merged or "
            "left out in the spec: collect more rows of them, or merge them before the classifier "
            "is trained"
        )
    ascending = sorted(rows, key=lambda group: rows[group])
    other: list[str] = []
    for group in ascending:
        if len(other) >= 2 and group not in small and sum(map(rows.get, other)) >= FEWEST_ROWS:  # type: ignore[arg-type]
            break
        other.append(group)
    ways, warning = ["collect more rows"], ""
    if len(other) < len(rows):
        kept = ", ".join(group for group in rows if group not in other)
        ways.append(f"merge groups, such as `groups: [{kept}, {{other: [{', '.join(other)}]}}]`")
        warning = (
            ". A merged group can hide how each of its parts is treated: merge groups that are "
            "alike, not any small ones. `permutation_test` compares rates of decisions of groups "
            "too small for a fit"
        )
    if len(rows) - len(small) >= 2:
        kept = ", ".join(group for group in rows if group not in small)
        ways.append(f"leave them out: `groups: [{kept}]` and `excluded: [{', '.join(small)}]`")
    return f"small groups of {attribute.name!r}: {'; or '.join(ways)}{warning}"


def check_features(features: NDArray[np.float32], spec: FitSpec | BundleSpec) -> None:
    """Check the shape and the values of features.

    Raises:
        FitError: The shape does not match the spec, or values are not finite or not of their
            feature's kind; the message lists all problems.
    """
    _raise([*_feature_problems(features, spec)])


def _feature_problems(features: NDArray[np.float32], spec: FitSpec | BundleSpec) -> Iterator[str]:
    if features.ndim != 2 or features.shape[1] != len(spec.features):
        yield (
            f"the data have shape {list(features.shape)}; the spec lists {len(spec.features)} "
            "features"
        )
        return
    for column, feature in zip(features.T, spec.features, strict=True):
        yield from _value_problems(column, feature)
    position = {feature.name: column for column, feature in enumerate(spec.features)}
    for group in spec.one_hot_groups:
        total = features[:, [position[name] for name in group.features]].sum(1)
        wrong = total > 1 if group.dropped else total != 1
        # Missing values are reported by feature.
        if bad := int((wrong & np.isfinite(total)).sum()):
            hint = "" if group.dropped else "; if a category was dropped, name it as 'dropped'"
            yield f"one-hot group {group.name!r} is not one-hot in {bad} rows{hint}"


def _value_problems(column: NDArray[np.float32], feature: Feature) -> Iterator[str]:
    finite = np.isfinite(column)
    if bad := int((~finite).sum()):
        yield f"feature {feature.name!r} is missing or not finite in {bad} rows"
    known = column[finite]
    if feature.kind in ("binary", "onehot") and (bad := int(((known != 0) & (known != 1)).sum())):
        yield f"feature {feature.name!r} is {feature.kind}, but neither 0 nor 1 in {bad} rows"
    if feature.kind == "integer" and (bad := int((known != np.round(known)).sum())):
        yield f"feature {feature.name!r} is not an integer in {bad} rows"


def read_data(source: Path | str | Any, spec: FitSpec) -> FitData:
    """Read the columns that a spec names.

    Args:
        source: A `.parquet` or `.csv` file; or a data frame of pandas or polars, or a pyarrow
            table. Further columns are ignored.
        spec: Description of the columns.

    Raises:
        FitError: The file or a column cannot be read, or a group is not one that the spec lists;
            the message lists all problems.
    """
    table, where = read_table(source, spec.inputs), _name(source)
    problems: list[str] = []

    def attempt(read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(table, *arguments, where)
        except FitError as error:
            problems.append(str(error))

    features = attempt(_features, spec)
    groups = {a.name: attempt(_groups, a) for a in spec.protected_attributes}
    labels = attempt(_labels, spec)
    if problems:
        # Otherwise `FitData.checked` reports them.
        for attribute in spec.protected_attributes:
            if (read := groups[attribute.name]) is not None:
                problems += _size_problems(attribute, read)
    _raise(problems)
    merged, excluded = {}, {}
    for attribute in spec.protected_attributes:
        rows = _rows_by_value(table, attribute)
        merged[attribute.name] = {
            group: {value: rows.get(value, 0) for value in values}
            for group, values in attribute.values.items()
            if len(values) > 1
        }
        excluded[attribute.name] = {value: rows.get(value, 0) for value in attribute.excluded}
    return FitData(
        features=features, groups=groups, labels=labels, merged=merged, excluded=excluded
    )


def read_features(source: Path | str | Any, spec: BundleSpec) -> NDArray[np.float32]:
    """Read the features of a bundle, without groups.

    Args:
        source: A file, a data frame or a table, as for `read_data`.
        spec: Description of the columns.

    Returns:
        Features in manifest order, float32 `[n, d]`, validated.

    Raises:
        FitError: The file or a column cannot be read, or a value is not of its feature's kind.
    """
    where = _name(source)
    features = _features(read_table(source, spec.inputs), spec, where)
    try:
        check_features(features, spec)
    except FitError as error:
        raise FitError(_located(str(error).splitlines(), where)) from None
    return features


def _features(table: pa.Table, spec: FitSpec | BundleSpec, where: str) -> NDArray[np.float32]:
    if spec.inputs:
        try:
            return encoded_table(table, spec.inputs, [feature.name for feature in spec.features])
        except FitError as error:
            raise FitError(_located(str(error).splitlines(), where)) from None
    features = np.empty((table.num_rows, len(spec.features)), np.float32)
    problems = []
    for index, feature in enumerate(spec.features):
        try:
            features[:, index] = numbers_of(
                column_of(table, feature.name, where), feature.name, where
            )
        except FitError as error:
            problems.append(str(error))
    _raise(problems)
    return features


def _name(source: Any) -> str:
    """Name of the data in messages."""
    return str(source) if isinstance(source, Path | str) else "the data"


def _located(problems: Iterable[str], where: str) -> str:
    return "\n".join(f"{where}: {problem}" for problem in problems)


def _raise(problems: Sequence[str]) -> None:
    if problems:
        raise FitError("\n".join(problems))


def _named(values: pa.ChunkedArray) -> str:
    """The values, unless they are so rare that they may be personal data."""
    counts = pc.value_counts(values).to_pylist()
    if len(counts) > 10 or min(count["counts"] for count in counts) < 10:
        return ""
    return ": " + ", ".join(repr(count["values"]) for count in counts)


def _contents(values: pa.ChunkedArray) -> str:
    named = _named(values)
    return f"; it contains{named.removeprefix(':')}" if named else ""


def _labels(table: pa.Table, spec: FitSpec, where: str) -> NDArray[np.int8] | None:
    """Class of each row, −1 if the label is missing; None without a label in the spec."""
    if spec.label is None:
        return None
    name, favourable = spec.label.column, spec.label.favourable
    text = texts_of(column_of(table, name, where), name, where)
    values = pc.unique(text.drop_null())
    if favourable not in values.slice(0, 3).to_pylist():
        raise FitError(
            f"{where}: label column {name!r} does not contain the favourable value {favourable!r}"
            f"{_named(text.drop_null())}"
        )
    if len(values) > 2:
        raise FitError(
            f"{where}: label column {name!r} has {len(values)} values; it must have two, and empty "
            "fields where the outcome is not known"
        )
    favoured = pc.equal(text, favourable).combine_chunks()
    classes = favoured if spec.decision.favourable == 1 else pc.invert(favoured)
    codes: NDArray[np.int8] = pc.fill_null(classes.cast(pa.int8()), -1).to_numpy()
    return codes


def _groups(table: pa.Table, attribute: ProtectedColumn, where: str) -> NDArray[np.int8]:
    """Index of each row's group, −1 if it is missing or excluded."""
    text = texts_of(column_of(table, attribute.column, where), attribute.column, where)
    codes = {v: code for code, own in enumerate(attribute.values.values()) for v in own}
    codes |= dict.fromkeys(attribute.excluded, -1)
    index = pc.index_in(text, value_set=pa.array([*codes]))
    unlisted = text.filter(pc.and_(pc.is_null(index), pc.is_valid(text)))
    if len(unlisted) and len(unlisted) == len(text) - text.null_count:
        raise FitError(
            f"{where}: column {attribute.column!r} contains none of the groups of "
            f"{attribute.name!r} that the spec lists ({', '.join(map(repr, codes))})"
            f"{_contents(unlisted)}; correct `groups`, or `column`"
        )
    if len(unlisted):
        raise FitError(
            f"{where}: column {attribute.column!r} contains groups of {attribute.name!r} that are "
            f"not in the spec, in {len(unlisted)} rows{_named(unlisted)}; add them to `groups`, or "
            "to `excluded` to leave these rows out"
        )
    # A missing value has no index.
    by_index = np.array([*codes.values(), -1], np.int8)
    chosen: NDArray[np.int8] = by_index[pc.fill_null(index, len(codes)).to_numpy()]
    return chosen


def _rows_by_value(table: pa.Table, attribute: ProtectedColumn) -> dict[str, int]:
    text = texts_of(table.column(attribute.column), attribute.column, "")
    return {c["values"]: c["counts"] for c in pc.value_counts(text).to_pylist()}
