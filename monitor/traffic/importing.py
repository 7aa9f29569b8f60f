"""Imports outcomes from a Parquet or CSV file, after validating all of its rows."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import csv
from pyarrow import parquet as pq

from monitor.errors import TrafficError
from monitor.request import MAX_ID_LENGTH
from monitor.traffic.columns import (
    FORMAT,
    TIME,
    WORD,
    group_column,
    log_metadata,
    outcome_schema,
    rebuild_dictionaries,
    with_metadata,
)
from monitor.traffic.compaction import write_table
from monitor.traffic.ledger import SegmentEntry, read_ledger, write_entry
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store

__all__ = ["Imported", "import_outcomes"]

_LARGEST_ROW = 2**31 - 1
_AHEAD = dt.timedelta(days=1)
_GROUP = "group_"
_PLAIN = ("request_id", "row", "label", "observed_at")
# Index columns that pandas writes.
_INDEX = ("", "__index_level_0__", "Unnamed: 0")
_SHOWN_COLUMNS = 20
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Result of an import.

    Attributes:
        rows: Number of stored outcomes.
        skipped: Number of invalid rows.
        labels: Number of stored outcomes with a label.
        groups: Number of stored outcomes with a group, by protected attribute.
        already: Whether the same file was imported before; then nothing was stored.
    """

    rows: int
    skipped: int = 0
    labels: int = 0
    groups: Mapping[str, int]
    already: bool = False


def import_outcomes(
    path: Path,
    store: Store,
    pseudonyms: Pseudonyms,
    *,
    model: str,
    known: Mapping[str, Sequence[str]] | None = None,
    skip_bad: bool = False,
) -> Imported:
    """Store the outcomes of a Parquet or CSV file.

    Columns: `request_id`; `row` (default 0); `label` (0 or 1); `group_<attribute>`, or the
    attribute's name if the attributes are known; `observed_at` (with a time zone; default now).
    Label and groups may be missing or null, but not all of them in one row.

    Args:
        path: Path of the file.
        store: Store of the outcomes.
        pseudonyms: Pseudonyms with the log's key, if it has one.
        model: Name of the model.
        known: Groups by protected attribute; others are invalid. None accepts all.
        skip_bad: Whether to store the valid rows if some are invalid.

    Raises:
        TrafficError: The file is invalid; nothing was stored.
    """
    _check_key(store, pseudonyms, model)
    # The model is part of the name: two models may import the same file.
    name = f"import-{_digest(path)[:16]}-{model}"
    if any(e.segment == name and e.model == model for e in read_ledger(store)[0]):
        return Imported(rows=0, groups={}, already=True)
    now = dt.datetime.now(dt.UTC)
    table, attributes = _columns(_read(path), path, known, now)
    bad = _flaws(table, attributes, known, now)
    skipped = pc.sum(bad).as_py() or 0
    if skipped and not skip_bad:
        first = pc.index(bad, True).as_py()
        why = _flaw(table.slice(first, 1), attributes, known, now)
        raise TrafficError(
            f"{path}: {skipped:,} of {len(table):,} rows are invalid. First invalid row: "
            f"{first + 1} ({why}). Nothing was imported; --skip-bad imports the valid rows"
        )
    table = table.filter(pc.invert(bad))
    if pseudonyms.enabled:
        ids = pa.array([pseudonyms.of(name) for name in table["request_id"].to_pylist()])
        table = table.set_column(0, "request_id", ids)
    if len(table):
        _store(table, known or dict.fromkeys(attributes, ()), store, pseudonyms, model, name, now)
    return Imported(
        rows=len(table),
        skipped=skipped,
        labels=_present(table["label"]),
        groups={a: _present(table[group_column(a)]) for a in attributes},
    )


