"""Outcomes from a file: checked as a whole, then stored apart like those that arrive one by one."""

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
from monitor.request_ids import LONGEST
from monitor.traffic.columns import (
    FORMAT,
    TIME,
    WORD,
    about_file,
    fresh_words,
    group_column,
    outcome_schema,
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
_SHOWN_COLUMNS = 20
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a file.

    Attributes:
        rows: Outcomes that were stored.
        skipped: Rows that could not be used.
        labels: Of those stored, with a label.
        groups: By protected attribute, with a group.
        already: Whether the very same file had been imported before; then nothing was done.
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

    Columns: `request_id`; `row` (0 unless given); `label` (0 or 1); `group_<attribute>`, or plainly
    the attribute's name where the attributes are known; `observed_at` (now unless given, with a
    time zone). Label and groups may be missing or null, but not all of them in one row.

    Args:
        path: The file.
        store: The outcomes.
        pseudonyms: With the log's key, if it has one.
        model: Whose predictions they are of.
        known: Protected attributes and their groups; others are refused.
        skip_bad: Whether to store the rest where single rows cannot be used.

    Raises:
        TrafficError: The file cannot be used; nothing of it was stored.
    """
    _check_key(store, pseudonyms, model)
    # Of two models that are given the same file each has its own entry in the ledger.
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
            f"{path}: {skipped:,} of {len(table):,} rows cannot be used, the first is number "
            f"{first + 1}: {why}; nothing was imported (--skip-bad imports the others)"
        )
    table = table.filter(pc.invert(bad))
    if not pseudonyms.kept:
        ids = pa.array([pseudonyms.of(found) for found in table["request_id"].to_pylist()])
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
    """Refuse ids by another key than the newest file's: nothing could be joined with them."""
    try:
        files = store.files(f"model={model}", ".parquet")
        if not files:
            return
        with store.open_file(max(file.path for file in files)) as source:
            about = about_file(pq.read_schema(source))
    except (OSError, pa.ArrowException):
        # Whatever is wrong with an older file does not keep new outcomes out.
        return
    there, ours = about.get("pseudonyms"), pseudonyms.fingerprint
    if about and there != ours:
        names = [key or "none" for key in (there, ours)]
        raise TrafficError(
            f"{store.place}: the outcomes there name requests by another key ({names[0]}) than "
            f"traffic.key_path gives ({names[1]}), so they could not be joined; name the sidecar's "
            "config by --config"
        )


def _read(path: Path) -> pa.Table:
    try:
        if path.suffix.lower() == ".csv":
            with csv.open_csv(path) as reader:
                words = [n for n in reader.schema.names if n not in ("row", "label", "observed_at")]
            options = csv.ConvertOptions(
                column_types=dict.fromkeys(words, pa.string()),
                # Only nothing is nothing: NA may be a group.
                null_values=[""],
                strings_can_be_null=True,
            )
            return csv.read_csv(path, convert_options=options)
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        told = error.strerror if isinstance(error, OSError) else "it is neither Parquet nor CSV"
        raise TrafficError(f"{path}: {told or 'cannot be read'}") from None


def _columns(
    found: pa.Table, path: Path, known: Mapping[str, Sequence[str]] | None, now: dt.datetime
) -> tuple[pa.Table, tuple[str, ...]]:
    """The file's columns in the form that outcomes are stored in, and its attributes."""
    if "request_id" not in found.column_names:
        there = ", ".join(found.column_names[:_SHOWN_COLUMNS])
        raise TrafficError(f"{path}: there is no column request_id; it has {there}")
    attributes, columns = {}, {}
    for name in found.column_names:
        if name in ("request_id", "row", "label", "observed_at"):
            continue
        attribute = name.removeprefix(_GROUP)
        if (known is not None and attribute not in known) or (known is None and name == attribute):
            raise TrafficError(f"{path}: column {name!r} is none of outcomes; {_expected(known)}")
        if attribute in attributes:
            raise TrafficError(f"{path}: {attribute!r} and {group_column(attribute)!r} are one")
        attributes[attribute] = name
    if not attributes and "label" not in found.column_names:
        raise TrafficError(f"{path}: there is neither a label nor a group; {_expected(known)}")
    empty = pa.nulls(len(found))
    attributes = {name: attributes.get(name, "") for name in known or attributes}
    schema = outcome_schema(tuple(attributes))
    for field in schema:
        name = attributes.get(field.name.removeprefix(_GROUP), field.name)
        columns[field.name] = _cast(
            found[name] if name in found.column_names else empty, field, name, path
        )
    columns["row"] = pc.fill_null(columns["row"], 0)
    moment = pa.scalar(now, TIME)
    columns["observed_at"] = pc.fill_null(columns["observed_at"], moment)
    columns["received_at"] = pc.fill_null(columns["received_at"], moment)
    columns["source"] = pa.array(["file"] * len(found)).cast(WORD)
    return pa.table(columns, schema=schema), tuple(attributes)


