"""A slice of logged traffic, joined with what became known later, read by an engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from monitor.traffic.columns import group_column
from offline_audit.errors import UnknownColumnError
from offline_audit.window.counts import GroupCounts, marginal_cells, passes
from offline_audit.window.engine import Engine
from offline_audit.window.join import JoinedLog
from offline_audit.window.listing import LogListing
from offline_audit.window.outcomes import KEYS
from offline_audit.window.provenance import FileUse, Provenance
from offline_audit.window.row_facts import outcome_facts, row_facts
from offline_audit.window.sample import (
    DIGEST,
    chosen_rows,
    digest,
    stratum_sizes,
    with_stratum_sizes,
)
from offline_audit.window.score_ranks import ScoreRanks, rank_sums, ranks_of
from offline_audit.window.scores import ScoreHistogram, binned, histogram_of
from offline_audit.window.span import Span
from offline_audit.window.verdict_counts import VerdictCounts, verdicts_of

__all__ = ["Window"]


class Window:
    """Predictions of one model in a span of time.

    Example:
        >>> with Window.read("log", "outcomes", since, until) as window:  # doctest: +SKIP
        ...     print(window.provenance)
        ...     counts = window.counts("sex")

    Attributes:
        model: Its name; None if the log holds no predictions yet.
        version: That was asked for; None for all.
        span: The span of time.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        owned: bool,
        log: LogListing,
        outcomes: LogListing | None,
        model: str | None,
        version: str | None,
        verify: bool,
    ) -> None:
        self.model, self.version, self.span = model, version, log.span
        self._engine, self._owned, self._verify = engine, owned, verify
        self._log = JoinedLog(
            engine=engine,
            log=log,
            outcomes=outcomes,
            model=model,
            version=version,
            verify=verify,
        )

    @classmethod
    def read(
        cls,
        log: str | Path,
        outcomes: str | Path | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        model: str | None = None,
        version: str | None = None,
        *,
        engine: Engine | None = None,
        verify: bool = True,
    ) -> Self:
        """Read a window; missing, corrupt and old files are in its provenance, not an error.

        Args:
            log: Path or address of the traffic log.
            outcomes: Path or address of the outcomes; None to do without labels and groups.
            since: Its start, with a time zone; None for the log's.
            until: Its end, which is not in it.
            model: May be left out if the log holds one.
            version: None for all.
            engine: None for DuckDB in this process, closed with the window.
            verify: Hash every file and hold it against the ledger.

        Raises:
            LogNotFoundError: There is no log.
            LogUnreadableError: An address cannot be used, or files cannot be listed.
            ModelChoiceError: The model, or the version, is left open or is not there.
            SpanError: A time has no zone, or the end is before the start.
        """
        span = Span.between(since, until)
        listing = LogListing(log, "traffic", span)
        listing.require()
        model = listing.chosen_model(model, version)
        given = None if outcomes is None else LogListing(outcomes, "outcomes", span.of_outcomes)
        return cls(
            engine=engine or Engine.duckdb(),
            owned=engine is None,
            log=listing,
            outcomes=given,
            model=model,
            version=version,
            verify=verify,
        )

    def close(self) -> None:
        """Let go of an engine that the window made for itself."""
        if self._owned:
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def attributes(self) -> dict[str, tuple[str, ...]]:
        """Protected attributes, and the groups that the model's files name."""
        return self._log.attributes

    @cached_property
    def table(self) -> Any:
        """All columns of the log, with `version`, `label` and `group_…`, as an Ibis table."""
        return self._log.joined(self._log.rows.columns, self._log.fields)

    @cached_property
    def provenance(self) -> Provenance:
        """Where the rows come from, and what is not among them."""
        log, told, use = self._log, None, None
        if log.given is not None:
            rows = log.rows.select(*KEYS, "time")
            strangers = log.without_prediction()
            told = outcome_facts(
                self._engine, log.told, rows, log.fields, self.span.until, strangers
            )
            use = FileUse(reading=log.given, variants=log.outcome_columns.variants)
        joined = log.joined(["time", "version", "decision"], log.fields)
        return Provenance(
            model=self.model,
            version=self.version,
            since=self.span.since,
            until=self.span.until,
            verified=self._verify,
            log=FileUse(reading=log.traffic, variants=log.traffic_columns.variants),
            outcomes=use,
            rows=row_facts(self._engine, joined, log.rows, log.group_columns),
            told=told,
        )

    def counts(self, by: str | Sequence[str | tuple[str, ...]] | None = None) -> GroupCounts:
        """Count predictions by group, label and decision.

        Args:
            by: A protected attribute; a tuple of some, which are crossed; or a list of attributes
                and tuples, each counted on its own. None for every attribute.

        Raises:
            UnknownColumnError: There is no such attribute.
        """
        asked = self._asked(by)
        found = {attribute: len(groups) for attribute, groups in self.attributes.items()}
        cells = []
        for together in passes(asked, found):
            columns = {a: self._group_column(a) for crossing in together for a in crossing}
            counted = self._counted(["label", *columns.values()])
            for crossing in together:
                cells += marginal_cells(counted, columns, crossing)
        return GroupCounts(cells=tuple(cells))

    def verdicts(self) -> VerdictCounts:
        """Count verdicts and actions; outcomes are not needed."""
        names = {
            a: f"verdict_{a}" for a in self.attributes if f"verdict_{a}" in self._log.rows.columns
        }
        rows = self._log.rows.select(*names.values(), "action")
        counted = self._engine.fetch(
            rows.group_by(*names.values(), "action").agg(rows=rows.count())
        )
        return verdicts_of(counted, names)

    def score_histogram(self, attribute: str, bins: int = 50) -> ScoreHistogram:
        """Scores in equal bins by group, label and decision.

        Raises:
            UnknownColumnError: There is no such attribute.
        """
        rows = self._grouped(attribute, ["score", "decision"])
        return histogram_of(attribute, bins, self._engine.fetch(binned(rows, bins)))

    def ranks(self, attribute: str) -> ScoreRanks:
        """How well logits rank labels in each group: exact AUC and its variance.

        Raises:
            UnknownColumnError: There is no such attribute.
        """
        rows = self._grouped(attribute, ["logit"])
        return ranks_of(attribute, self._engine.fetch(rank_sums(rows)))

    def sample(self, n: int, by: Sequence[str] = (), seed: int = 0) -> pa.Table:
        """Rows of each stratum, the same ones on every engine.

        Args:
            n: Of each stratum; all of it where it has fewer.
            by: Protected attributes and columns, such as `decision` or `label`, whose values
                together define a stratum. None: the whole window is one.
            seed: Another one draws other rows.

        Returns:
            All columns of `table`, and `stratum_rows`: how many rows the stratum has.

        Raises:
            UnknownColumnError: There is no such attribute or column.
        """
        strata = [self._stratum(name) for name in by]
        told = [name for name in strata if name in self._log.fields]
        logged = [name for name in strata if name not in told]
        keyed = self._log.joined([*KEYS, *(n for n in logged if n not in KEYS)], told)
        narrow = keyed.select(*strata, **{DIGEST: digest(keyed, seed)})
        wide = self.table.mutate(**{DIGEST: digest(self.table, seed)})
        chosen = self._engine.fetch(chosen_rows(wide, narrow, strata, n))
        sizes = self._engine.fetch(stratum_sizes(narrow, strata))
        return with_stratum_sizes(chosen, sizes, strata)

    def batches(
        self, columns: Sequence[str] | None = None, size: int = 100_000
    ) -> Iterator[pa.RecordBatch]:
        """All rows, some at a time, in no particular order.

        Args:
            columns: Of `table`; None for all.
            size: Rows of a batch at most.

        Raises:
            UnknownColumnError: There is no such column.
        """
        wanted = list(self.table.columns) if columns is None else list(columns)
        for name in wanted:
            self._known_column(name)
        told = [name for name in wanted if name in self._log.fields]
        logged = [name for name in wanted if name not in self._log.fields]
        rows = self._log.joined(logged, told).select(*wanted)
        return self._engine.stream(rows, size)

    def _counted(self, fields: Sequence[str]) -> pa.Table:
        """Rows by decision and by what is known of them."""
        known = list(fields) if self._log.anything_told else []
        rows = self._log.joined(["decision"], known)
        counted = self._engine.fetch(rows.group_by("decision", *known).agg(rows=rows.count()))
        for field in fields[len(known) :]:
            counted = counted.append_column(field, pa.nulls(counted.num_rows, pa.string()))
        return counted

    def _grouped(self, attribute: str, columns: Sequence[str]) -> Any:
        column = self._group_column(attribute)
        rows = self._log.joined(columns, ["label", column])
        return rows.rename(group=column)

    def _asked(self, by: str | Sequence[str | tuple[str, ...]] | None) -> list[tuple[str, ...]]:
        if by is None:
            by = list(self.attributes)
        each = [by] if isinstance(by, str | tuple) else list(by)
        asked = [(one,) if isinstance(one, str) else tuple(one) for one in each]
        for attribute in (a for crossing in asked for a in crossing):
            self._group_column(str(attribute))
        return list(dict.fromkeys(asked))

    def _group_column(self, attribute: str) -> str:
        if attribute not in self.attributes:
            there = ", ".join(self.attributes) or "none"
            raise UnknownColumnError(f"no protected attribute {attribute!r}; there is: {there}")
        return group_column(attribute)

    def _stratum(self, name: str) -> str:
        return group_column(name) if name in self.attributes else self._known_column(name)

    def _known_column(self, name: str) -> str:
        if name not in self.table.columns:
            raise UnknownColumnError(
                f"no column {name!r}; there is: {', '.join(self.table.columns)}"
            )
        return name
