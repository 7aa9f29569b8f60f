"""Logs and outcomes for tests, written like the sidecar's from rows in memory."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monitor.traffic.columns import (
    FeatureColumn,
    TrafficColumns,
    group_column,
    outcome_schema,
    with_metadata,
)
from monitor.traffic.compaction import parquet_options
from monitor.traffic.ledger import LedgerFile, SegmentEntry, write_entry
from monitor.traffic.store import Store

__all__ = [
    "ATTRIBUTES",
    "COLUMNS",
    "MODEL",
    "START",
    "outcome_rows",
    "outcome_table",
    "traffic_columns",
    "traffic_rows",
    "traffic_table",
    "write_outcomes",
    "write_traffic",
]

MODEL = "credit"
START = dt.datetime(2026, 3, 1, 22, tzinfo=dt.UTC)
ATTRIBUTES: dict[str, tuple[str, ...]] = {"sex": ("female", "male"), "ethnicity": ("a", "b", "c")}
_US = dt.timedelta(microseconds=1)


def traffic_columns(
    *features: str, attributes: tuple[str, ...] = tuple(ATTRIBUTES), hashed: tuple[str, ...] = ()
) -> TrafficColumns:
    """Columns of a model with these numeric features."""
    return TrafficColumns(
        features=tuple(
            FeatureColumn(
                name=name,
                feature=name,
                index=index,
                kind="numeric",
                treatment="hash" if name in hashed else "keep",
            )
            for index, name in enumerate(features)
        ),
        attributes=attributes,
    )


COLUMNS = traffic_columns("age", "income")


def traffic_rows(
    n: int,
    *,
    seed: int = 0,
    columns: TrafficColumns = COLUMNS,
    since: dt.datetime = START,
    hours: float = 4,
    coarse: bool = True,
) -> pa.Table:
    """Predictions of requests of one to three rows, spread evenly over some hours.

    Args:
        n: Number of rows.
        seed: Seed of the random generator.
        columns: Columns of the log.
        since: Time of the first row.
        hours: Hours over which the rows are spread.
        coarse: Whether logits are rounded, so that many are tied.
    """
    rng = np.random.default_rng(seed)
    starts = (
        np.flatnonzero(np.concatenate([[True], rng.random(n - 1) < 0.7])) if n else np.arange(0)
    )
    request = np.repeat(np.arange(len(starts)), np.diff([*starts, n])) if n else np.arange(0)
    digits = np.frombuffer(rng.bytes(16 * max(len(starts), 1)).hex().encode(), dtype="S32")
    logit = rng.normal(size=n).astype("f4")
    logit = logit.round(1) if coarse else logit
    score = 1 / (1 + np.exp(-logit.astype("f8")))
    step = dt.timedelta(hours=hours) / max(n, 1) // _US
    time = (since - dt.datetime.fromtimestamp(0, dt.UTC)) // _US + np.arange(n) * step
    columns_by_name: dict[str, Any] = {
        "request_id": pa.array(digits[request]).cast(pa.string()),
        "row": np.arange(n) - starts[request] if n else np.arange(0),
        "time": time,
        "score": pa.array(score.astype("f4"), mask=rng.random(n) < 0.02),
        "logit": logit,
        "decision": (logit > 0).astype("i1"),
        "boundary_distance": np.abs(logit),
        "action": _random_words(rng, n, ("none", "flag"), (0.9, 0.1)),
    }
    for column in columns.features:
        values = rng.normal(size=n).astype("f4")
        hashed = column.treatment == "hash"
        columns_by_name[column.name] = [f"h{v:.3f}" for v in values] if hashed else values
    for attribute in columns.attributes:
        for signal in ("prediction_sensitivity", "flip_probability", "expected_change", "p_value"):
            columns_by_name[f"{signal}_{attribute}"] = rng.random(n)
        columns_by_name[f"verdict_{attribute}"] = _random_words(
            rng, n, ("within", "above", None), (0.85, 0.1, 0.05)
        )
    return traffic_table(columns_by_name, columns)


def traffic_table(values: Mapping[str, Any], columns: TrafficColumns = COLUMNS) -> pa.Table:
    """Rows of the log with these columns; other columns are null."""
    return _table(values, columns.schema)


def outcome_rows(
    traffic: pa.Table,
    *,
    seed: int = 1,
    share: float = 0.8,
    again: float = 0.1,
    attributes: Mapping[str, tuple[str, ...]] = ATTRIBUTES,
) -> pa.Table:
    """Outcomes of a share of the predictions, some repeated with other values."""
    rng = np.random.default_rng(seed)
    labelled = np.flatnonzero(rng.random(traffic.num_rows) < share)
    indices = rng.permutation(
        np.concatenate([labelled, labelled[rng.random(len(labelled)) < again]])
    )
    n = len(indices)
    chosen = traffic.select(["request_id", "row", "time", "logit"]).take(indices)
    probability = 1 / (1 + np.exp(-np.asarray(chosen["logit"], dtype="f8")))
    observed_at = (
        np.asarray(chosen["time"].cast(pa.int64())) + rng.integers(1, 72, n) * 3_600_000_000
    )
    values: dict[str, Any] = {
        "request_id": chosen["request_id"],
        "row": chosen["row"],
        "label": pa.array((rng.random(n) < probability).astype("i1"), mask=rng.random(n) < 0.1),
        "observed_at": observed_at,
        "received_at": observed_at + rng.integers(0, 3, n) * 60_000_000,
        "source": _random_words(rng, n, ("rpc", "rest", "file"), (0.5, 0.3, 0.2)),
    }
    for attribute, groups in attributes.items():
        known = (*groups, None)
        values[group_column(attribute)] = _random_words(
            rng, n, known, (1 / len(known),) * len(known)
        )
    return outcome_table(values, tuple(attributes))


def outcome_table(
    values: Mapping[str, Any], attributes: tuple[str, ...] = tuple(ATTRIBUTES)
) -> pa.Table:
    """Outcomes with these columns; other columns are null."""
    return _table(values, outcome_schema(attributes))


def write_traffic(
    log: Path,
    rows: pa.Table,
    *,
    segment: str = "s1",
    model: str = MODEL,
    version: str = "1",
    columns: TrafficColumns = COLUMNS,
    pseudonyms: str | None = None,
    favourable: int = 1,
    lost: Mapping[str, int] | None = None,
    listed: bool = True,
) -> SegmentEntry:
    """Write a segment's rows as the sidecar does: a file for every hour, an entry in the ledger."""
    about = {
        "format": 1,
        "kind": "traffic",
        "model": model,
        "version": version,
        "class_names": ["refused", "granted"],
        "favourable": favourable,
        "threshold": 0.5,
        "attributes": {name: list(ATTRIBUTES.get(name, ("x", "y"))) for name in columns.attributes},
        "columns": columns.to_json(),
        "pseudonyms": pseudonyms,
        "segment": segment,
        "evenhand": "0.1.0",
    }
    folder = f"model={model}/version={version}/date=%Y-%m-%d/hour=%H"
    return _write(log, rows, "time", folder, about, lost or {}, listed=listed)


