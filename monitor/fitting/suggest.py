"""Suggests a spec from the data, with comments on what the user has to decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from monitor.errors import FitError
from monitor.fitting.column_roles import (
    ColumnRole,
    column_role,
    is_protected_name,
)
from monitor.fitting.data import FEWEST_ROWS
from monitor.fitting.tables import read_table, texts_of

__all__ = ["suggest_spec"]

_MODEL = """\
# Suggested spec of {name}. It is derived from the data only: check every line.

model:
  name: my-model
  version: "1"

classifier:
  output: logit       # or probability; two_logits or two_probabilities for two columns

decision:
  threshold: 0.5      # class 1 if its probability is at least this
  favourable: 1       # the class that is favourable for the person: 1 or 0
  class_names: [refused, granted]
"""
_FEATURES = """\
# All input columns of the classifier, in its order. Remove all other columns.
# The data must be scaled and encoded as in its training; if they hold raw values, use `inputs`.
# Kinds: numeric, integer, binary (0 or 1), onehot (one column per category).
features:"""
_INPUTS = """\
# The data hold text, codes or missing values, so the classifier's encoding is part of the spec.
# It must be the one of the classifier's training, which the data do not show: scaling (`steps`),
# imputed values, dropped categories and the order of the classifier's columns (`columns`). If
# that is a ColumnTransformer of scikit-learn, replace this section by the output of
# `encoding_from_sklearn(transformer).to_yaml()`. Or encode the data first; the spec then has
# `features` in place of `inputs`. Remove columns that are not inputs of the classifier.
# A number without `steps` reaches the classifier as it is: unscaled, it would look fair.
inputs:"""
_ATTRIBUTES = """\
# Protected attributes. `column` has the group of each row; rows without a group are ignored.
# `feature` is the attribute as an input of the classifier: a binary feature (0 is the first
# group, 1 the second) or a one-hot group. Omit it if the attribute is not an input."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,15})")
_FAVOURABLE = {
    "1", "true", "yes", "y", "good", "paid", "repaid", "approved", "granted", "hired", "accepted",
}  # fmt: skip
# Names of bad outcomes, whose value 0 is the favourable one.
_BAD = re.compile(r"default|reject|refus|churn|fraud|recid|bad|denied", re.IGNORECASE)


def suggest_spec(path: Path) -> str:
    """Text of a suggested spec for a Parquet or CSV file.

    Numbers without missing values and without names of codes count as encoded. For other data the
    spec has raw inputs. Only columns whose name says so become protected attributes; other
    candidates are listed as a question.

    Raises:
        FitError: The file cannot be read, or has no column that could be a feature.
    """
    table = read_table(path)
    if len(set(table.column_names)) != len(table.column_names):
        raise FitError(f"{path}: column names are not unique")
    roles = {name: column_role(name, table.column(name)) for name in table.column_names}
    usable = [role for role in roles.values() if not role.left_out]
    raw = any(
        role.missing > 0
        or ((role.coded or role.kind == "text") and not is_protected_name(role.name))
        for role in usable
    )
    if not raw:
        usable = [role for role in usable if role.kind != "text"]
    if not usable:
        raise FitError(f"{path}: no column that could be a feature")
    one_hot = {} if raw else _one_hot_groups(table, usable)
    lines = [*_MODEL.format(name=path.name).splitlines(), *_left_out(roles.values()), ""]
    lines += _inputs(table, usable) if raw else _features(table, usable, one_hot)
    lines += ["", *_attributes(table, roles, one_hot, raw=raw), ""]
    lines += _label(roles.values())
    return "\n".join(lines) + "\n"


