"""What the columns of a table are likely to be: features, labels, ids, protected attributes.

Roles follow from names and values. A column that is wrongly left out of a suggested spec is noticed
at once, since the classifier's width differs; a label or an id among the features is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from monitor.errors import FitError
from monitor.fitting.tables import texts_of

__all__ = ["ColumnRole", "column_role", "is_protected_name"]

Kind = Literal["numeric", "integer", "binary", "boolean", "text"]

# A text column with more values holds names, addresses or other free text.
_MOST_CATEGORIES = 200
# Fewest rows to tell a running number, and fewest values of an id whose name says so.
_FEWEST_NUMBERED, _FEWEST_IDS = 50, 20

_INDEX = re.compile(r"|Unnamed: ?\d+(\.\d+)*|__index_level_\d+__|index|level_\d+|rownames?")
_PROTECTED = (
    "sex", "gender", "racial", "ethnic", "religio", "disab", "national", "marital", "caste",
    "pregnan", "veteran",
)  # fmt: skip
_ID = {"id", "ids", "uuid", "guid", "ssn", "iban", "email", "phone", "passport"}
_PERSONAL = {"name", "surname", "firstname", "lastname", "address", "street", "email", "phone"}
# Names of labels, and words in names of outcomes, which are labels if there are two values.
_LABEL = {
    "label", "labels", "target", "y", "outcome", "y_true", "ground_truth", "class", "status",
    "loan_status", "good_bad",
}  # fmt: skip
_OUTCOMES = {
    "label", "target", "outcome", "default", "defaulted", "repaid", "churn", "churned", "fraud",
    "recidivism",
}  # fmt: skip
# Words in names of columns that, with few values, are decisions of the past, not outcomes.
_DECISIONS = {
    "decision", "approved", "approval", "granted", "rejected", "refused", "denied", "declined",
    "accepted", "admitted", "hired", "shortlisted",
}  # fmt: skip
_MOST_DECISIONS = 5
_PREDICTION = {
    "prediction", "predictions", "predicted", "pred", "y_pred", "y_hat", "score", "proba",
    "probability",
}  # fmt: skip
# Words in names of whole numbers that are codes of categories without an order.
_CODED = {
    "code", "type", "category", "kind", "region", "district", "branch", "sector", "industry",
    "occupation", "job", "purpose", "product", "channel", "country", "state", "zip", "status",
}  # fmt: skip
# Codes that stand for a missing number where all other values are far away.
_MISSING_CODES = (-9999, -999, -99, 999, 9999, 99999)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRole:
    """A column and its likely role.

    Attributes:
        name: Name of the column.
        kind: Kind of its values; None if they are neither numbers nor text.
        left_out: Why it is no feature; empty if it may be one.
        label: Whether it is likely a label.
        decision: Whether it is likely a decision of the past.
        values: Values as text, sorted, if there are at most 20; None if there are more.
        missing: Share of missing values.
        missing_code: Value that may stand for a missing number; None if there is none.
        coded: Whether its whole numbers may be codes of categories without an order.
    """

    name: str
    kind: Kind | None
    left_out: str = ""
    label: bool = False
    decision: bool = False
    values: tuple[str, ...] | None = None
    missing: float = 0.0
    missing_code: int | None = None
    coded: bool = False


def column_role(name: str, column: pa.ChunkedArray) -> ColumnRole:
    """The likely role of a column."""
    kind, rows = _kind(column), len(column)
    if kind is None:
        return ColumnRole(name=name, kind=None, left_out=f"{column.type}, neither numbers nor text")
    try:
        text = texts_of(column, name, "the data").drop_null()
    except FitError:
        return ColumnRole(name=name, kind=None, left_out="neither numbers nor text")
    distinct = pc.unique(text)
    few = len(distinct) <= 20
    label, decision = _is_label(name, len(distinct)), _is_decision(name, len(distinct))
    return ColumnRole(
        name=name,
        kind=kind,
        left_out=_left_out(name, column, kind, len(distinct), label=label, decision=decision),
        label=label,
        decision=decision,
        values=tuple(sorted(distinct.to_pylist(), key=_order)) if few else None,
        missing=1 - len(text) / rows if rows else 0.0,
        missing_code=_missing_code(column) if kind in ("integer", "numeric") else None,
        coded=kind == "integer"
        and 2 < len(distinct) <= _MOST_CATEGORIES
        and bool(_CODED & set(_words(name))),
    )


def is_protected_name(name: str) -> bool:
    """Whether a name says that the column holds a protected attribute."""
    words = _words(name)
    return any(word.startswith(_PROTECTED) or word in ("race", "races") for word in words)


def _words(name: str) -> list[str]:
    """Lower-case words of a name such as `maritalStatus` or `sex_of_applicant`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]


