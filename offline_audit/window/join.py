"""Log and outcomes of one model as Ibis tables, joined only where a query needs outcomes; samples.

Outcomes arrive late, in parts, more than once, and may conflict. For each field by itself the value
with the latest `observed_at` is used; among ties the latest `received_at`, then the larger value.

Stratified samples are the same on every engine: the rows with the smallest keyed digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import ibis
import ibis.expr.datatypes as types
import pyarrow as pa
import pyarrow.compute as pc

from monitor.traffic.columns import SUBJECT, TrafficColumns, group_column, outcome_schema
from offline_audit.errors import EngineError
from offline_audit.window.engine import Engine
from offline_audit.window.files import Span
from offline_audit.window.listing import LogListing, LogReading
from offline_audit.window.schema import MergedSchema, merge_schemas

__all__ = [
    "DIGEST",
    "KEYS",
    "JoinedLog",
    "chosen_rows",
    "digest",
    "latest",
    "outcomes_per_prediction",
    "stratum_sizes",
    "with_stratum_sizes",
]

KEYS = ("request_id", "row")
DIGEST, _STRATUM_ROWS = "evenhand_digest", "stratum_rows"
# A prediction that was logged twice has one digest; these columns break the tie, the earlier first.
_TIES = ("time", "logit", "decision", "version")


class JoinedLog:
    """Rows of a span, and all outcomes of their model.

    Attributes:
        traffic_files: Files of the traffic log.
        outcome_files: Files of the outcomes; None if no outcomes were requested.
        attributes: Protected attributes, with the groups that the files name.
        group_columns: Names of the group columns, by protected attribute.
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
        self.traffic_files = log.read(model, version, verify=verify)
        self.outcome_files: LogReading | None = None
        if outcomes is not None:
            self.outcome_files = outcomes.read(model, None, verify=verify)
        self.attributes = _attributes(self.traffic_files, self.outcome_files)
        self.group_columns = {attribute: group_column(attribute) for attribute in self.attributes}
        self._known_text_values: dict[str, list[str]] = {}

    @property
    def fields(self) -> list[str]:
        """Columns that come from outcomes: the label and the groups."""
        return ["label", *self.group_columns.values()]

    @cached_property
    def has_subjects(self) -> bool:
        """Whether a file of outcomes names the people behind requests, by pseudonyms."""
        files = () if self.outcome_files is None else self.outcome_files.files
        return any(SUBJECT in file.schema.names for file in files)

    @property
    def joined_fields(self) -> list[str]:
        """Columns that a window joins: the fields, and the subject if it is recorded."""
        return [*self.fields, *([SUBJECT] if self.has_subjects else [])]

    @cached_property
    def traffic_schema(self) -> MergedSchema:
        """Columns of the log."""
        reserved = {field.casefold() for field in self.joined_fields} | {
            "version",
            _STRATUM_ROWS,
            DIGEST,
        }
        return merge_schemas(self.traffic_files.files, _required_columns(), frozenset(reserved))

    @cached_property
    def outcome_schema(self) -> MergedSchema:
        """Columns of the outcomes."""
        files = () if self.outcome_files is None else self.outcome_files.files
        return merge_schemas(files, _plain(outcome_schema(tuple(self.attributes))))

    @cached_property
    def rows(self) -> Any:
        """Rows of the span: the log's columns and `version`."""
        rows = self.traffic_schema.table(self._engine, self._log.store)
        if self._span.since is not None:
            rows = rows.filter(rows.time >= self._span.since)
        if self._span.until is not None:
            rows = rows.filter(rows.time < self._span.until)
        return rows

    @cached_property
    def outcomes(self) -> Any:
        """All outcomes, with repetitions."""
        assert self._outcomes is not None
        return self.outcome_schema.table(self._engine, self._outcomes.store)

    @property
    def has_outcomes(self) -> bool:
        """Whether there is a file of outcomes to join."""
        return self.outcome_files is not None and bool(self.outcome_files.files)

    def joined(self, columns: Sequence[str], fields: Sequence[str]) -> Any:
        """Some columns of the log and some fields of the outcomes; nothing else is read.

        There is one join, or none if no field is requested or there are no outcomes.
        """
        if not self.has_outcomes or not fields:
            nulls = {f: ibis.null("int8" if f == "label" else "string") for f in fields}
            return self.rows.select(*columns, **nulls)
        rows = self.rows.select(*KEYS, *(name for name in columns if name not in KEYS))
        text_values = {field: self._text_values(field) for field in fields}
        known = latest(self._engine, self.outcomes, text_values)
        joined = rows.left_join(known, KEYS)
        return joined.select(*(rows[name] for name in columns), *(known[f] for f in fields))

    def _text_values(self, field: str) -> list[str] | None:
        """Sorted distinct values of a text field; None for numbers, or if the engine needs none."""
        if field in ("label", SUBJECT) or not self._engine.needs_words:
            return None
        if field not in self._known_text_values:
            values = self._engine.fetch(self.outcomes.select(field).distinct())[field]
            self._known_text_values[field] = sorted(set(values.to_pylist()) - {None})
        return self._known_text_values[field]

    def without_prediction(self) -> int | None:
        """Number of predictions that have outcomes and are nowhere in the model's log.

        None if a file of the log outside the span is damaged.

        Raises:
            LogUnreadableError: The log can no longer be listed.
        """
        if not self.has_outcomes:
            return 0
        whole = self.traffic_files
        if self._span != Span() or self._version is not None:
            whole = self._log.whole().read(self._model, None, verify=False)
        # Files outside the span are not hashed, so those known to be corrupt are left out here.
        corrupt = {file.path for file in self.traffic_files.corrupt}
        files = [file for file in whole.files if file.path not in corrupt]
        schema = merge_schemas(files, _required_columns())
        predictions = schema.table(self._engine, self._log.store).select(*KEYS)
        unmatched = self.outcomes.select(*KEYS).distinct().anti_join(predictions, KEYS)
        try:
            return int(self._engine.fetch(unmatched.agg(n=unmatched.count()))["n"][0].as_py())
        except EngineError:
            return None