def _left_out(roles: Iterable[ColumnRole]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for role in roles:
        if role.left_out:
            reasons.setdefault(role.left_out, []).append(_quoted(role.name))
    if reasons:
        yield ""
        yield "# Left out, since the classifier cannot use these columns in production:"
        for reason, names in reasons.items():
            yield f"#   {', '.join(names)}: {reason}"


def _features(
    table: pa.Table, roles: Sequence[ColumnRole], one_hot: Mapping[str, list[str]]
) -> Iterator[str]:
    members = {name for columns in one_hot.values() for name in columns}
    yield from _FEATURES.splitlines()
    for role in roles:
        listed = "binary" if role.kind == "boolean" else str(role.kind)
        if role.name in members:
            listed = "onehot"
        named, off = is_protected_name(role.name), ""
        remark = "  # a protected attribute?" if named else ""
        # Groups of an attribute are those of its feature only if that is binary or one-hot.
        if named and role.values and role.kind == "integer" and role.name not in members:
            off, remark = "# ", "  # if it is an input; encode it as one-hot columns"
        entry = f"{{name: {_quoted(role.name)}, kind: {listed}}}"
        yield f"  {off}- {entry}{remark or _encoded_remark(role)}"
    yield ""
    yield "one_hot_groups:" + ("" if one_hot else " []")
    for group, columns in one_hot.items():
        listed = ", ".join(map(_quoted, columns))
        yield f"  - name: {_quoted(group)}"
        yield f"    features: [{listed}]"
        if not _complete(table, columns):
            yield "    dropped: other    # some rows have no 1: the name of the dropped category"


def _inputs(table: pa.Table, roles: Sequence[ColumnRole]) -> Iterator[str]:
    yield from _INPUTS.splitlines()
    for role in roles:
        # A protected attribute is rarely an input, and a wrong one makes the width differ.
        off = "# " if is_protected_name(role.name) else ""
        remark = "  # if it is an input; then set `feature` below" if off else ""
        yield f"  {off}- {_input(table, role)}{remark or _missing_remark(role, raw=True)}"


def _input(table: pa.Table, role: ColumnRole) -> str:
    name, column = _quoted(role.name), table.column(role.name)
    if role.kind in ("text", "boolean"):
        values = role.values or tuple(sorted(_distinct(column, role.name)))
        missing = ", missing: zeros" if role.missing else ""
        # Categories are text.
        listed = ", ".join(json.dumps(v) if _NUMBER.fullmatch(v) else _quoted(v) for v in values)
        if role.kind == "boolean" and len(values) == 2:
            missing = f', dropped: "false"{missing}'
        return f"{{name: {name}, kind: category, categories: [{listed}]{missing}}}"
    if role.coded:
        listed = ", ".join(role.values or sorted(_distinct(column, role.name), key=int))
        return f"{{name: {name}, kind: category, encoding: code, categories: [{listed}]}}"
    impute = ""
    if role.missing:
        median = pc.quantile(column, 0.5, interpolation="lower")[0].as_py()
        impute = f", impute: {median:.6g}"
    kind = "" if role.kind == "numeric" else f", column_kind: {role.kind}"
    return f"{{name: {name}, kind: number{kind}{impute}}}"


def _encoded_remark(role: ColumnRole) -> str:
    """What to check about a feature that the classifier reads as it is."""
    if role.missing_code is None:
        return _missing_remark(role)
    return f"  # does {role.missing_code} stand for a missing value? See `missing_code` of `inputs`"


def _missing_remark(role: ColumnRole, *, raw: bool = False) -> str:
    remarks = []
    if raw and role.kind in ("text", "boolean"):
        remarks.append("unseen: zeros  # if so in your training")
    elif raw and role.kind != "binary" and not role.coded:
        remarks.append("steps: […]  # as in your training")
    if role.missing:
        remarks.append(f"{role.missing:.1%} missing: encode them as in training")
    if role.coded:
        remarks.append("codes without an order? Otherwise {kind: number, column_kind: integer}")
    if role.missing_code is not None:
        code = f"missing_code: {role.missing_code}, impute: …"
        remarks.append(f"does {role.missing_code} stand for a missing value? Then add {code}")
    return f"  # {'; '.join(remarks)}" if remarks else ""


def _one_hot_groups(table: pa.Table, roles: Sequence[ColumnRole]) -> dict[str, list[str]]:
    """Binary columns with a common prefix, of which no row has more than one 1."""
    by_prefix: dict[str, list[str]] = {}
    for role in roles:
        if role.kind not in ("binary", "boolean"):
            continue
        name = role.name
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


def _attributes(
    table: pa.Table, roles: Mapping[str, ColumnRole], one_hot: Mapping[str, list[str]], *, raw: bool
) -> Iterator[str]:
    yield from _ATTRIBUTES.splitlines()
    members = {name for columns in one_hot.values() for name in columns}
    candidates = [
        role
        for role in roles.values()
        if role.name not in members and role.values and len(role.values) > 1 and not role.left_out
    ]
    named = [role for role in candidates if is_protected_name(role.name)]
    yield "protected_attributes:" if named else "# protected_attributes:"
    for role in named:
        yield from _attribute(table, role, one_hot, raw=raw)
    if not named:
        yield "#   - {name: sex, column: sex, groups: [man, woman]}"
    asked = [_quoted(r.name) for r in candidates if r not in named and r.kind != "numeric"]
    asked += [_quoted(name) for name in roles if "age" in name.lower().split("_")]
    asked += [_quoted(name) for name in one_hot if is_protected_name(name) and name not in roles]
    if asked:
        yield "# No column name says so, but is one of these a protected attribute, too?"
        yield f"#   {', '.join(dict.fromkeys(asked))}"


def _attribute(
    table: pa.Table, role: ColumnRole, one_hot: Mapping[str, list[str]], *, raw: bool
) -> Iterator[str]:
    assert role.values is not None
    counts = _counts(table.column(role.name), role.name)
    yield f"  - name: {_quoted(role.name)}"
    yield f"    column: {_quoted(role.name)}"
    yield f"    groups: [{', '.join(map(_quoted, role.values))}]"
    if small := [value for value in role.values if counts[value] < FEWEST_ROWS]:
        listed = ", ".join(f"{_quoted(value)} ({counts[value]} rows)" for value in small)
        yield (
            f"    # Too few rows, at least {FEWEST_ROWS} are required: {listed}. Merge groups "
            "that are"
        )
        yield "    # alike: `groups: [c, {other: [a, b]}]`; or leave out: `excluded: [a]`."
    if role.kind in ("binary", "boolean") and not raw:
        yield f"    feature: {_quoted(role.name)}"
    elif role.name in one_hot:
        yield f"    feature: {_quoted(role.name)}    # groups in the order of its columns"


def _label(roles: Iterable[ColumnRole]) -> Iterator[str]:
    found = [role for role in roles if role.label or role.decision]
    labels = [role for role in found if role.label]
    yield "# The true outcome, against which `fit` checks the classifier. `favourable` is the value"
    yield "# that is favourable for the person."
    if len(labels) == 1 and (favourable := _favourable(labels[0])) is not None:
        column = _quoted(labels[0].name)
        yield f"label: {{column: {column}, favourable: {_quoted(favourable)}}}"
        return
    for role in labels:
        values = " or ".join(map(_quoted, role.values or ()))
        yield f"# label: {{column: {_quoted(role.name)}, favourable: …}}    # {values}"
    for role in found if not labels else ():
        column, values = _quoted(role.name), " or ".join(map(_quoted, role.values or ()))
        yield f"# A past decision is not an outcome; only if the classifier predicts it ({values}):"
        yield f"# label: {{column: {column}, favourable: …}}"
    if not found:
        yield "# label: {column: repaid, favourable: 1}"


def _favourable(role: ColumnRole) -> str | None:
    """The favourable one of two values of a label; None if that is not clear."""
    values = role.values or ()
    if set(values) in ({"0", "1"}, {"false", "true"}):
        return values[0] if _BAD.search(role.name) else values[1]
    found = [value for value in values if value.lower() in _FAVOURABLE]
    return found[0] if len(found) == 1 and not _BAD.search(role.name) else None


def _distinct(column: pa.ChunkedArray, name: str) -> list[str]:
    values: list[str] = pc.unique(texts_of(column, name, "the data").drop_null()).to_pylist()
    return values


def _counts(column: pa.ChunkedArray, name: str) -> dict[str, int]:
    counts = pc.value_counts(texts_of(column, name, "the data").drop_null()).to_pylist()
    return {count["values"]: count["counts"] for count in counts}


def _quoted(text: str) -> str:
    """A YAML scalar, quoted unless it is a plain word or a whole number."""
    plain = re.fullmatch(r"[A-Za-z_][\w.=-]*", text) or _NUMBER.fullmatch(text)
    reserved = text.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    return text if plain and not reserved else json.dumps(text, ensure_ascii=False)