def _check_key(store: Store, pseudonyms: Pseudonyms, model: str) -> None:
    """Reject a key that differs from the newest file's: nothing could be joined by the ids."""
    try:
        files = store.files(f"model={model}", ".parquet")
        if not files:
            return
        with store.open_file(max(file.path for file in files)) as source:
            about = log_metadata(pq.read_schema(source))
    except (OSError, pa.ArrowException):
        # An unreadable older file does not prevent an import.
        return
    existing, configured = about.get("pseudonyms"), pseudonyms.fingerprint
    if about and existing != configured:
        names = [key or "none" for key in (existing, configured)]
        raise TrafficError(
            f"{store.location}: existing outcomes have pseudonyms of another key ({names[0]}) than "
            f"traffic.key_path ({names[1]}), so they could not be joined; pass the sidecar's "
            "config with --config"
        )


def _read(path: Path) -> pa.Table:
    try:
        if path.suffix.lower() == ".csv":
            with csv.open_csv(path) as reader:
                words = [n for n in reader.schema.names if n not in ("row", "label", "observed_at")]
            options = csv.ConvertOptions(
                column_types=dict.fromkeys(words, pa.string()),
                # Only an empty field is null: NA may be a group.
                null_values=[""],
                strings_can_be_null=True,
            )
            return csv.read_csv(path, convert_options=options)
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a Parquet or CSV file"
        raise TrafficError(f"{path}: {reason or 'cannot be read'}") from None


def _columns(
    content: pa.Table, path: Path, known: Mapping[str, Sequence[str]] | None, now: dt.datetime
) -> tuple[pa.Table, tuple[str, ...]]:
    """The columns of a file in the schema of outcomes, and its protected attributes."""
    if "request_id" not in content.column_names:
        names = ", ".join(content.column_names[:_SHOWN_COLUMNS])
        raise TrafficError(f"{path}: column request_id is missing; columns: {names}")
    attributes, columns = {}, {}
    for name in content.column_names:
        if name in _PLAIN or name in _INDEX:
            continue
        attribute = name.removeprefix(_GROUP)
        if (known is not None and attribute not in known) or (known is None and name == attribute):
            raise TrafficError(f"{path}: unknown column {name!r}; {_expected(known)}")
        if attribute in attributes:
            raise TrafficError(
                f"{path}: columns {attribute!r} and {group_column(attribute)!r} are the same "
                "attribute; keep one"
            )
        attributes[attribute] = name
    if not attributes and "label" not in content.column_names:
        raise TrafficError(f"{path}: no column with labels or groups; {_expected(known)}")
    empty = pa.nulls(len(content))
    attributes = {name: attributes.get(name, "") for name in known or attributes}
    schema = outcome_schema(tuple(attributes))
    for field in schema:
        name = attributes.get(field.name.removeprefix(_GROUP), field.name)
        columns[field.name] = _cast(
            content[name] if name in content.column_names else empty, field, name, path
        )
    columns["row"] = pc.fill_null(columns["row"], 0)
    moment = pa.scalar(now, TIME)
    columns["observed_at"] = pc.fill_null(columns["observed_at"], moment)
    columns["received_at"] = pc.fill_null(columns["received_at"], moment)
    columns["source"] = pa.array(["file"] * len(content)).cast(WORD)
    return pa.table(columns, schema=schema), tuple(attributes)


def _cast(column: pa.ChunkedArray, field: pa.Field, name: str, path: Path) -> pa.ChunkedArray:
    if field.type == TIME and pa.types.is_timestamp(column.type) and column.type.tz is None:
        raise TrafficError(f"{path}: column {name!r} has no time zone; use a timestamp with one")
    if field.type == TIME and not (
        pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)
    ):
        raise TrafficError(f"{path}: column {name!r} is {column.type}; expected a timestamp")
    try:
        if field.type == WORD and not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        return column.cast(field.type)
    except (pa.ArrowException, ValueError):
        meaning = "; a label is 1 or 0, the index of the true class" if name == "label" else ""
        raise TrafficError(
            f"{path}: column {name!r} is {column.type} and cannot be converted to {field.type}"
            f"{meaning}"
        ) from None


def _flaws(
    table: pa.Table,
    attributes: Sequence[str],
    known: Mapping[str, Sequence[str]] | None,
    now: dt.datetime,
) -> pa.ChunkedArray:
    """Whether each row is invalid."""
    checks = [failed for _, failed in _checks(table, attributes, known, now)]
    invalid = checks[0]
    for failed in checks[1:]:
        invalid = pc.or_(invalid, failed)
    return pc.fill_null(invalid, fill_value=True)


