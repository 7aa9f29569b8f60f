"""Outcomes: what they are, how they are validated, and how they are encoded.

An outcome is encoded as a part of the payload of a record, and later as a row of Parquet columns.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec
from monitor.request import MAX_ID_LENGTH
from monitor.traffic.columns import TIME, outcome_schema
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.segment import Records

if TYPE_CHECKING:
    from monitor.batching import Waiting

__all__ = [
    "Outcome",
    "OutcomeCheck",
    "ProtectedFeatures",
    "Refusal",
    "Source",
    "days",
    "outcome_table",
    "payload",
    "with_subjects",
]

Source = Literal["rpc", "rest", "file", "feature"]
# Index of a rejected outcome in the request, and the reason.
Refusal = tuple[int, str]

_LARGEST_ROW = 2**31 - 1
# Allows for clock skew; an outcome from further ahead would override every later correction.
_AHEAD = dt.timedelta(days=1)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_DAY = 86_400_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became known about one row of a request.

    Attributes:
        request_id: Request id that the sidecar returned.
        row: Row of the request, from 0.
        label: True class, 0 or 1; None if unknown.
        groups: Known groups by protected attribute.
        observed_at: Time of observation; None for the time of arrival.
        subject: The client's id of the person; empty if unknown. Only requests for predictions have
            it, and only its pseudonym is written.
    """

    request_id: str
    row: int = 0
    label: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    observed_at: dt.datetime | None = None
    subject: str = ""


class OutcomeCheck:
    """Validates outcomes."""

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = {name: frozenset(names) for name, names in groups.items()}

    @classmethod
    def of(cls, spec: BundleSpec) -> OutcomeCheck:
        """A check against the attributes and groups of a bundle."""
        return cls({a.name: a.recorded_groups for a in spec.protected_attributes})

    def flaw(self, outcome: Outcome, now: dt.datetime) -> str | None:
        """Why an outcome is rejected, without its values; None if it is valid."""
        name = outcome.request_id
        if not 0 < len(name) <= MAX_ID_LENGTH or not name.isprintable():
            return f"request_id must be 1 to {MAX_ID_LENGTH} printable characters"
        if not 0 <= outcome.row <= _LARGEST_ROW:
            return f"row must be between 0 and {_LARGEST_ROW}"
        if outcome.label is None and not outcome.groups:
            return "label and groups are both missing; at least one is required"
        if outcome.label not in (None, 0, 1):
            return "label must be 0 or 1"
        observed = outcome.observed_at
        if observed is not None and observed > now + _AHEAD:
            return "observed_at is in the future"
        if observed is not None and observed < _EPOCH:
            return "observed_at is before 1970"
        return self._flaw_of_groups(outcome)

    def _flaw_of_groups(self, outcome: Outcome) -> str | None:
        for attribute, group in outcome.groups.items():
            known = self._groups.get(attribute)
            if known is None:
                return f"unknown protected attribute; known: {', '.join(sorted(self._groups))}"
            if group not in known:
                return f"unknown group of {attribute}; known: {', '.join(sorted(known))}"
        return None


class ProtectedFeatures:
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
        self._inputs = {
            attribute: next(
                index
                for index, raw in enumerate(spec.inputs)
                if spec.features[columns[0]].name in raw.columns
            )
            for attribute, (columns, _) in self._columns.items()
            if spec.inputs
        }
        self._is_category = [raw.kind == "category" for raw in spec.inputs]

    def __bool__(self) -> bool:
        return bool(self._columns)

    def outcomes(self, batch: Sequence[Waiting], features: NDArray[np.float32]) -> list[Outcome]:
        """Groups in the features `[n, d]` of a batch, as outcomes."""
        named = {name: self._named(name, features) for name in self._columns}
        for name, by_row in named.items():
            for index in self._rows_not_given(batch, name):
                by_row[index] = None
        outcomes: list[Outcome] = []
        start = 0
        for waiting in batch:
            for row in range(len(waiting.features)):
                groups = {name: names[start + row] for name, names in named.items()}
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

    def _rows_not_given(self, batch: Sequence[Waiting], attribute: str) -> list[int]:
        """Rows in which the raw input of an attribute is missing or unseen, so imputed."""
        if attribute not in self._inputs:
            return []
        index = self._inputs[attribute]
        given: list[NDArray[np.bool_]] = []
        for waiting in batch:
            if waiting.raw is None:
                given.append(np.ones(len(waiting.features), bool))
            else:
                values = waiting.raw[:, index]
                given.append(values >= 0 if self._is_category[index] else ~np.isnan(values))
        rows: list[int] = np.flatnonzero(~np.concatenate(given)).tolist()
        return rows

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


def with_subjects(outcomes: Sequence[Outcome], batch: Sequence[Waiting]) -> list[Outcome]:
    """Outcomes of a batch with the subjects of its requests; others are added for their rows."""
    by_row = {(outcome.request_id, outcome.row): outcome for outcome in outcomes}
    for waiting in batch:
        if waiting.subject:
            for row in range(waiting.first_row, waiting.first_row + len(waiting.features)):
                known = by_row.get((waiting.request_id, row))
                known = known or Outcome(request_id=waiting.request_id, row=row)
                by_row[waiting.request_id, row] = replace(known, subject=waiting.subject)
    return list(by_row.values())


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
            *([pseudonyms.of_subject(outcome.subject)] if outcome.subject else []),
        ]
        for outcome in outcomes
    ]
    return json.dumps([source, arrived, lines]).encode()


def outcome_table(
    records: Records, attributes: Sequence[str], *, subjects: bool = False
) -> pa.Table:
    """Table of some records; with the pseudonyms of their subjects if these were recorded."""
    schema = outcome_schema(tuple(attributes), subjects=subjects)
    columns: list[list[object]] = [[] for _ in schema]
    for record in records:
        source, arrived, lines = json.loads(bytes(record.payload))
        for request_id, row, label, groups, observed, *subject in lines:
            known = [groups.get(attribute) for attribute in attributes]
            known += [subject[0] if subject else None] if subjects else []
            values = (request_id, row, label, *known, observed, arrived, source)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
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
        (f"{_EPOCH + dt.timedelta(days=day):%Y-%m-%d}", records.select(indices))
        for day, indices in sorted(by_day.items())
    ]


def _microseconds(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
