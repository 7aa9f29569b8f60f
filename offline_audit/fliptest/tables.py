"""People from a window of the log or from a file: encoded features, groups and labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv
from pyarrow import parquet as pq

from monitor.bundle import BundleSpec, ProtectedAttribute
from monitor.traffic.columns import TrafficColumns, group_column
from offline_audit.errors import AuditInputError, UnknownColumnError
from offline_audit.fliptest.features import LARGEST, fits_kind
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import are, count, some
from offline_audit.window.window import Window

__all__ = ["TableRows", "rows_of_file", "rows_of_window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """People of one protected attribute's groups.

    Attributes:
        attribute: Its name.
        features: Encoded as the model takes them, `[n, d]`.
        groups: Names, `[n]`.
        labels: 1 for the favourable one, NaN where it is not known, `[n]`.
        warnings: What to know of them.
    """

    attribute: str
    features: Features
    groups: NDArray[np.object_]
    labels: NDArray[np.float64]
    warnings: tuple[str, ...]


def rows_of_window(
    window: Window,
    manifest: BundleSpec,
    attribute: str,
    *,
    by_label: bool,
    rows: int,
    favourable: int,
    seed: int,
) -> TableRows:
    """A sample of every group of an attribute.

    Args:
        window: With outcomes, or nobody's group is known.
        manifest: Of the model's bundle: which features, in which order.
        attribute: The protected attribute.
        by_label: Whether to sample within labels too.
        rows: Of each group, and label, at most.
        favourable: The label that counts as 1.
        seed: Of the sample.

    Raises:
        AuditInputError: The log does not hold all features as they were.
        UnknownColumnError: There is no such attribute.
    """
    if attribute not in window.attributes:
        there = ", ".join(window.attributes) or "none"
        raise UnknownColumnError(f"no protected attribute {attribute!r}; there is: {there}")
    names = _log_names(window, manifest)
    strata = [attribute, *(["label"] if by_label else [])]
    table = window.sample(rows, strata, seed)
    table = table.filter(pc.is_valid(table[group_column(attribute)]))
    found = _read(table, manifest, attribute, names, favourable)
    largest = pc.max(table["stratum_rows"]).as_py()
    if largest is None or largest <= rows:
        return found
    told = f"People are a sample of the window: at most {rows:,} of each group."
    return replace(found, warnings=(*found.warnings, told))


def rows_of_file(
    source: Path | str | pa.Table, manifest: BundleSpec, attribute: str, *, favourable: int
) -> TableRows:
    """Everyone in a Parquet or CSV file, or an Arrow table.

    Columns: the features by the manifest's names; the attribute as group_NAME, or by its name;
    `label` where it is known. A feature that is a protected attribute may be left out, or be there
    by the names of its groups.

    Raises:
        AuditInputError: The file cannot be read, or a column is missing.
    """
    table = source if isinstance(source, pa.Table) else _table(Path(source))
    if attribute not in [each.name for each in manifest.protected_attributes]:
        there = ", ".join(each.name for each in manifest.protected_attributes)
        raise UnknownColumnError(f"no protected attribute {attribute!r}; there is: {there}")
    if not _group_columns(table, attribute):
        raise AuditInputError(
            f"no column {attribute!r} or {group_column(attribute)!r} says who is of which group"
        )
    # Those by the names of groups are read as such.
    numbers = {field.name for field in table.schema if not _words(field)}
    hidden = manifest.protected_features - numbers
    names = [feature.name for feature in manifest.features if feature.name not in hidden]
    if missing := [name for name in names if name not in table.column_names]:
        raise AuditInputError(f"features that are not in the file: {some(missing)}")
    return _read(table, manifest, attribute, {name: name for name in names}, favourable)


def _table(path: Path) -> pa.Table:
    try:
        if path.suffix.lower() == ".csv":
            return csv.read_csv(path)
        return pq.read_table(path)
    except FileNotFoundError:
        raise AuditInputError(f"{path}: there is no such file") from None
    except (pa.ArrowException, OSError):
        raise AuditInputError(f"{path}: neither Parquet nor CSV that can be read") from None


def _log_names(window: Window, manifest: BundleSpec) -> dict[str, str]:
    """Column of the log that each feature stands in, by the feature's name."""
    changed: dict[str, str] = {}
    for file in window.provenance.log.files:
        listed = file.metadata.get("columns", {"features": []})["features"]
        changed |= {c["feature"]: c["treatment"] for c in listed if c["treatment"] != "keep"}
    names = {c.feature: c.name for c in TrafficColumns.of(manifest).features}
    lost = [feature for feature, name in names.items() if name not in window.table.columns]
    if odd := sorted({*lost, *(changed.keys() & names.keys())}):
        raise AuditInputError(
            f"features that the log does not hold as they were (dropped, hashed or bucketed): "
            f"{some(odd)}; FlipTest asks the model about people, and needs all that it sees"
        )
    return names


