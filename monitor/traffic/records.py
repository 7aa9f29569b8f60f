"""Encoding of predictions: from a batch to the payload of a record, and on to Parquet columns.

A payload is the request ids, one per line, followed by rows of fixed width, so that the rows of
thousands of records are converted to columns at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from monitor.bundle.encoding import MISSING, NOT_LISTED
from monitor.policy import ACTION_NAMES, VERDICT_NAMES, Action, Verdict
from monitor.scoring.scores import REASON_NAMES, Reason
from monitor.traffic.columns import SIGNALS, TIME, WORD, FeatureColumn, TrafficColumns
from monitor.traffic.privacy import FeatureGuard, Pseudonyms
from monitor.traffic.segment import Records

if TYPE_CHECKING:
    from monitor.batching import Waiting
    from monitor.scoring.scorer import Scorer, ScoringResult
    from monitor.scoring.scores import ScoreColumns

__all__ = ["TrafficEncoder", "hours", "traffic_table"]

_IDS = struct.Struct("<II")
_MISSING = -1
_SIGNALS_PER_ATTRIBUTE = 3
_VERDICTS, _ACTIONS = pa.array(VERDICT_NAMES), pa.array(ACTION_NAMES)
_REASONS = pa.array(REASON_NAMES)


class TrafficEncoder:
    """Encodes batches of predictions."""

    def __init__(
        self,
        columns: TrafficColumns,
        scores: ScoreColumns,
        guard: FeatureGuard,
        pseudonyms: Pseudonyms,
        scorer: Scorer,
        empty_row: NDArray[np.float64] | None = None,
    ) -> None:
        self._guard, self._pseudonyms, self._scorer = guard, pseudonyms, scorer
        self._dtype = _row_dtype(columns)
        self._raw = columns.raw
        self._empty_row = empty_row
        self._hashes = "hashed" in (self._dtype.names or ())
        used = [scores.logit, scores.boundary_distance]
        for name in columns.attributes:
            own = scores.attributes[name]
            used += [own.log_prediction_sensitivity, own.flip_probability, own.expected_change]
        self._score_columns = np.array(used, np.intp)
        self._columns = scores

    def payload(
        self, batch: Sequence[Waiting], features: NDArray[np.float32], result: ScoringResult
    ) -> bytes:
        """Payload of a batch with features `[n, d]`."""
        rows = np.zeros(len(features), self._dtype)
        self._set_requests(rows, batch)
        written: NDArray[np.floating] = features
        if self._raw:
            written = self._raw_rows(batch)
            rows["encoded"] = np.repeat(
                [waiting.raw is None for waiting in batch],
                [len(waiting.features) for waiting in batch],
            )
        rows["features"] = self._guard.treated(written)
        if self._hashes:
            rows["hashed"] = self._guard.hashed(written)
        if result.scores is None:
            rows["scores"] = np.nan
            rows["scores"][:, 0] = self._scorer.logits(result.output)
            rows["decision"] = _decisions(self._scorer.margins(result.output))
            rows["p_values"] = np.nan
        else:
            rows["scores"] = result.scores[:, self._score_columns]
            rows["decision"] = _decisions(result.scores[:, self._columns.signed_margin])
            rows["reason"] = self._columns.reasons(result.scores)
            rows["p_values"] = result.p_values
        rows["verdicts"] = _MISSING if result.verdicts is None else result.verdicts
        rows["likely_flip"] = _statement(result.likely_flip, result.verdicts)
        rows["unusual"] = _statement(result.unusual, result.verdicts)
        rows["action"] = Action.NONE if result.actions is None else result.actions
        name = self._pseudonyms.of
        ids = "\n".join([name(waiting.request_id) for waiting in batch]).encode()
        return b"".join((_IDS.pack(len(batch), len(ids)), ids, rows.tobytes()))

    def _raw_rows(self, batch: Sequence[Waiting]) -> NDArray[np.float64]:
        """Raw rows of a batch, `[n, r]`; all missing where a request has encoded features."""
        assert self._empty_row is not None
        parts = [
            np.tile(self._empty_row, (len(waiting.features), 1))
            if waiting.raw is None
            else waiting.raw
            for waiting in batch
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _set_requests(self, rows: NDArray[np.void], batch: Sequence[Waiting]) -> None:
        """Set the index of the request in the batch, and the row in the request."""
        if len(batch) == len(rows):
            rows["request"] = np.arange(len(batch))
            rows["row"] = [waiting.first_row for waiting in batch]
            return
        start = 0
        for index, waiting in enumerate(batch):
            stop = start + len(waiting.features)
            rows["request"][start:stop] = index
            rows["row"][start:stop] = np.arange(waiting.first_row, waiting.first_row + stop - start)
            start = stop


def traffic_table(records: Records, columns: TrafficColumns) -> pa.Table:
    """Table of some records."""
    data, unpack, head = records.data, _IDS.unpack_from, _IDS.size
    ids: list[bytes] = []
    parts: list[bytes] = []
    counts: list[int] = []
    for start, stop in zip(records.starts, records.stops, strict=True):
        count, size = unpack(data, start)
        counts.append(count)
        rows_start = start + head + size
        ids.append(data[start + head : rows_start])
        parts.append(data[rows_start:stop])
    rows = np.frombuffer(b"".join(parts), _row_dtype(columns))
    per_record = np.array(records.rows)
    # A row has the index of its request in its record; add the requests of earlier records.
    before = np.cumsum(counts) - np.array(counts)
    requests = rows["request"].astype(np.int64) + np.repeat(before, per_record)
    names = pa.array(b"\n".join(ids).split(b"\n"), pa.binary()).cast(pa.string())
    if len(names) != len(rows) or not np.array_equal(requests, np.arange(len(rows))):
        names = names.take(pa.array(requests))
    times = np.repeat(np.array(records.times) // 1000, per_record)
    arrays = [names, pa.array(rows["row"].copy()), pa.array(times).cast(TIME)]
    arrays += _feature_arrays(rows, columns)
    if columns.raw:
        arrays.append(pa.array(rows["encoded"] != 0))
    arrays += _score_arrays(rows, columns)
    arrays.append(_dictionary_column(rows["action"], _ACTIONS))
    return pa.table(arrays, schema=columns.schema)


def hours(records: Records) -> list[tuple[int, Records]]:
    """Records by the hour of writing, in hours since 1970, in order."""
    hour = np.array(records.times) // 3_600_000_000_000
    if len(records) and hour.min() == hour.max():
        return [(int(hour[0]), records)]
    order = np.argsort(hour, kind="stable")
    cuts = np.flatnonzero(np.diff(hour[order])) + 1
    edges = [0, *cuts.tolist(), len(records)]
    return [
        (int(hour[order[start]]), records.select(order[start:stop].tolist()))
        for start, stop in pairwise(edges)
        if stop > start
    ]


def _row_dtype(columns: TrafficColumns) -> np.dtype[np.void]:
    hashed = sum(column.treatment == "hash" for column in columns.features)
    attributes = len(columns.attributes)
    fields: list[tuple[str, str, tuple[int, ...]]] = [
        ("request", "<u4", ()),
        ("row", "<i4", ()),
        ("features", "<f8" if columns.raw else "<f4", (len(columns.features) - hashed,)),
        ("scores", "<f4", (2 + _SIGNALS_PER_ATTRIBUTE * attributes,)),
        ("p_values", "<f8", (attributes,)),
        ("likely_flip", "i1", (attributes,)),
        ("unusual", "i1", (attributes,)),
        ("verdicts", "i1", (attributes,)),
        ("decision", "i1", ()),
        ("reason", "i1", ()),
        ("action", "i1", ()),
    ]
    if columns.raw:
        fields.append(("encoded", "i1", ()))
    if hashed:
        fields.insert(2, ("hashed", "<u8", (hashed,)))
    return np.dtype(fields)


def _statement(
    holds: NDArray[np.bool_] | None, verdicts: NDArray[np.int8] | None
) -> NDArray[np.int8] | int:
    """1 or 0 for whether a statement holds, `[n, a]`; missing where the verdict is unknown."""
    if holds is None or verdicts is None:
        return _MISSING
    return np.where(verdicts == Verdict.UNKNOWN, _MISSING, holds).astype(np.int8)


def _decisions(margin: NDArray[np.floating]) -> NDArray[np.int8]:
    """Class 1 or 0 by the signed margin; missing if the margin is NaN."""
    decisions: NDArray[np.int8] = np.where(np.isnan(margin), _MISSING, margin >= 0).astype(np.int8)
    return decisions


def _feature_arrays(rows: NDArray[np.void], columns: TrafficColumns) -> list[pa.Array]:
    arrays, plain, hashed = [], 0, 0
    for column in columns.features:
        if column.treatment == "hash":
            numbers = rows["hashed"][:, hashed].tolist()
            # The hash 0 is the code of NaN.
            arrays.append(pa.array([f"{n:016x}" if n else None for n in numbers], pa.string()))
            hashed += 1
        else:
            values = rows["features"][:, plain]
            plain += 1
            is_word = column.kind == "category"
            arrays.append(_words(values, column) if is_word else _numbers(values))
    return arrays


def _score_arrays(rows: NDArray[np.void], columns: TrafficColumns) -> list[pa.Array]:
    scores = rows["scores"]
    logit = scores[:, 0].astype(np.float64)
    with np.errstate(over="ignore"):
        probability = 1 / (1 + np.exp(-logit))
    decision, reason = rows["decision"], rows["reason"]
    arrays = [
        _numbers(probability.astype(np.float32)),
        _numbers(scores[:, 0]),
        pa.array(decision.copy(), mask=decision == _MISSING),
        _numbers(scores[:, 1]),
        _dictionary_column(np.where(reason == Reason.NONE, _MISSING, reason), _REASONS),
    ]
    for index in range(len(columns.attributes)):
        first = 2 + _SIGNALS_PER_ATTRIBUTE * index
        signals = {
            "prediction_sensitivity": _numbers(np.exp(scores[:, first])),
            "flip_probability": _numbers(scores[:, first + 1]),
            "expected_change": _numbers(scores[:, first + 2]),
            "p_value": _numbers(rows["p_values"][:, index]),
            "likely_flip": _flags(rows["likely_flip"][:, index]),
            "unusual": _flags(rows["unusual"][:, index]),
            "verdict": _dictionary_column(rows["verdicts"][:, index], _VERDICTS),
        }
        arrays += [signals[signal] for signal in SIGNALS]
    return arrays


def _numbers(values: NDArray[np.floating]) -> pa.Array:
    """A column of numbers; NaN becomes null."""
    return pa.array(np.ascontiguousarray(values), from_pandas=True)


def _flags(codes: NDArray[np.int8]) -> pa.Array:
    """A column of true and false."""
    return pa.array(codes == 1, mask=codes == _MISSING)


def _words(values: NDArray[np.floating], column: FeatureColumn) -> pa.Array:
    """Categories of a raw input from their codes; a missing one becomes null."""
    codes = values.astype(np.int32)
    codes[codes == NOT_LISTED] = len(column.categories)
    indices = pa.array(codes, mask=codes == MISSING)
    return pa.DictionaryArray.from_arrays(indices, pa.array(column.words))


def _dictionary_column(codes: NDArray[np.int8], words: pa.Array) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=codes == _MISSING)
    return pa.DictionaryArray.from_arrays(indices, words).cast(WORD)
