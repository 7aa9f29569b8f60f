"""Input of a FlipTest: encoded features with described columns, groups and labels, validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.bundle.manifest import BundleSpec, Feature, OneHotGroup
from offline_audit.coverage import Unknowns
from offline_audit.duplicates import UNITS_REMEDY, duplicate_warning
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.label_counts import validated_counts
from offline_audit.groups import require_names, require_two_groups, to_codes
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.grid import Grid
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import are, count
from offline_audit.units import require_one_group
from offline_audit.validation import UNKNOWN, binary, require_length, unit_codes

__all__ = [
    "LARGEST",
    "ColumnSpec",
    "FeatureTable",
    "Sample",
    "exact",
    "fits_kind",
    "inexact",
    "kind_of",
    "named_columns",
    "read_array",
    "require_finite",
]

# Description of columns: a manifest, `Columns`, or names only.
ColumnSpec = Columns | BundleSpec | Sequence[str]

# Sums of squares of values up to this limit do not overflow.
LARGEST = 1e30
# Rows of each group without a label, or with a label that the criterion does not use, on which the
# model decides, to detect labels whose coverage depends on the decision.
_OTHER_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """Encoded features, and their conversion for the model.

    Attributes:
        features: Encoded features with their exact values, `[n, d]`; float32 if it can represent
            them all, else float64.
        columns: Description of the columns.
        grid: Values that counterparts may have.
        decode: Function from encoded rows to the argument of the model.
    """

    features: Features
    columns: Columns
    grid: Grid
    decode: Callable[[Features], Any]

    @property
    def is_array(self) -> bool:
        """Whether the model is called with arrays."""
        return isinstance(self.decode(self.features[:1]), np.ndarray)


def read_array(features: Any, spec: ColumnSpec | None = None) -> FeatureTable:
    """Validate an array `[n, d]` of encoded columns.

    Args:
        features: Array, or anything that numpy converts to one.
        spec: Description of the columns. Kinds that it does not give are inferred: zeros and ones
            are binary, whole numbers integer, other numbers numeric.

    Raises:
        AuditInputError: Not a table of numbers, a value is missing, or a column does not match its
            description.
    """
    try:
        table = np.asarray(features)
    except (ValueError, TypeError):
        raise AuditInputError("features: must be a table of numbers, one row per person") from None
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise AuditInputError(
            f"features: must be a table of numbers, not {table.ndim} axes of {table.dtype}; to use "
            "text columns, pass a data frame without a description of its columns"
        )
    require_finite(table, spec)
    encoded = exact(table)
    if encoded is None:
        index = next(i for i, values in enumerate(table.T) if exact(values) is None)
        raise inexact(_column_name(spec, index))
    columns = _columns_of(encoded, spec)
    return FeatureTable(
        features=np.ascontiguousarray(encoded),
        columns=columns,
        grid=Grid.of(encoded, columns, [table.dtype] * len(columns)),
        decode=lambda rows: rows.astype(table.dtype, copy=False),
    )


def exact(values: NDArray[Any]) -> Features | None:
    """Numbers as float32 if it represents every number of their type, else as float64.

    Returns:
        None if float64 cannot represent all of them, either.
    """
    single = np.can_cast(values.dtype, np.float32)
    encoded: Features = values.astype(np.float32 if single else np.float64, copy=False)
    # 2^63 in float64 is outside of int64, and is then different from every value.
    with np.errstate(invalid="ignore"):
        return encoded if np.array_equal(encoded.astype(values.dtype), values) else None


def inexact(name: str) -> AuditInputError:
    """The error for a column whose values float64 cannot tell apart."""
    return AuditInputError(
        f"features: numbers of {name} have more digits than float64 can represent; scale the "
        "column, or exclude it if it is an id"
    )


def _columns_of(encoded: Features, spec: ColumnSpec | None) -> Columns:
    width = encoded.shape[1]
    if width == 0:
        raise AuditInputError("features: the table has no columns")
    if isinstance(spec, BundleSpec):
        spec = Columns.of_manifest(spec)
    names = _names(spec) or [f"x{index}" for index in range(width)]
    if len(names) != width:
        raise AuditInputError(f"columns: {len(names)} are described, but the table has {width}")
    if isinstance(spec, Columns):
        _require_consistent_groups(spec)
        for variable in spec.variables:
            _require_kind(encoded[:, list(variable.columns)], variable)
        return spec
    return named_columns(names, [kind_of(encoded[:, index]) for index in range(width)])


def named_columns(
    names: Sequence[str], kinds: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None
) -> Columns:
    """Columns with these names, kinds and one-hot groups.

    Raises:
        AuditInputError: Duplicate or invalid names.
    """
    if len(set(names)) != len(names):
        raise AuditInputError("columns: two columns have the same name")
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
        # The original message quotes the name, which may be personal data.
        raise AuditInputError(
            "columns: a name or a category is empty, longer than 200 characters or not printable"
        ) from None


def kind_of(values: NDArray[Any]) -> str:
    """Most specific kind that these numbers allow, `[n]`."""
    if ((values == 0) | (values == 1)).all():
        return "binary"
    return "integer" if (values == np.floor(values)).all() else "numeric"


def require_finite(table: NDArray[Any], spec: ColumnSpec | None) -> None:
    """Reject missing, infinite and too large values, `[n, d]`.

    Raises:
        AuditInputError: There is such a value; the message has its position, not its value.
    """
    if table.dtype.kind != "f":
        return
    # Negated, so that NaN is invalid too.
    invalid = ~(np.abs(table.astype(np.float64)) <= LARGEST)
    if not invalid.any():
        return
    index = int(np.argmax(invalid.any(0)))
    raise AuditInputError(
        f"features: {count(int(invalid.sum()), 'value')} missing, infinite or beyond 1e30, the "
        f"first in {_column_name(spec, index)}, row {int(np.argmax(invalid[:, index])):,}; exclude "
        "those rows, or impute them as the model does"
    )


def _column_name(spec: ColumnSpec | None, index: int) -> str:
    names = _names(spec)
    return names[index] if index < len(names) else f"column {index}"


def _names(spec: ColumnSpec | None) -> list[str]:
    if isinstance(spec, Columns | BundleSpec):
        return [feature.name for feature in spec.features]
    return [] if spec is None else [str(name) for name in spec]


def _require_consistent_groups(columns: Columns) -> None:
    """Require unique names, and one group for every one-hot column; manifests guarantee this."""
    onehot = sorted(feature.name for feature in columns.features if feature.kind == "onehot")
    listed = sorted(name for group in columns.one_hot_groups for name in group.features)
    if onehot != listed or len(set(columns.names)) != len(columns.names):
        raise AuditInputError(
            "columns: names must be unique, and every column of kind onehot must be in exactly one "
            "one-hot group"
        )


def fits_kind(values: Features, variable: Variable) -> NDArray[np.bool_]:
    """Rows whose values the variable's kind allows, `[n, c]` to bool `[n]`."""
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
            f"first is row {int(np.argmin(fits)):,}"
        )


