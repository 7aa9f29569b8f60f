"""What is known of a prediction afterwards, from everything that was ever told of it.

Outcomes come late, in parts, more than once, and contradict each other. Of each field on its own
the latest value by `observed_at` holds; of equally late ones the last received, then the larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import ibis
import ibis.expr.datatypes as types

from offline_audit.window.engine import Engine

__all__ = ["KEYS", "latest", "told_per_prediction"]

KEYS = ("request_id", "row")


def latest(engine: Engine, told: Any, fields: Mapping[str, Sequence[str] | None]) -> Any:
    """One row for each prediction of which anything was told, with the fields that hold.

    Args:
        engine: That will compute it.
        told: An Ibis table of outcomes.
        fields: What to find, each with the words that occur in it, or None for a number.
    """
    return told.group_by(KEYS).agg(
        **{field: _latest(engine, told, field, words) for field, words in fields.items()}
    )


def told_per_prediction(told: Any, fields: Sequence[str]) -> Any:
    """How often each prediction was told of, and whether a field was told in different ways.

    Columns: the keys, `times`, and of each field `conflict_<place>` as 0 or 1.
    """
    differing = {
        f"conflict_{place}": (told[field].min() < told[field].max()).cast("int64").fill_null(0)
        for place, field in enumerate(fields)
    }
    return told.group_by(KEYS).agg(times=told.count(), **differing)


def _latest(engine: Engine, told: Any, field: str, words: Sequence[str] | None) -> Any:
    value = told[field]
    order = engine.order(told.observed_at, told.received_at, value, words)
    return _max_by(value.type(), order.type())(value, order, where=value.notnull())


@cache
def _max_by(value_type: types.DataType, order_type: types.DataType) -> Any:
    """The value with the greatest order, without the sort that Ibis's `argmax` means on DuckDB."""

    def max_by(value: Any, order: Any, where: bool = True) -> Any:  # noqa: FBT001, FBT002 - as Ibis asks
        raise NotImplementedError

    annotations = {"value": value_type, "order": order_type, "where": types.boolean}
    max_by.__annotations__ = {**annotations, "return": value_type}
    return ibis.udf.agg.builtin(max_by)