def _kind(column: pa.ChunkedArray) -> Kind | None:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    values = pc.unique(column.drop_null())
    if pa.types.is_floating(kind):
        values = values.filter(pc.is_finite(values))
    if set(values.slice(0, 3).to_pylist()) <= {0, 1}:
        return "binary"
    return "integer" if pc.all(pc.equal(values, pc.round(values))).as_py() else "numeric"


def _left_out(
    name: str, column: pa.ChunkedArray, kind: Kind, distinct: int, *, label: bool, decision: bool
) -> str:
    """Why a column is no feature; empty if it may be one."""
    words = set(_words(name))
    if _INDEX.fullmatch(name) and (name in ("", "__index_level_0__") or kind == "integer"):
        return "the index of the table"
    if distinct <= 1:
        return "has a single value"
    if label:
        return "a label"
    if decision:
        return "a past decision"
    if name.lower() in _PREDICTION:
        return "a prediction"
    if words & _ID and kind in ("integer", "text") and distinct >= min(_FEWEST_IDS, len(column)):
        return "an id"
    if words & _PERSONAL and kind == "text" and distinct > _MOST_CATEGORIES:
        return "personal data"
    if kind == "integer" and _is_running_number(column):
        return "a running number"
    if kind == "text" and distinct > _MOST_CATEGORIES:
        return f"text with {distinct:,} values"
    return ""


def _is_running_number(column: pa.ChunkedArray) -> bool:
    rows = len(column)
    if rows < _FEWEST_NUMBERED or column.null_count:
        return False
    ends = pc.min_max(column).as_py()
    return bool(ends["max"] - ends["min"] == rows - 1 and len(pc.unique(column)) == rows)


def _is_label(name: str, distinct: int) -> bool:
    if distinct != 2 or is_protected_name(name):
        return False
    return name.lower() in _LABEL or bool(set(_words(name)) & _OUTCOMES)


def _is_decision(name: str, distinct: int) -> bool:
    named = bool(set(_words(name)) & _DECISIONS) and not is_protected_name(name)
    return named and 2 <= distinct <= _MOST_DECISIONS and not _is_label(name, distinct)


def _missing_code(column: pa.ChunkedArray) -> int | None:
    """A value far from all others, or the only negative one, in at least one of 200 rows."""
    values = column.drop_null().cast(pa.float64())
    for code in _MISSING_CODES:
        of_code = pc.equal(values, float(code))
        count = pc.sum(of_code).as_py() or 0
        others = values.filter(pc.invert(of_code))
        if count < max(2, len(values) / 200) or not len(others):
            continue
        ends = pc.min_max(others).as_py()
        width = max(ends["max"] - ends["min"], 1)
        far = code < ends["min"] - width / 2 or code > ends["max"] + width / 2
        if far or code < 0 <= ends["min"]:
            return code
    return None


def _order(value: str) -> tuple[float, str]:
    """Numbers by value, then text."""
    try:
        return float(value), value
    except ValueError:
        return float("inf"), value