def _values(table: FeatureTable) -> list[NDArray[Any]]:
    """Values of each variable, one code per category, `[n]` each."""
    return [
        category_codes(table.features, variable)
        if variable.kind == "category"
        else table.features[:, variable.columns[0]]
        for variable in table.columns.variables
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Features with groups, and labels if the criterion needs them.

    Attributes:
        attribute: Protected attribute.
        groups: Names of the groups, sorted.
        codes: Index of each row's group; -1 if unknown, `[n]`.
        labels: 0 or 1, and -1 if unknown, `[n]`; None if the criterion does not use labels.
        units: Unit of each row, `[n]`; None if each row is its own unit.
        table: Features of the rows.
        warnings: Number of excluded rows, and odd names.
        label_counts: Rows of each group by label and decision, `[3, 3]` (favourable is 1, unknown
            last), if the rows are a sample by label; None if the rows themselves are counted.
    """

    attribute: str
    groups: tuple[str, ...]
    codes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    units: NDArray[np.int64] | None
    table: FeatureTable
    warnings: tuple[str, ...]
    label_counts: Mapping[str, NDArray[np.int64]] | None = None

    @classmethod
    def read(
        cls,
        table: FeatureTable,
        groups: Any,
        labels: Any,
        units: Any,
        *,
        needs_labels: bool,
        label_counts: Mapping[str, ArrayLike] | None = None,
    ) -> Sample:
        """Validate groups, labels and units.

        Raises:
            AuditInputError: Lengths differ, a value is invalid, there are fewer than two groups, or
                a unit has rows in several groups.
        """
        if isinstance(groups, Mapping):
            if len(groups) != 1:
                raise AuditInputError(
                    "groups: pass one protected attribute, {name: groups}; run one test per "
                    "attribute"
                )
            ((attribute, values),) = groups.items()
        else:
            attribute, values = str(getattr(groups, "name", None) or "group"), groups
        names, codes = to_codes(values, str(attribute))
        warnings = require_names(names, None, str(attribute))
        require_two_groups(names, str(attribute))
        if needs_labels and labels is None:
            raise AuditInputError("labels: required for every criterion except statistical_parity")
        known_labels = None if labels is None else binary(labels, "labels")
        owners = None if units is None else unit_codes(units)
        lengths = {"features": len(table.features), f"groups of {attribute}": len(codes)}
        optional = {"labels": known_labels, "units": owners}
        require_length(lengths | {k: len(v) for k, v in optional.items() if v is not None})
        if owners is not None:
            require_one_group(owners, codes, str(attribute))
        else:
            outcomes = [] if known_labels is None else [known_labels]
            columns = [*_values(table), codes, *outcomes]
            warning = duplicate_warning(columns, UNITS_REMEDY)
            warnings += [] if warning is None else [warning]
        if not needs_labels:
            known_labels = None
        if n := int((codes == UNKNOWN).sum()):
            warnings.append(f"{count(n, 'row')} without a group {are(n)} excluded.")
        if known_labels is not None:
            n = int(((codes != UNKNOWN) & (known_labels == UNKNOWN)).sum())
            warnings += [f"{count(n, 'row')} without a label {are(n)} excluded."] if n else []
        return cls(
            attribute=str(attribute),
            groups=names,
            codes=codes,
            labels=known_labels,
            units=owners,
            table=table,
            warnings=tuple(warnings),
            label_counts=None if label_counts is None else validated_counts(label_counts, names),
        )

    @property
    def unknown(self) -> Unknowns:
        """Numbers of rows of unknown group, and without a label if labels are used."""
        labels = None if self.labels is None else int((self.labels == UNKNOWN).sum())
        groups = {self.attribute: int((self.codes == UNKNOWN).sum())}
        return Unknowns(rows=len(self.codes), groups=groups, labels=labels)

    def rows(self, group: int, label: int | None) -> NDArray[np.intp]:
        """Indices of a group's rows, within a label; `UNKNOWN` for rows without a label."""
        chosen = self.codes == group
        if label is not None:
            assert self.labels is not None
            chosen &= self.labels == label
        return np.flatnonzero(chosen)

    def drawn(self, labels: Sequence[int | None], max_rows: int, seed: int) -> NDArray[np.intp]:
        """Indices of the rows on which the model decides: at most `max_rows` per group and label.

        If labels are missing, some other rows are included, to detect selective labels.
        """
        rng = np.random.default_rng(seed)
        limits = [(label, max_rows) for label in labels]
        if self.labels is not None and (self.labels == UNKNOWN).any():
            # Rows of the other label have no counterparts; they tell how many labels are known.
            limits += [(label, _OTHER_ROWS) for label in (UNKNOWN, 0, 1) if label not in labels]
        parts = [
            rows if len(rows) <= limit else rng.choice(rows, limit, replace=False)
            for group in range(len(self.groups))
            for label, limit in limits
            for rows in [self.rows(group, label)]
        ]
        return np.sort(np.concatenate(parts))

    def sampling_warnings(self, labels: Sequence[int | None], max_rows: int) -> list[str]:
        """A warning if groups are larger than `max_rows`."""
        groups = range(len(self.groups))
        sizes = [len(self.rows(group, label)) for group in groups for label in labels]
        n = sum(min(size, max_rows) for size in sizes)
        if n == sum(sizes):
            return []
        stratum = "group" if self.labels is None else "group and label"
        warning = (
            f"{count(n, 'row')} {are(n)} a sample of {sum(sizes):,}: at most {max_rows:,} per "
            f"{stratum} (`max_rows`)."
        )
        return [warning]