def write_outcomes(
    outcomes: Path,
    rows: pa.Table,
    *,
    segment: str = "o1",
    model: str = MODEL,
    pseudonyms: str | None = None,
    listed: bool = True,
    attributes: Mapping[str, Sequence[str]] | None = None,
) -> SegmentEntry:
    """Write outcomes as the sidecar does: a file for every day on which they were received."""
    about = {
        "format": 1,
        "kind": "outcomes",
        "model": model,
        "version": "",
        "attributes": {
            name.removeprefix("group_"): []
            for name in rows.schema.names
            if name.startswith("group_")
        }
        | dict(attributes or {}),
        "pseudonyms": pseudonyms,
        "segment": segment,
        "evenhand": "0.1.0",
    }
    folder = f"model={model}/date=%Y-%m-%d"
    return _write(outcomes, rows, "received_at", folder, about, {}, listed=listed)


def _write(
    location: Path,
    rows: pa.Table,
    clock: str,
    folder: str,
    about: Mapping[str, Any],
    lost: Mapping[str, int],
    *,
    listed: bool,
) -> SegmentEntry:
    store = Store.open(location)
    schema = with_metadata(rows.schema, about)
    hours = pc.floor_temporal(rows[clock], unit="day" if "%H" not in folder else "hour")
    files = []
    for hour in sorted(set(hours.to_pylist())):
        path = f"{hour:{folder}}/{about['segment']}.parquet"
        part = rows.filter(pc.equal(hours, pa.scalar(hour, hours.type))).cast(schema)
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink, **parquet_options(schema))
        data = sink.getvalue().to_pybytes()
        store.put(path, data)
        sha256 = hashlib.sha256(data).hexdigest()
        files.append(LedgerFile(path=path, rows=part.num_rows, bytes=len(data), sha256=sha256))
    span = pc.min_max(rows[clock]).as_py() if rows.num_rows else {"min": START, "max": START}
    entry = SegmentEntry.model_validate(
        {
            **{key: about[key] for key in ("segment", "kind", "model", "version")},
            "since": span["min"],
            "until": span["max"],
            "rows": rows.num_rows,
            "lost": dict(lost),
            "files": files,
        }
    )
    if listed:
        write_entry(store, entry)
    return entry


def _table(values: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    n = len(values["request_id"])
    columns = []
    for field in schema:
        column = values.get(field.name)
        value_type = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if column is None:
            column = pa.nulls(n, value_type)
        elif not isinstance(column, pa.Array | pa.ChunkedArray):
            column = pa.array(column)
        columns.append(column.cast(value_type) if column.type != value_type else column)
    return pa.table(columns, names=schema.names)


def _random_words(
    rng: np.random.Generator, n: int, words: tuple[str | None, ...], shares: tuple[float, ...]
) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(rng.choice(len(words), n, p=shares)))
