"""Encoding of outcomes: from outcomes to the payload of a record, and on to Parquet columns."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec
from monitor.traffic.columns import TIME, outcome_schema
from monitor.traffic.outcome import Outcome, Source
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.segment import Records

if TYPE_CHECKING:
    from monitor.batching import Waiting

__all__ = ["OwnGroups", "days", "outcome_table", "payload"]

_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_DAY = 86_400_000_000_000


class OwnGroups:
    """Protected groups that are features; they are recorded with the outcomes."""

    def __init__(self, spec: BundleSpec) -> None:
        column_of = {feature.name: index for index, feature in enumerate(spec.features)}
        onehot = {group.name: group for group in spec.one_hot_groups}
        self._columns: dict[str, tuple[list[int], tuple[str, ...]]] = {}
        for attribute in spec.protected_attributes:
            if attribute.feature in column_of:
                self._columns[attribute.name] = ([column_of[attribute.feature]], attribute.groups)
            elif attribute.feature in onehot:
                columns = [column_of[name] for name in onehot[attribute.feature].features]
                self._columns[attribute.name] = (columns, attribute.groups)

    def __bool__(self) -> bool:
        return bool(self._columns)

    def outcomes(self, batch: Sequence[Waiting], features: NDArray[np.float32]) -> list[Outcome]:
        """Groups in the features `[n, d]` of a batch, as outcomes."""
        named = {name: self._named(name, features) for name in self._columns}
        outcomes: list[Outcome] = []
        start = 0
        for waiting in batch:
            for row in range(len(waiting.features)):
                groups = {name: all_[start + row] for name, all_ in named.items()}
                known = {name: group for name, group in groups.items() if group is not None}
                if known:
                    outcomes.append(
                        Outcome(
                            request_id=waiting.request_id,
                            row=waiting.first_row + row,
                            groups=known,
                        )
                    )
            start += len(waiting.features)
        return outcomes

    def _named(self, attribute: str, features: NDArray[np.float32]) -> list[str | None]:
        columns, groups = self._columns[attribute]
        values = features[:, columns]
        if len(columns) == 1 and len(groups) == 2:
            codes = np.where(values[:, 0] == 1, 1, np.where(values[:, 0] == 0, 0, -1))
        else:
            codes = np.where((values == 1).sum(1) == 1, values.argmax(1), -1)
            if len(groups) > len(columns):
                # All zeros is the dropped category, the last group.
                codes = np.where((values == 0).all(1), len(columns), codes)
        return [None if code < 0 else groups[code] for code in codes.tolist()]


def payload(
    outcomes: Sequence[Outcome], pseudonyms: Pseudonyms, source: Source, now: dt.datetime
) -> bytes:
    """Payload of a record of outcomes that arrived together."""
    arrived = _microseconds(now)
    lines = [
        [
            pseudonyms.of(outcome.request_id),
            outcome.row,
            outcome.label,
            dict(outcome.groups),
            arrived if outcome.observed_at is None else _microseconds(outcome.observed_at),
        ]
        for outcome in outcomes
    ]
    return json.dumps([source, arrived, lines]).encode()


def outcome_table(records: Records, attributes: Sequence[str]) -> pa.Table:
    """Table of some records."""
    columns: list[list[object]] = [[] for _ in range(6 + len(attributes))]
    for record in records:
        source, arrived, lines = json.loads(bytes(record.payload))
        for request_id, row, label, groups, observed in lines:
            known = [groups.get(attribute) for attribute in attributes]
            values = (request_id, row, label, *known, observed, arrived, source)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    schema = outcome_schema(tuple(attributes))
    return pa.table(
        [
            pa.array(values, pa.int64()).cast(TIME) if kind.type == TIME
            else pa.array(values, kind.type)
            for values, kind in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )  # fmt: skip


def days(records: Records) -> list[tuple[str, Records]]:
    """Records by the day of writing, in order."""
    by_day: dict[int, list[int]] = {}
    for index, time in enumerate(records.times):
        by_day.setdefault(time // _DAY, []).append(index)
    return [
        (f"{_EPOCH + dt.timedelta(days=day):%Y-%m-%d}", records.chosen(indices))
        for day, indices in sorted(by_day.items())
    ]


def _microseconds(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
