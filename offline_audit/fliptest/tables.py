"""Rows of a window of the log, or of a file: encoded features, groups and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv
from pyarrow import parquet as pq

from monitor.bundle import BundleSpec, ProtectedAttribute
from monitor.bundle.encoding import Encoding
from monitor.traffic.columns import SUBJECT, TrafficColumns, group_column
from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError, UnknownColumnError
from offline_audit.fliptest.frames import encode_raw
from offline_audit.fliptest.sample import LARGEST, fits_kind
from offline_audit.maps.columns import Columns
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import are, count, some
from offline_audit.validation import UNKNOWN
from offline_audit.window.subjects import Subjects, with_one_group
from offline_audit.window.window import Window

__all__ = ["TableRows", "rows_of_file", "rows_of_window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Rows with a known group of one protected attribute.

    Attributes:
        attribute: Name of the protected attribute.
        features: Features in the order of the manifest, `[n, d]`; exact values of a file.
        groups: Name of each row's group, `[n]`.
        labels: 1 for the favourable label, 0 for the other, NaN if unknown, `[n]`.
        unknown: Numbers of all rows of unknown group and without a label.
        units: Person of each row, `[n]`; None if the table does not name people.
        warnings: Number of excluded rows, and sampling.
        label_counts: Rows of each group by label and decision, `[3, 3]`, of the whole window; None
            for a file, whose decisions are not known.
    """

    attribute: str
    features: Features
    groups: NDArray[np.object_]
    labels: NDArray[np.float64]
    unknown: Unknowns
    units: NDArray[np.int64] | None
    warnings: tuple[str, ...]
    label_counts: Mapping[str, NDArray[np.int64]] | None = None


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
    """Sample every group of a protected attribute.

    Args:
        window: Window with outcomes, which have the groups.
        manifest: Manifest of the model's bundle; it has the order of the features.
        attribute: Protected attribute.
        by_label: Whether to sample within each label.
        rows: Largest number of rows per group, or per group and label.
        favourable: Label that is coded as 1.
        seed: Seed of the sample.

    Raises:
        AuditInputError: The log does not have the original values of all features.
        UnknownColumnError: No such protected attribute.
    """
    if attribute not in window.attributes:
        known = ", ".join(window.attributes) or "none"
        raise UnknownColumnError(f"by: no protected attribute {attribute!r}; choose from {known}")
    names = _log_names(window, manifest)
    strata = [attribute, *(["label"] if by_label else [])]
    table = window.sample(rows, strata, seed)
    table = table.filter(pc.is_valid(table[group_column(attribute)]))
    tables = _label_tables(window, attribute, favourable)
    result = _read(table, manifest, attribute, names, favourable)
    result = replace(
        result,
        # The type of the log, which tells decimals from values with as many digits as float64 has.
        features=result.features.astype(np.float32),
        unknown=Unknowns.of_tables({attribute: np.stack(list(tables.values()))}, labels=True),
        label_counts={group: counts for group, counts in tables.items() if group is not None},
    )
    largest = pc.max(table["stratum_rows"]).as_py()
    if largest is None or largest <= rows:
        return result
    warning = f"Rows are a sample of the window: at most {rows:,} per group."
    return replace(result, warnings=(*result.warnings, warning))


def _label_tables(
    window: Window, attribute: str, favourable: int
) -> dict[str | None, NDArray[np.int64]]:
    """Rows of each group by label and decision, `[3, 3]`, unknown last; the group None is last."""
    names: list[str | None] = [*window.attributes[attribute], None]
    tables = {name: np.zeros((3, 3), dtype=np.int64) for name in names}
    for cell in window.counts(attribute).cells:
        index = [2 if v is None else int(v == favourable) for v in (cell.label, cell.decision)]
        tables[cell.groups[0]][tuple(index)] += cell.rows
    return tables