def _read(
    table: pa.Table,
    manifest: BundleSpec,
    attribute: str,
    names: dict[str, str],
    favourable: int,
) -> TableRows:
    told = {each.name: each for each in manifest.protected_attributes}
    words = np.array(_group_words(table, attribute, told.get(attribute)), object)
    columns, unknown = [], np.zeros(len(words), bool)
    shown = [each for each in told.values() if each.feature is not None]
    for feature in manifest.features:
        if feature.name in names:
            values = _numbers(table[names[feature.name]], feature.name)
        else:
            values = _from_group(table, manifest, feature.name, shown)
        unknown |= ~(np.abs(values) <= LARGEST)
        columns.append(values)
    features = np.where(unknown[:, None], 0.0, np.column_stack(columns)).astype(np.float32)
    odd = ~unknown & ~_fitting(features, manifest)
    known = ~unknown & ~odd & np.array([word is not None for word in words], bool)
    labels = np.full(len(words), np.nan)
    if "label" in table.column_names:
        labels = _numbers(table["label"], "label")
        labels = labels if favourable == 1 else 1 - labels
    left = [(unknown, "without all features"), (odd, "that a feature's kind does not allow")]
    counts = [(int(np.count_nonzero(rows)), why) for rows, why in left]
    return TableRows(
        attribute=attribute,
        features=features[known],
        groups=words[known],
        labels=labels[known],
        warnings=tuple(f"{count(n, 'row')} {why} {are(n)} left out." for n, why in counts if n),
    )


def _fitting(features: Features, manifest: BundleSpec) -> NDArray[np.bool_]:
    """Which rows hold what kinds allow: a log may have others, which the model decides as well."""
    variables = Columns(
        features=manifest.features, one_hot_groups=manifest.one_hot_groups
    ).variables
    parts = [fits_kind(features[:, list(each.columns)], each) for each in variables]
    return np.asarray(np.logical_and.reduce(parts))


def _numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(
            pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(), np.float64
        )
    except (pa.ArrowException, ValueError):
        raise AuditInputError(f"{name}: numbers are needed") from None


def _words(field: pa.Field) -> bool:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _strings(column: pa.ChunkedArray) -> list[str | None]:
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found


def _group_columns(table: pa.Table, attribute: str) -> list[str]:
    return [name for name in (group_column(attribute), attribute) if name in table.column_names]


def _group_words(
    table: pa.Table, attribute: str, told: ProtectedAttribute | None
) -> list[str | None]:
    """Names of the groups; where the feature itself is all there is, 0 is the first of them."""
    column = _group_columns(table, attribute)[0]
    # A file has blanks for what is not known.
    words = [word if word and word.strip() else None for word in _strings(table[column])]
    if told is None or column != told.feature or _words(table.schema.field(column)):
        return words
    named = dict(zip(("0", "1", "false", "true"), 2 * told.groups[:2], strict=True))
    return [None if word is None else named.get(word, word) for word in words]


def _from_group(
    table: pa.Table, manifest: BundleSpec, feature: str, shown: Iterable[ProtectedAttribute]
) -> NDArray[np.float64]:
    """A protected attribute that the model sees stands with the outcomes."""
    one_hot = {g.name: g.features for g in manifest.one_hot_groups}
    for attribute in shown:
        assert attribute.feature is not None
        columns = one_hot.get(attribute.feature, (attribute.feature,))
        if feature in columns and _group_columns(table, attribute.name):
            words = _group_words(table, attribute.name, attribute)
            if strangers := sorted({word for word in words if word} - {*attribute.groups}):
                raise AuditInputError(
                    f"groups of {attribute.name}: {some(strangers)} not in the manifest, which has "
                    f"{some(attribute.groups)}"
                )
            place = columns.index(feature) if attribute.feature in one_hot else 1
            return np.array(
                [np.nan if word is None else word == attribute.groups[place] for word in words],
                np.float64,
            )
    raise AuditInputError(f"feature {feature!r} is neither there nor known from a group")