def latest(engine: Engine, outcomes: Any, fields: Mapping[str, Sequence[str] | None]) -> Any:
    """One row for each prediction that has an outcome, with the latest value of each field.

    Args:
        engine: Engine that runs the query.
        outcomes: Ibis table of outcomes.
        fields: Columns to reduce, each with its distinct values, or None for a number.
    """
    return outcomes.group_by(KEYS).agg(
        **{field: _latest(engine, outcomes, field, words) for field, words in fields.items()}
    )


def outcomes_per_prediction(outcomes: Any, fields: Sequence[str]) -> Any:
    """Number of outcomes of each prediction, and whether their values of a field differ.

    Columns: the keys, `times`, and for each field `conflict_<index>` as 0 or 1.
    """
    differing = {
        f"conflict_{index}": (outcomes[field].min() < outcomes[field].max())
        .cast("int64")
        .fill_null(0)
        for index, field in enumerate(fields)
    }
    return outcomes.group_by(KEYS).agg(times=outcomes.count(), **differing)


def _latest(engine: Engine, outcomes: Any, field: str, words: Sequence[str] | None) -> Any:
    value = outcomes[field]
    if field == SUBJECT:
        # A request has one subject. An id that a client used twice may have two: any one of them.
        return value.max()
    order = engine.order(outcomes.observed_at, outcomes.received_at, value, words)
    return _max_by(value.type(), order.type())(value, order, where=value.notnull())


@cache
def _max_by(value_type: types.DataType, order_type: types.DataType) -> Any:
    """Value of the greatest order, without the sort that Ibis's `argmax` causes on DuckDB."""

    def max_by(value: Any, order: Any, where: bool = True) -> Any:  # noqa: FBT001, FBT002 - Ibis's signature
        raise NotImplementedError

    annotations = {"value": value_type, "order": order_type, "where": types.boolean}
    max_by.__annotations__ = {**annotations, "return": value_type}
    return ibis.udf.agg.builtin(max_by)


def _attributes(traffic: LogReading, outcomes: LogReading | None) -> dict[str, tuple[str, ...]]:
    """Protected attributes and their groups; outcomes may name groups that scores leave out."""
    groups_of: dict[str, tuple[str, ...]] = {}
    files = [*reversed(traffic.files), *(() if outcomes is None else reversed(outcomes.files))]
    for file in files:
        for attribute, groups in file.metadata.get("attributes", {}).items():
            known = groups_of.get(attribute, ())
            groups_of[attribute] = (*known, *(group for group in groups if group not in known))
    for file in () if outcomes is None else outcomes.files:
        for name in file.schema.names:
            if name.startswith(group_column("")):
                groups_of.setdefault(name.removeprefix(group_column("")), ())
    return groups_of


def _required_columns() -> pa.Schema:
    return _plain(TrafficColumns(features=(), attributes=()).schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    fields = [
        (f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema
    ]
    return pa.schema(fields)


def digest(rows: Any, seed: int) -> Any:
    """Pseudorandom digest of each prediction, the same on every engine."""
    key = rows.request_id + ":" + rows.row.cast("string") + f":{seed}"
    return key.hexdigest("md5")


def chosen_rows(wide: Any, narrow: Any, strata: Sequence[str], n: int) -> Any:
    """The n rows of each stratum with the smallest digests.

    Args:
        wide: Ibis table of all columns and the digest.
        narrow: Ibis table of the strata and the digest of the same rows. Ranking these few columns
            first saves the engine from sorting whole rows.
        strata: Columns whose values define a stratum.
        n: Largest number of rows of each stratum.
    """
    by_digest = ibis.window(group_by=strata or None, order_by=DIGEST)
    ranked = narrow.mutate(rank=ibis.row_number().over(by_digest))
    first = ranked.filter(ranked.rank < n).select(DIGEST)
    candidates = wide.semi_join(first, DIGEST)
    # A duplicate may be in another stratum, or exceed n in its own, so candidates are ranked again.
    by_all = ibis.window(group_by=strata or None, order_by=(DIGEST, *_TIES))
    ranked_again = candidates.mutate(evenhand_rank=ibis.row_number().over(by_all))
    return ranked_again.filter(ranked_again.evenhand_rank < n).drop("evenhand_rank")


def stratum_sizes(narrow: Any, strata: Sequence[str]) -> Any:
    """Number of rows of each stratum."""
    size = {_STRATUM_ROWS: narrow.count()}
    return narrow.group_by(strata).agg(**size) if strata else narrow.agg(**size)


def with_stratum_sizes(chosen: pa.Table, sizes: pa.Table, strata: Sequence[str]) -> pa.Table:
    """The sample sorted by stratum and digest, with the size of each row's stratum as a column."""
    order = [(name, "ascending") for name in (*strata, DIGEST, *_TIES)]
    chosen = chosen.take(pc.sort_indices(chosen, order))
    rows = {tuple(row[s] for s in strata): row[_STRATUM_ROWS] for row in sizes.to_pylist()}
    columns = [chosen[name].to_pylist() for name in strata]
    keys = zip(*columns, strict=True) if columns else [()] * chosen.num_rows
    stratum_rows = pa.array([rows[key] for key in keys], pa.int64())
    return chosen.drop_columns(DIGEST).append_column(_STRATUM_ROWS, stratum_rows)