def rows_of_file(
    source: Path | str | pa.Table, manifest: BundleSpec, attribute: str, *, favourable: int
) -> TableRows:
    """Read all rows of a Parquet or CSV file, or of an Arrow table.

    Columns: the raw inputs, or the features, by the manifest's names; the protected attribute, as
    `group_NAME` or `NAME`; optionally `label`. A feature that is a protected attribute may be
    absent, or hold the names of its groups.

    Raises:
        AuditInputError: The file cannot be read, or a column is missing.
        UnknownColumnError: No such protected attribute.
    """
    table = source if isinstance(source, pa.Table) else _table(Path(source))
    attributes = [known.name for known in manifest.protected_attributes]
    if attribute not in attributes:
        raise UnknownColumnError(
            f"by: no protected attribute {attribute!r}; choose from {', '.join(attributes)}"
        )
    if not _group_columns(table, attribute):
        raise AuditInputError(
            f"no column {attribute!r} or {group_column(attribute)!r} with the groups; add one"
        )
    # A protected feature that is absent or holds group names is read from the groups instead.
    numeric = {field.name for field in table.schema if not _is_text(field)}
    protected = manifest.protected_features - numeric
    names = [feature.name for feature in manifest.features if feature.name not in protected]
    if manifest.inputs and _has_raw_inputs(table, manifest):
        present = {r.name: r.name for r in manifest.inputs if r.name in table.column_names}
        return _read(table, manifest, attribute, present, favourable)
    missing, what = [name for name in names if name not in table.column_names], "features"
    raw = {r.name for r in manifest.inputs}
    if missing and (raw - {f.name for f in manifest.features}) & {*table.column_names}:
        missing, what = sorted(raw - manifest.protected_inputs - {*table.column_names}), "inputs"
    if missing:
        raise AuditInputError(f"{what} missing from the file: {some(missing)}")
    return _read(table, manifest, attribute, {name: name for name in names}, favourable)


def _has_raw_inputs(table: pa.Table, manifest: BundleSpec) -> bool:
    """Whether a table has a column per raw input; protected ones may be absent."""
    required = {raw.name for raw in manifest.inputs} - manifest.protected_inputs
    return required <= {*table.column_names}


def _table(path: Path) -> pa.Table:
    try:
        if path.suffix.lower() == ".csv":
            return csv.read_csv(path)
        return pq.read_table(path)
    except FileNotFoundError:
        raise AuditInputError(f"{path}: no such file") from None
    except (pa.ArrowException, OSError) as error:
        # Only the class of the error: its text may quote a row.
        cause = type(error).__name__
        raise AuditInputError(f"{path}: not a readable Parquet or CSV file ({cause})") from None


def _log_names(window: Window, manifest: BundleSpec) -> dict[str, str]:
    """Column of the log by feature name."""
    changed: dict[str, str] = {}
    for file in window.provenance.log.files:
        listed = file.metadata.get("columns", {"features": []})["features"]
        changed |= {c["feature"]: c["treatment"] for c in listed if c["treatment"] != "keep"}
    names = {c.feature: c.name for c in TrafficColumns.of(manifest).features}
    absent = [feature for feature, name in names.items() if name not in window.table.columns]
    if unusable := sorted({*absent, *(changed.keys() & names.keys())}):
        raise AuditInputError(
            "the log does not have the original values of these features (dropped, hashed or "
            f"bucketed): {some(unusable)}; FlipTest calls the model and needs all its features"
        )
    return names


def _read(
    table: pa.Table,
    manifest: BundleSpec,
    attribute: str,
    names: dict[str, str],
    favourable: int,
) -> TableRows:
    attributes = {known.name: known for known in manifest.protected_attributes}
    groups = np.array(_group_names(table, attribute, attributes.get(attribute)), object)
    columns, incomplete = [], np.zeros(len(groups), bool)
    protected = [known for known in attributes.values() if known.feature is not None]
    encoded = _encoded(table, manifest, names)
    for feature in manifest.features:
        if feature.name in encoded:
            values = encoded[feature.name]
        elif feature.name in names:
            values = _numbers(table[names[feature.name]], feature.name)
        else:
            values = _from_groups(table, manifest, feature.name, protected)
        # Negated, so that NaN counts as missing.
        incomplete |= ~(np.abs(values) <= LARGEST)
        columns.append(values)
    features = np.where(incomplete[:, None], 0.0, np.column_stack(columns))
    invalid = ~incomplete & ~_fitting(features, manifest)
    chosen = ~incomplete & ~invalid & np.array([group is not None for group in groups], bool)
    units: NDArray[np.int64] | None = None
    unit_warnings: tuple[str, ...] = ()
    if SUBJECT in table.column_names:
        subjects = Subjects()
        subjects.add(table.filter(pa.array(chosen))[SUBJECT])
        units = subjects.units
        _, codes = np.unique(groups[chosen].astype(str), return_inverse=True)
        codes, split = with_one_group(units, codes)
        units, unit_warnings = units[codes != UNKNOWN], (*subjects.warnings, *split)
        chosen[np.flatnonzero(chosen)[codes == UNKNOWN]] = False
    labels = np.full(len(groups), np.nan)
    if "label" in table.column_names:
        labels = _numbers(table["label"], "label")
        labels = labels if favourable == 1 else 1 - labels
    excluded = (
        (incomplete, "with missing features"),
        (invalid, "with a value that the feature's kind does not allow"),
    )
    counts = [(int(np.count_nonzero(mask)), why) for mask, why in excluded]
    return TableRows(
        attribute=attribute,
        features=features[chosen],
        groups=groups[chosen],
        labels=labels[chosen],
        unknown=Unknowns(
            rows=len(groups),
            groups={attribute: sum(group is None for group in groups)},
            labels=int(np.isnan(labels).sum()) if "label" in table.column_names else None,
        ),
        units=units,
        warnings=(
            *(f"{count(n, 'row')} {why} {are(n)} excluded." for n, why in counts if n),
            *unit_warnings,
        ),
    )


