"""Synthetic predictions and outcomes for `benchmarks.traffic`, as the sidecar would write them.

Every hour has its own seed, so that hours can be generated in any order and in parallel.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.kernel_subjects import Shape
from benchmarks.traffic_segments import synthetic_features, synthetic_spec
from monitor.policy import Action, Verdict
from monitor.traffic.columns import TIME, WORD, TrafficColumns, outcome_schema

__all__ = ["ROWS_AN_HOUR", "SPEC", "hour_of_outcomes", "hour_of_traffic", "moment"]

ROWS_AN_HOUR = 500_000
SHAPE = Shape(widths=(8, 32, 1), numeric=2, integer=1, binary=2, one_hot=(1, 3))
SPEC = synthetic_spec(SHAPE)
COLUMNS = TrafficColumns.of(SPEC)
GROUPS = {a.name: a.groups for a in SPEC.protected_attributes}
_START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
# Ten rows belong to seven requests: index of the request, and row within the request.
_REQUEST = np.array([0, 1, 2, 3, 4, 5, 5, 6, 6, 6])
_ROW = np.array([0, 0, 0, 0, 0, 0, 1, 0, 1, 2])
_REQUESTS = 7
# Scores are rounded to multiples of 1/512, so that 10⁸ rows fit on a disk.
_STEPS = 512
_LABELLED, _GROUPED, _AGAIN = 0.7, 0.6, 0.01
_ARRIVING = 1_000


def moment(hour: int) -> dt.datetime:
    """Start of an hour of the log; the first hour is 0."""
    return _START + dt.timedelta(hours=hour)


def hour_of_traffic(hour: int, rows: int = ROWS_AN_HOUR) -> pa.Table:
    """Predictions of one hour. Five of ten rows are requests of one row."""
    rng = np.random.default_rng([1, hour])
    features = (synthetic_features(SHAPE, rows, rng) * 16).round() / 16
    logit = _in_steps(features[:, :2].sum(1) + rng.normal(0, 0.5, rows))
    values: dict[str, Any] = {
        "request_id": _names(hour, rows),
        "row": np.resize(_ROW, rows).astype(np.int32),
        "time": _times(_begun(hour) + np.sort(rng.integers(_HOUR, size=rows))),
        **{column.name: features[:, column.index] for column in COLUMNS.features},
        "score": (1 / (1 + np.exp(-logit))).astype(np.float32),
        "logit": logit,
        "decision": (logit >= 0).astype(np.int8),
        "boundary_distance": np.abs(logit) / 2,
        "unknown_reason": pa.nulls(rows, COLUMNS.schema.field("unknown_reason").type),
    }
    flagged = np.zeros(rows, bool)
    for attribute in COLUMNS.attributes:
        p_value, flip_probability = rng.integers(1, 1001, rows) / 1000, rng.beta(0.3, 3, rows)
        unusual, likely_flip = p_value <= 0.01, flip_probability >= 0.5
        flagged |= unusual | likely_flip
        verdicts = np.where(unusual | likely_flip, Verdict.ABOVE, Verdict.WITHIN)
        values |= {
            f"prediction_sensitivity_{attribute}": _in_steps(rng.gamma(2, 0.2, rows)),
            f"flip_probability_{attribute}": _in_steps(flip_probability),
            f"expected_change_{attribute}": _in_steps(rng.gamma(2, 0.05, rows)),
            f"p_value_{attribute}": p_value,
            f"likely_flip_{attribute}": likely_flip,
            f"unusual_{attribute}": unusual,
            f"verdict_{attribute}": _words(verdicts, [code.name.lower() for code in Verdict]),
        }
    actions = np.where(flagged, Action.FLAG, Action.NONE)
    values["action"] = _words(actions, [action.name.lower() for action in Action])
    return pa.table(values, schema=COLUMNS.schema)


def hour_of_outcomes(hour: int, rows: int = ROWS_AN_HOUR) -> tuple[pa.Table, pa.Table]:
    """Outcomes of one hour's predictions: one day later, and for some rows again after two days.

    A repeated outcome differs in half of the cases, and is observed before or after the first one.
    """
    rng = np.random.default_rng([2, hour])
    known = rng.permutation(rows)
    labelled, grouped = rng.random(rows) < _LABELLED, rng.random(rows) < _GROUPED
    known = known[(labelled | grouped)[known]]
    observed = _begun(hour) + _HOUR + rng.integers(20 * _HOUR, size=rows)
    first = _outcomes(hour, known, labelled, grouped, observed, 1, rng)
    again = known[rng.random(len(known)) < _AGAIN]
    moved = observed + rng.integers(-_HOUR, _HOUR, size=rows)
    return first, _outcomes(hour, again, labelled, grouped, moved, 2, rng)


def _outcomes(
    hour: int,
    known: NDArray[np.int64],
    labelled: NDArray[np.bool_],
    grouped: NDArray[np.bool_],
    observed: NDArray[np.int64],
    days: int,
    rng: np.random.Generator,
) -> pa.Table:
    """Outcomes of some rows, in the order of arrival, a number of days later."""
    rows, count = len(labelled), len(known)
    uploads = np.arange(count) // _ARRIVING
    received = _begun(hour) + days * _DAY + uploads * (_HOUR // (count // _ARRIVING + 1))
    values: dict[str, Any] = {
        "request_id": _names(hour, rows).take(pa.array(known)),
        "row": np.resize(_ROW, rows).astype(np.int32)[known],
        "label": pa.array(rng.integers(2, size=count, dtype=np.int8), mask=~labelled[known]),
    }
    for attribute, groups in GROUPS.items():
        codes = rng.integers(len(groups), size=count)
        values[f"group_{attribute}"] = _words(codes, list(groups), known=grouped[known])
    values |= {
        "observed_at": _times(observed[known]),
        "received_at": _times(received),
        "source": _words(np.zeros(count, np.int64), ["file"]),
    }
    return pa.table(values, schema=outcome_schema(tuple(GROUPS)))


def _begun(hour: int) -> int:
    """Start of an hour in microseconds since 1970."""
    return int(moment(hour).timestamp()) * 1_000_000


def _names(hour: int, rows: int) -> pa.Array:
    """Request ids as the sidecar generates them: an id of the run (here, the day) and a number."""
    run = np.random.default_rng([3, hour // 24]).bytes(8).hex()
    blocks = np.arange(rows) // len(_REQUEST)
    before = (hour % 24) * -(-rows // len(_REQUEST)) * _REQUESTS
    numbers = pa.array(before + blocks * _REQUESTS + np.resize(_REQUEST, rows) + 1)
    return pc.binary_join_element_wise(run, numbers.cast(pa.string()), "-")


def _times(microseconds: NDArray[np.int64]) -> pa.Array:
    return pa.array(microseconds).cast(TIME)


def _in_steps(values: NDArray[np.floating]) -> NDArray[np.float32]:
    rounded: NDArray[np.float32] = ((values * _STEPS).round() / _STEPS).astype(np.float32)
    return rounded


def _words(
    codes: NDArray[np.int64], words: list[str], *, known: NDArray[np.bool_] | None = None
) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=None if known is None else ~known)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words)).cast(WORD)