def _cast(column: pa.ChunkedArray, field: pa.Field, name: str, path: Path) -> pa.ChunkedArray:
    if field.type == TIME and pa.types.is_timestamp(column.type) and column.type.tz is None:
        raise TrafficError(f"{path}: column {name!r} has no time zone")
    if field.type == TIME and not (
        pa.types.is_timestamp(column.type) or pa.types.is_null(column.type)
    ):
        raise TrafficError(f"{path}: column {name!r} is {column.type}, and no time")
    try:
        if field.type == WORD and not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        return column.cast(field.type)
    except (pa.ArrowException, ValueError):
        raise TrafficError(
            f"{path}: column {name!r} is {column.type}, which does not become {field.type}"
        ) from None


def _flaws(
    table: pa.Table,
    attributes: Sequence[str],
    known: Mapping[str, Sequence[str]] | None,
    now: dt.datetime,
) -> pa.ChunkedArray:
    """Which rows cannot be used."""
    checks = [bad for _, bad in _checks(table, attributes, known, now)]
    found = checks[0]
    for bad in checks[1:]:
        found = pc.or_(found, bad)
    return pc.fill_null(found, fill_value=True)


def _flaw(
    row: pa.Table,
    attributes: Sequence[str],
    known: Mapping[str, Sequence[str]] | None,
    now: dt.datetime,
) -> str:
    """What is wrong with one row, without its values."""
    checks = _checks(row, attributes, known, now)
    return next(words for words, bad in checks if pc.fill_null(bad, fill_value=True)[0].as_py())


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
            "request_id is no id that a request can have",
            pc.or_(
                pc.or_(pc.less(length, 1), pc.greater(length, LONGEST)),
                pc.fill_null(pc.invert(printable), fill_value=True),
            ),
        ),
        ("row is no row that a request can have", pc.less(row, 0)),
        ("label is neither 0 nor 1", pc.invert(pc.is_in(label, labels))),
        ("neither label nor groups are given", nothing),
        ("observed_at lies in the future", pc.greater(observed, ahead)),
        ("observed_at lies before 1970", pc.less(observed, pa.scalar(_EPOCH, TIME))),
    ]  # fmt: skip
    for attribute in attributes if known is not None else ():
        assert known is not None
        group = table[group_column(attribute)].cast(pa.string())
        strange = pc.invert(pc.is_in(group, pa.array([*known[attribute], None])))
        there = ", ".join(known[attribute])
        checks.append((f"no such group of {attribute}; there are {there}", strange))
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
        "attributes": {attribute: list(found) for attribute, found in groups.items()},
        "pseudonyms": pseudonyms.fingerprint,
    }
    table = fresh_words(table.cast(with_metadata(table.schema, about)))
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
        raise TrafficError(f"{store.place}: {error.strerror or error}") from None


def _where(store: Store, model: str, name: str, now: dt.datetime) -> str:
    """Where the file goes: to its place of an earlier try that broke off, if there was one."""
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
    return f"there may be request_id, row, label, observed_at, {groups}"


def _present(column: pa.ChunkedArray) -> int:
    return len(column) - int(column.null_count)
