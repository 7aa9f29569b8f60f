"""Input of a FlipTest: encoded features with described columns, groups and labels, validated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature, OneHotGroup
from offline_audit.duplicates import UNITS_REMEDY, duplicate_warning
from offline_audit.errors import AuditInputError
from offline_audit.groups import require_names, require_two_groups, to_codes
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import are, count
from offline_audit.units import require_one_group
from offline_audit.validation import UNKNOWN, binary, require_length, unit_codes

__all__ = [
    "LARGEST",
    "ColumnSpec",
    "FeatureTable",
    "Sample",
    "fits_kind",
    "kind_of",
    "named_columns",
    "read_array",
    "require_finite",
]

# Description of columns: a manifest, `Columns`, or names only.
ColumnSpec = Columns | BundleSpec | Sequence[str]

# Sums of squares of values up to this limit do not overflow.
LARGEST = 1e30
# Rows of each group without a label on which the model decides, to detect selective labels.
_UNLABELLED = 1_000


@dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """Features as the maps take them, and their conversion for the model.

    Attributes:
        features: Encoded features, float32 `[n, d]`.
        columns: Description of the columns.
        decode: Function from encoded rows to the argument of the model.
    """

    features: Features
    columns: Columns
    decode: Callable[[Features], Any]


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
    encoded = np.ascontiguousarray(table, np.float32)
    return FeatureTable(features=encoded, columns=_columns_of(encoded, spec), decode=_identity)


def _identity(rows: Features) -> Features:
    return rows


def _columns_of(encoded: Features, spec: ColumnSpec | None) -> Columns:
    width = encoded.shape[1]
    if width == 0:
        raise AuditInputError("features: the table has no columns")
    if isinstance(spec, BundleSpec):
        spec = Columns(features=spec.features, one_hot_groups=spec.one_hot_groups)
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
        _require_exact(table, spec)
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


def _require_exact(table: NDArray[Any], spec: ColumnSpec | None) -> None:
    """Reject whole numbers that float32 cannot represent: the model would see other values."""
    if table.dtype.kind == "b":
        return
    inexact = table.astype(np.float32).astype(np.float64) != table
    if inexact.any():
        name = _column_name(spec, int(np.argmax(inexact.any(0))))
        raise AuditInputError(
            f"features: whole numbers of {name} are too large for float32, the type that the model "
            "is called with; scale the column, or exclude it if it is an id"
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
    """

    attribute: str
    groups: tuple[str, ...]
    codes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    units: NDArray[np.int64] | None
    table: FeatureTable
    warnings: tuple[str, ...]

    @classmethod
    def read(
        cls, table: FeatureTable, groups: Any, labels: Any, units: Any, *, needs_labels: bool
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
        )

    def rows(self, group: int, label: int | None) -> NDArray[np.intp]:
        """Indices of a group's rows, within a label; `UNKNOWN` for rows without a label."""
        chosen = self.codes == group
        if label is not None:
            assert self.labels is not None
            chosen &= self.labels == label
        return np.flatnonzero(chosen)

    def drawn(self, labels: Sequence[int | None], max_rows: int, seed: int) -> NDArray[np.intp]:
        """Indices of the rows on which the model decides: at most `max_rows` per group and label.

        If labels are used, some rows without a label are included, to detect selective labels.
        """
        rng = np.random.default_rng(seed)
        limits = [(label, max_rows) for label in labels]
        if self.labels is not None:
            limits.append((UNKNOWN, _UNLABELLED))
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

    def selective(self, group: int, decisions: NDArray[np.int8]) -> str | None:
        """Reason if labels of a group are known for one decision only; None otherwise.

        Args:
            group: Index of the group.
            decisions: Decisions, also on rows without a label; -1 if unknown, `[n]`.
        """
        if self.labels is None:
            return None
        members, known = self.codes == group, self.labels != UNKNOWN
        if not (members & known).any():
            return f"no label of {self.groups[group]} is known."
        for decision, other in ((0, "favourable"), (1, "unfavourable")):
            decided = members & (decisions == decision)
            if decided.any() and not (known & decided).any():
                return (
                    f"labels of {self.groups[group]} are known for the {other} decision only, so "
                    "flips within labels are not identified, and more rows of this kind do not "
                    "help."
                )
        return None
