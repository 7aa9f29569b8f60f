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
from offline_audit.maps.transport_map import Features
from offline_audit.plain_words import are, count, some
from offline_audit.window import Window

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
    found = _read(table, manifest, attribute, group_column(attribute), names, favourable)
    largest = pc.max(table["stratum_rows"]).as_py()
    if largest is None or largest <= rows:
        return found
    told = f"People are a sample of the window: at most {rows:,} of each group."
    return replace(found, warnings=(*found.warnings, told))


def rows_of_file(
    source: Path | str | pa.Table, manifest: BundleSpec, attribute: str, *, favourable: int
) -> TableRows:
    """Everyone in a Parquet or CSV file, or an Arrow table.

    Columns: the features by the manifest's names; the attribute by its name, or as group_NAME;
    `label` where it is known.

    Raises:
        AuditInputError: The file cannot be read, or a column is missing.
    """
    table = source if isinstance(source, pa.Table) else _table(Path(source))
    if attribute not in [each.name for each in manifest.protected_attributes]:
        there = ", ".join(each.name for each in manifest.protected_attributes)
        raise UnknownColumnError(f"no protected attribute {attribute!r}; there is: {there}")
    options = [name for name in (attribute, group_column(attribute)) if name in table.column_names]
    if not options:
        raise AuditInputError(
            f"no column {attribute!r} or {group_column(attribute)!r} says who is of which group"
        )
    hidden = manifest.protected_features
    names = {f.name: f.name for f in manifest.features if f.name not in hidden}
    names |= {f.name: f.name for f in manifest.features if f.name in table.column_names}
    if missing := [name for name in names.values() if name not in table.column_names]:
        raise AuditInputError(f"features that are not in the file: {some(missing)}")
    return _read(table, manifest, attribute, options[0], names, favourable)


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
        listed = file.about.get("columns", {"features": []})["features"]
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
    group: str,
    names: dict[str, str],
    favourable: int,
) -> TableRows:
    words = np.array(table[group].cast(pa.string()).to_pylist(), object)
    columns, unknown = [], np.zeros(len(words), bool)
    shown = {a.name: a for a in manifest.protected_attributes if a.feature is not None}
    for feature in manifest.features:
        if feature.name in names:
            values = _numbers(table[names[feature.name]], feature.name)
        else:
            values = _from_group(table, manifest, feature.name, shown.values())
        unknown |= ~np.isfinite(values)
        columns.append(values)
    known = ~unknown & np.array([word is not None for word in words], bool)
    labels = np.full(len(words), np.nan)
    if "label" in table.column_names:
        labels = _numbers(table["label"], "label")
        labels = labels if favourable == 1 else 1 - labels
    lost = int(np.count_nonzero(unknown))
    told = [f"{count(lost, 'row')} without all features {are(lost)} left out."] if lost else []
    return TableRows(
        attribute=attribute,
        features=np.column_stack(columns)[known].astype(np.float32),
        groups=words[known],
        labels=labels[known],
        warnings=tuple(told),
    )


def _numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(
            pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(), np.float64
        )
    except (pa.ArrowException, ValueError):
        raise AuditInputError(f"{name}: numbers are needed") from None


def _from_group(
    table: pa.Table, manifest: BundleSpec, feature: str, shown: Iterable[ProtectedAttribute]
) -> NDArray[np.float64]:
    """A protected attribute that the model sees stands with the outcomes."""
    one_hot = {g.name: g.features for g in manifest.one_hot_groups}
    for attribute in shown:
        assert attribute.feature is not None
        columns = one_hot.get(attribute.feature, (attribute.feature,))
        named = [
            n for n in (group_column(attribute.name), attribute.name) if n in table.column_names
        ]
        if feature in columns and named:
            words = table[named[0]].cast(pa.string()).to_pylist()
            place = columns.index(feature) if attribute.feature in one_hot else 1
            return np.array(
                [np.nan if word is None else word == attribute.groups[place] for word in words],
                np.float64,
            )
    raise AuditInputError(f"feature {feature!r} is neither there nor known from a group")
