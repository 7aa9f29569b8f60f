"""Suggests a spec from the data, with comments on what the user has to decide."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from monitor.errors import FitError
from monitor.fitting.tables import read_table

__all__ = ["suggest_spec"]

_PROTECTED = re.compile(
    r"sex|gender|race|ethnic|religio|disab|national|marital|orientation", re.IGNORECASE
)
_HEAD = """\
# Suggested spec of {name}. It is derived from the data only: check every line.
# Kinds: numeric, integer, binary (0 or 1), onehot (one column per category).

model:
  name: my-model
  version: "1"

classifier:
  output: logit       # or probability; two_logits or two_probabilities for two columns

decision:
  threshold: 0.5      # class 1 if its probability is at least this
  favourable: 1       # the class that is favourable for the person: 1 or 0
  class_names: [refused, granted]

# All input columns of the classifier, in its order. Remove the label, ids and all other columns
# that are not inputs of the classifier.
features:
"""
_ATTRIBUTES = (
    "# Protected attributes. `column` has the group of each row; rows without a group are ignored.",
    "# `feature` is the attribute as an input of the classifier: a binary feature (0 is the first",
    "# group, 1 the second) or a one-hot group. Omit it if the attribute is not an input.",
    "protected_attributes:",
)


def suggest_spec(path: Path) -> str:
    """Text of a suggested spec for a Parquet or CSV file.

    Raises:
        FitError: The file cannot be read, or has no column that could be a feature.
    """
    table = read_table(path)
    if len(set(table.column_names)) != len(table.column_names):
        raise FitError(f"{path}: column names are not unique")
    kinds = {name: _kind(table.column(name)) for name in table.column_names}
    groups = _one_hot_groups(table, [name for name, kind in kinds.items() if kind == "binary"])
    members = {name for columns in groups.values() for name in columns}
    features = {name: kind for name, kind in kinds.items() if kind is not None}
    if not features:
        raise FitError(f"{path}: no numeric column that could be a feature")
    lines = [_HEAD.format(name=path.name).rstrip("\n")]
    for name, kind in features.items():
        listed_kind = "onehot" if name in members else kind
        remark = "  # a protected attribute?" if _PROTECTED.search(name) else ""
        lines.append(f"  - {{name: {_quoted(name)}, kind: {listed_kind}}}{remark}")
    lines += ["", "one_hot_groups:" + ("" if groups else " []")]
    for group, columns in groups.items():
        listed = ", ".join(map(_quoted, columns))
        lines.append(f"  - name: {_quoted(group)}\n    features: [{listed}]")
        if not _complete(table, columns):
            lines.append(
                "    dropped: other    # some rows have no 1: the name of the dropped category"
            )
    lines += ["", *_attributes(table, kinds, members)]
    return "\n".join(lines) + "\n"


def _kind(column: pa.ChunkedArray) -> str | None:
    """Kind of a column; None if it cannot be a feature."""
    if pa.types.is_boolean(column.type):
        return "binary"
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    values = pc.unique(column.drop_null())
    if set(values.slice(0, 3).to_pylist()) <= {0, 1}:
        return "binary"
    whole = pc.all(pc.equal(values, pc.round(values))).as_py()
    return "integer" if whole else "numeric"


def _one_hot_groups(table: pa.Table, binary: list[str]) -> dict[str, list[str]]:
    """Binary columns with a common prefix, of which no row has more than one 1."""
    by_prefix: dict[str, list[str]] = {}
    for name in binary:
        prefix, mark, _ = name.rpartition("=") if "=" in name else name.rpartition("_")
        if mark and prefix:
            by_prefix.setdefault(prefix, []).append(name)
    return {
        prefix: columns
        for prefix, columns in by_prefix.items()
        if len(columns) > 1 and pc.max(_ones(table, columns)).as_py() == 1
    }


def _ones(table: pa.Table, columns: list[str]) -> pa.ChunkedArray:
    total = table.column(columns[0]).cast(pa.int32())
    for name in columns[1:]:
        total = pc.add(total, table.column(name).cast(pa.int32()))
    return total


def _complete(table: pa.Table, columns: list[str]) -> bool:
    return bool(pc.min(_ones(table, columns)).as_py() == 1)


def _attributes(table: pa.Table, kinds: dict[str, str | None], one_hot: set[str]) -> list[str]:
    lines = list(_ATTRIBUTES)
    for name in table.column_names:
        column = table.column(name)
        if name in one_hot or pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            continue
        # Converted to text as in `read_data`.
        values = sorted(pc.unique(column.drop_null()).slice(0, 21).cast(pa.string()).to_pylist())
        likely = _PROTECTED.search(name) or kinds[name] is None
        if likely and "=" not in name and 2 <= len(values) <= 20:
            listed = ", ".join(map(_quoted, values))
            lines.append(f"  - name: {_quoted(name)}")
            lines.append(f"    column: {_quoted(name)}\n    groups: [{listed}]")
            if kinds[name] == "binary":
                lines.append(f"    feature: {_quoted(name)}")
    if len(lines) == len(_ATTRIBUTES):
        lines.append("  # - {name: sex, column: sex, groups: [man, woman]}")
    return lines


def _quoted(text: str) -> str:
    """A YAML scalar, quoted unless it is a plain word."""
    plain = re.fullmatch(r"[A-Za-z_][\w.=-]*", text)
    reserved = text.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    return text if plain and not reserved else json.dumps(text, ensure_ascii=False)