def _encoded(
    table: pa.Table, manifest: BundleSpec, names: Mapping[str, str]
) -> dict[str, NDArray[np.float64]]:
    """Encoded columns of the raw inputs that the table has; NaN where they are unknown."""
    encoding = Encoding.of(manifest) if manifest.inputs else None
    if encoding is None or not all(
        raw.name in names or raw.name in manifest.protected_inputs for raw in encoding.inputs
    ):
        return {}
    features = encode_raw(table, encoding, manifest, [names.get(name) for name in encoding.names])
    return {
        feature.name: features[:, index].astype(np.float64)
        for index, feature in enumerate(manifest.features)
        if encoding.input_of(index) in names
    }


def _fitting(features: Features, manifest: BundleSpec) -> NDArray[np.bool_]:
    """Rows whose values their kinds allow; a log may have others, on which the model decided."""
    variables = Columns.of_manifest(manifest).variables
    masks = [fits_kind(features[:, list(v.columns)], v) for v in variables]
    return np.asarray(np.logical_and.reduce(masks))


def _numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(
            pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy(), np.float64
        )
    except (pa.ArrowException, ValueError):
        raise AuditInputError(f"{name}: must be a column of numbers") from None


def _is_text(field: pa.Field) -> bool:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _group_columns(table: pa.Table, attribute: str) -> list[str]:
    return [name for name in (group_column(attribute), attribute) if name in table.column_names]


def _group_names(
    table: pa.Table, name: str, attribute: ProtectedAttribute | None
) -> list[str | None]:
    """Group of each row; if only the binary feature is there, 0 is the first group."""
    column = _group_columns(table, name)[0]
    values: list[str | None] = table[column].cast(pa.string()).to_pylist()
    # In a CSV file a blank stands for a missing value.
    groups = [value if value and value.strip() else None for value in values]
    if attribute is None or column != attribute.feature or _is_text(table.schema.field(column)):
        return groups
    by_value = dict(zip(("0", "1", "false", "true"), 2 * attribute.groups[:2], strict=True))
    return [None if group is None else by_value.get(group, group) for group in groups]


def _from_groups(
    table: pa.Table, manifest: BundleSpec, feature: str, protected: Iterable[ProtectedAttribute]
) -> NDArray[np.float64]:
    """Values of a protected feature, which is stored with the outcomes, from the groups."""
    one_hot = {g.name: g.features for g in manifest.one_hot_groups}
    for attribute in protected:
        assert attribute.feature is not None
        columns = one_hot.get(attribute.feature, (attribute.feature,))
        if feature in columns and _group_columns(table, attribute.name):
            groups = _group_names(table, attribute.name, attribute)
            if unknown := sorted({group for group in groups if group} - {*attribute.groups}):
                raise AuditInputError(
                    f"groups of {attribute.name}: {some(unknown)} not in the manifest, which has "
                    f"{some(attribute.groups)}"
                )
            # A single binary column is 1 for the second group.
            index = columns.index(feature) if attribute.feature in one_hot else 1
            return np.array(
                [np.nan if g is None else g == attribute.groups[index] for g in groups],
                np.float64,
            )
    raise AuditInputError(
        f"feature {feature!r} is missing; add its column, or a column with the groups of its "
        "protected attribute"
    )