def _flaw(
    row: pa.Table,
    attributes: Sequence[str],
    known: Mapping[str, Sequence[str]] | None,
    now: dt.datetime,
) -> str:
    """What is wrong with one row, without its values."""
    checks = _checks(row, attributes, known, now)
    return next(
        message for message, invalid in checks if pc.fill_null(invalid, fill_value=True)[0].as_py()
    )


def _checks(
    table: pa.Table,
    attributes: Sequence[str],
    known: Mapping[str, Sequence[str]] | None,
    now: dt.datetime,
) -> list[tuple[str, pa.ChunkedArray]]:
    length = pc.fill_null(pc.utf8_length(table["request_id"]), 0)
    label, row, observed = table["label"], table["row"], table["observed_at"]
    nothing = pc.is_null(label)
    for attribute in attributes:
        nothing = pc.and_(nothing, pc.is_null(table[group_column(attribute)]))
    ahead, labels = pa.scalar(now + _AHEAD, TIME), pa.array([0, 1, None], pa.int8())
    printable = pc.utf8_is_printable(table["request_id"])
    checks = [
        (
            f"request_id must be 1 to {MAX_ID_LENGTH} printable characters",
            pc.or_(
                pc.or_(pc.less(length, 1), pc.greater(length, MAX_ID_LENGTH)),
                pc.fill_null(pc.invert(printable), fill_value=True),
            ),
        ),
        (f"row must be between 0 and {_LARGEST_ROW}", pc.less(row, 0)),
        ("label must be 0 or 1", pc.invert(pc.is_in(label, labels))),
        ("label and groups are both missing; at least one is required", nothing),
        ("observed_at is in the future", pc.greater(observed, ahead)),
        ("observed_at is before 1970", pc.less(observed, pa.scalar(_EPOCH, TIME))),
    ]  # fmt: skip
    for attribute in attributes if known is not None else ():
        assert known is not None
        group = table[group_column(attribute)].cast(pa.string())
        unknown = pc.invert(pc.is_in(group, pa.array([*known[attribute], None])))
        names = ", ".join(known[attribute])
        checks.append((f"unknown group of {attribute}; known: {names}", unknown))
    return checks


def _store(
    table: pa.Table,
    groups: Mapping[str, Sequence[str]],
    store: Store,
    pseudonyms: Pseudonyms,
    model: str,
    name: str,
    now: dt.datetime,
) -> None:
    about = {
        "format": FORMAT,
        "kind": "outcomes",
        "model": model,
        "segment": name,
        "attributes": {attribute: list(names) for attribute, names in groups.items()},
        "pseudonyms": pseudonyms.fingerprint,
    }
    table = rebuild_dictionaries(table.cast(with_metadata(table.schema, about)))
    try:
        with store.draft() as draft:
            file = write_table(store, _where(store, model, name, now), table, draft)
        entry = SegmentEntry(
            segment=name,
            kind="outcomes",
            model=model,
            version="",
            since=now,
            until=now,
            rows=len(table),
            files=(file,),
        )
        write_entry(store, entry)
    except OSError as error:
        raise TrafficError(f"{store.location}: {error.strerror or error}") from None


def _where(store: Store, model: str, name: str, now: dt.datetime) -> str:
    """Path of the new file; that of an earlier failed import if there was one."""
    for file in store.files(f"model={model}", f"/{name}.parquet"):
        return file.path
    return f"model={model}/date={now:%Y-%m-%d}/{name}.parquet"


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TrafficError(f"{path}: {error.strerror or error}") from None


def _expected(known: Mapping[str, Sequence[str]] | None) -> str:
    groups = "group_<attribute>" if known is None else ", ".join(map(group_column, known))
    return f"expected columns: request_id, row, label, observed_at, {groups}"


def _present(column: pa.ChunkedArray) -> int:
    return len(column) - int(column.null_count)
