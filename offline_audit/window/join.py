"""Log and outcomes of one model as Ibis tables, joined where that is asked for and only there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import ibis
import pyarrow as pa

from monitor.traffic.columns import TrafficColumns, group_column, outcome_schema
from offline_audit.errors import EngineError
from offline_audit.window.engine import Engine
from offline_audit.window.listing import LogListing, LogReading
from offline_audit.window.outcomes import KEYS, latest
from offline_audit.window.sample import DIGEST, STRATUM_ROWS
from offline_audit.window.schema import Unified, unify
from offline_audit.window.span import Span

__all__ = ["JoinedLog"]


class JoinedLog:
    """The rows of a span, and everything that was ever told of them.

    Attributes:
        traffic: What was found of the log.
        given: What was found of the outcomes; None if none were asked for.
        attributes: Protected attributes and the groups that the files name.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        log: LogListing,
        outcomes: LogListing | None,
        model: str | None,
        version: str | None,
        verify: bool,
    ) -> None:
        self._engine, self._log, self._outcomes = engine, log, outcomes
        self._model, self._version, self._span = model, version, log.span
        self.traffic = log.read(model, version, verify=verify)
        self.given: LogReading | None = None
        if outcomes is not None:
            self.given = outcomes.read(model, None, verify=verify)
        self.attributes = _attributes(self.traffic, self.given)
        self._known_words: dict[str, list[str]] = {}

    @property
    def group_columns(self) -> dict[str, str]:
        """Names of the columns of groups, by protected attribute."""
        return {attribute: group_column(attribute) for attribute in self.attributes}

    @property
    def fields(self) -> list[str]:
        """What outcomes may tell: the label and the groups."""
        return ["label", *self.group_columns.values()]

    @cached_property
    def traffic_columns(self) -> Unified:
        """The log's columns."""
        reserved = {field.casefold() for field in self.fields} | {"version", STRATUM_ROWS, DIGEST}
        return unify(self.traffic.files, _least(), frozenset(reserved))

    @cached_property
    def outcome_columns(self) -> Unified:
        """The outcomes' columns."""
        files = () if self.given is None else self.given.files
        return unify(files, _plain(outcome_schema(tuple(self.attributes))))

    @cached_property
    def rows(self) -> Any:
        """The log's columns and `version`, of the span's rows."""
        rows = self.traffic_columns.table(self._engine, self._log.store)
        if self._span.since is not None:
            rows = rows.filter(rows.time >= self._span.since)
        if self._span.until is not None:
            rows = rows.filter(rows.time < self._span.until)
        return rows

    @cached_property
    def told(self) -> Any:
        """All outcomes, as they came."""
        assert self._outcomes is not None
        return self.outcome_columns.table(self._engine, self._outcomes.store)

    @property
    def anything_told(self) -> bool:
        """Whether there is any file of outcomes to join."""
        return self.given is not None and bool(self.given.files)

    def joined(self, columns: Sequence[str], fields: Sequence[str]) -> Any:
        """Some columns of the log and some fields of the outcomes; nothing else is read.

        There is one join, or none where no field is asked for or nothing was told.
        """
        if not self.anything_told or not fields:
            nulls = {f: ibis.null("int8" if f == "label" else "string") for f in fields}
            return self.rows.select(*columns, **nulls)
        rows = self.rows.select(*KEYS, *(name for name in columns if name not in KEYS))
        known = latest(self._engine, self.told, {field: self._words(field) for field in fields})
        joined = rows.left_join(known, KEYS)
        return joined.select(*(rows[name] for name in columns), *(known[f] for f in fields))

    def _words(self, field: str) -> list[str] | None:
        """All that were told of a field, in their order; None where nobody asks for them."""
        if field == "label" or not self._engine.asks_for_words:
            return None
        if field not in self._known_words:
            found = self._engine.fetch(self.told.select(field).distinct())[field]
            self._known_words[field] = sorted(set(found.to_pylist()) - {None})
        return self._known_words[field]

    def without_prediction(self) -> int | None:
        """How many predictions outcomes tell of that are nowhere in the model's log.

        None where a file of the log outside the span turns out to be damaged.

        Raises:
            LogUnreadableError: The log cannot be listed any more.
        """
        if not self.anything_told:
            return 0
        whole = self.traffic
        if self._span != Span() or self._version is not None:
            whole = self._log.whole().read(self._model, None, verify=False)
        known_bad = {file.path for file in self.traffic.corrupt}
        files = [file for file in whole.files if file.path not in known_bad]
        every = unify(files, _least()).table(self._engine, self._log.store).select(*KEYS)
        strange = self.told.select(*KEYS).distinct().anti_join(every, KEYS)
        try:
            return int(self._engine.fetch(strange.agg(n=strange.count()))["n"][0].as_py())
        except EngineError:
            return None


def _attributes(traffic: LogReading, given: LogReading | None) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for file in reversed(traffic.files):
        for attribute, groups in file.about.get("attributes", {}).items():
            held = found.get(attribute, ())
            found[attribute] = (*held, *(group for group in groups if group not in held))
    for file in () if given is None else given.files:
        for name in file.schema.names:
            if name.startswith(group_column("")):
                found.setdefault(name.removeprefix(group_column("")), ())
    return found


def _least() -> pa.Schema:
    return _plain(TrafficColumns(features=(), attributes=()).schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    fields = [
        (f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema
    ]
    return pa.schema(fields)
