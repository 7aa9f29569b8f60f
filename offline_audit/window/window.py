"""A slice of the traffic log, joined with outcomes and read by an engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import ibis
import pyarrow as pa

from offline_audit.errors import UnknownColumnError
from offline_audit.window.counts import (
    GroupCounts,
    ScoreHistogram,
    VerdictCounts,
    binned,
    histogram_of,
    marginal_cells,
    passes,
    verdict_counts,
)
from offline_audit.window.engine import Engine
from offline_audit.window.files import Span
from offline_audit.window.join import (
    DIGEST,
    KEYS,
    JoinedLog,
    chosen_rows,
    digest,
    stratum_sizes,
    with_stratum_sizes,
)
from offline_audit.window.listing import LogListing
from offline_audit.window.provenance import FileUse, Provenance, WindowFacts
from offline_audit.window.row_facts import outcome_facts, row_facts

if TYPE_CHECKING:
    from offline_audit.finding import Finding

__all__ = ["Window"]


class Window:
    """Predictions of one model in a span of time, with their labels and groups.

    Example:
        >>> with Window.read("log", "outcomes", since, until) as window:  # doctest: +SKIP
        ...     print(window.provenance)
        ...     counts = window.counts("sex")

    Attributes:
        model: Name of the model; None if the log is empty.
        version: Requested version of the model; None for all versions.
        span: Span of time.
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
        self._tests: dict[tuple[object, ...], Finding] = {}
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
        """Open a window. Missing, corrupt and old files are no error: see its provenance.

        Args:
            log: Path or address of the traffic log.
            outcomes: Path or address of the outcomes; None for a window without labels and groups.
            since: Start of the window, with a time zone; None for the start of the log.
            until: End of the window, exclusive, with a time zone; None for the end of the log.
            model: Name of the model; may be omitted if the log has only one.
            version: Version of the model; None for all versions.
            engine: Engine; None for DuckDB in this process, which is closed with the window.
            verify: Whether to hash every file and compare the digest with the ledger.

        Raises:
            LogNotFoundError: There is no log at the address.
            LogUnreadableError: An address cannot be used, or files cannot be listed.
            ModelChoiceError: No model is named and the log has several, or there is no such model
                or version.
            SpanError: A time has no time zone, or the end is not after the start.
        """
        span = Span.between(since, until)
        listing = LogListing(log, "traffic", span)
        listing.require()
        model = listing.chosen_model(model, version)
        outcome_listing = None
        if outcomes is not None:
            outcome_listing = LogListing(outcomes, "outcomes", span.of_outcomes)
        return cls(
            engine=engine or Engine.duckdb(),
            owned=engine is None,
            log=listing,
            outcomes=outcome_listing,
            model=model,
            version=version,
            verify=verify,
        )

    def close(self) -> None:
        """Close the engine, unless the caller passed it."""
        if self._owned:
            self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def attributes(self) -> dict[str, tuple[str, ...]]:
        """Protected attributes, with the groups that the files of the model name."""
        return self._log.attributes

    @property
    def has_subjects(self) -> bool:
        """Whether `table` has pseudonyms of the people behind requests, `evenhand_subject`."""
        return self._log.has_subjects

    @property
    def tests(self) -> tuple[Finding, ...]:
        """Tests with a p-value that audits ran on this window so far; a repeated test counts once.

        Every later call of `audit_window` on this window corrects for them.
        """
        return tuple(self._tests.values())

    def record(self, findings: Iterable[Finding]) -> None:
        """Remember the tests of an audit; called by the audits."""
        for finding in findings:
            if finding.p_value is not None:
                self._tests.setdefault(finding.test, finding)

    @cached_property
    def table(self) -> Any:
        """Ibis table of all columns of the log, `version`, `label`, `group_…`, and the subject."""
        return self._log.joined(self._log.rows.columns, self._log.joined_fields)

    @cached_property
    def provenance(self) -> Provenance:
        """Files and rows that the window was read from, and those that are missing."""
        log, facts, outcomes = self._log, None, None
        if log.outcome_files is not None:
            facts = outcome_facts(
                self._engine,
                log.outcomes,
                log.rows.select(*KEYS, "time"),
                log.fields,
                self.span.until,
                log.without_prediction(),
            )
            outcomes = FileUse(reading=log.outcome_files, variants=log.outcome_schema.variants)
        joined = log.joined(["time", "version", "decision"], log.fields)
        return Provenance(
            model=self.model,
            version=self.version,
            since=self.span.since,
            until=self.span.until,
            verified=self._verify,
            log=FileUse(reading=log.traffic_files, variants=log.traffic_schema.variants),
            outcomes=outcomes,
            rows=row_facts(self._engine, joined, log.rows, log.group_columns),
            outcome_facts=facts,
        )

    @cached_property
    def facts(self) -> WindowFacts:
        """Short description of the window, stored with findings.

        Raises:
            AuditInputError: The favourable decision changed within the window.
        """
        return WindowFacts.of(self.provenance)

    def counts(self, by: str | Sequence[str | tuple[str, ...]] | None = None) -> GroupCounts:
        """Count predictions by group, label and decision.

        Args:
            by: Protected attribute; a tuple means the crossing of its attributes; a list of these
                counts each by itself. None: every attribute by itself.

        Raises:
            UnknownColumnError: There is no such attribute.
        """
        return self._group_counts(by, lambda rows: rows.decision, ["decision"])

    def median_score(self) -> float | None:
        """Median of all scores, the mean of the two middle ones; None without scores."""
        scores = self._log.rows.select("score").filter(self._log.rows.score.notnull())
        n = int(self._engine.fetch(scores.agg(rows=scores.count()))["rows"][0].as_py())
        if n == 0:
            return None
        # By position, since the medians of some engines are approximate.
        middle = scores.order_by("score").limit(2 - n % 2, offset=(n - 1) // 2)
        values = self._engine.fetch(middle)["score"].to_pylist()
        return float(sum(values) / len(values))

    def counts_above(
        self,
        score: float,
        by: str | Sequence[str | tuple[str, ...]] | None = None,
        *,
        reverse: bool = False,
    ) -> GroupCounts:
        """Count predictions by group, label, and whether their score is above a score.

        The decision of a cell is 1 if the scores are above it, 0 if they are not, and None for
        predictions without a score.

        Args:
            score: The score.
            by: Protected attribute; a tuple means the crossing of its attributes; a list of these
                counts each by itself. None: every attribute by itself.
            reverse: Whether the decision is 1 if the scores are below, instead of above.

        Raises:
            UnknownColumnError: There is no such attribute.
        """

        def beyond(rows: Any) -> Any:
            limit = ibis.literal(score, "float64")
            logged = rows.score.cast("float64")
            return (logged < limit if reverse else logged > limit).cast("int8")

        return self._group_counts(by, beyond, ["score"])

    def verdicts(self) -> VerdictCounts:
        """Count verdicts and actions; does not need outcomes."""
        names = {
            a: f"verdict_{a}" for a in self.attributes if f"verdict_{a}" in self._log.rows.columns
        }
        rows = self._log.rows.select(*names.values(), "action")
        counted = self._engine.fetch(
            rows.group_by(*names.values(), "action").agg(rows=rows.count())
        )
        return verdict_counts(counted, names)

    def score_histogram(self, attribute: str, bins: int = 50) -> ScoreHistogram:
        """Histogram of scores by group, label and decision.

        Args:
            attribute: Protected attribute.
            bins: Number of equal bins from 0 to 1.

        Raises:
            UnknownColumnError: There is no such attribute.
        """
        rows = self._grouped(attribute, ["score", "decision"])
        return histogram_of(attribute, bins, self._engine.fetch(binned(rows, bins)))

    def sample(self, n: int, by: Sequence[str] = (), seed: int = 0) -> pa.Table:
        """Draw a stratified sample of rows, the same on every engine.

        Args:
            n: Largest number of rows of each stratum.
            by: Protected attributes and columns, such as `decision` or `label`, whose values
                together define a stratum. Empty: the whole window is one stratum.
            seed: Seed of the sample.

        Returns:
            Table with all columns of `table`, and `stratum_rows`, the size of the row's stratum.

        Raises:
            UnknownColumnError: There is no such attribute or column.
        """
        strata = [self._stratum(name) for name in by]
        fields, logged = self._split(strata)
        keyed = self._log.joined([*KEYS, *(n for n in logged if n not in KEYS)], fields)
        narrow = keyed.select(*strata, **{DIGEST: digest(keyed, seed)})
        wide = self.table.mutate(**{DIGEST: digest(self.table, seed)})
        chosen = self._engine.fetch(chosen_rows(wide, narrow, strata, n))
        sizes = self._engine.fetch(stratum_sizes(narrow, strata))
        return with_stratum_sizes(chosen, sizes, strata)

    def batches(
        self, columns: Sequence[str] | None = None, size: int = 100_000
    ) -> Iterator[pa.RecordBatch]:
        """All rows in batches, in no particular order.

        Args:
            columns: Columns of `table`; None for all.
            size: Largest number of rows of a batch.

        Raises:
            UnknownColumnError: There is no such column.
        """
        names = list(self.table.columns) if columns is None else list(columns)
        for name in names:
            self._known_column(name)
        fields, logged = self._split(names)
        rows = self._log.joined(logged, fields).select(*names)
        return self._engine.stream(rows, size)

    def _split(self, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Columns that come from outcomes, and columns that come from the log."""
        fields = [name for name in names if name in self._log.joined_fields]
        return fields, [name for name in names if name not in fields]

    def _group_counts(
        self,
        by: str | Sequence[str | tuple[str, ...]] | None,
        decision: Callable[[Any], Any],
        logged: Sequence[str],
    ) -> GroupCounts:
        """Number of rows by group, label and a decision, which is made of columns of the log."""
        crossings = self._crossings(by)
        sizes = {attribute: len(groups) for attribute, groups in self.attributes.items()}
        cells = []
        for together in passes(crossings, sizes):
            columns = {a: self._group_column(a) for crossing in together for a in crossing}
            fields = ["label", *columns.values()]
            known = fields if self._log.has_outcomes else []
            joined = self._log.joined(logged, known)
            rows = joined.select(*known, decision=decision(joined))
            counted = self._engine.fetch(rows.group_by("decision", *known).agg(rows=rows.count()))
            for field in fields[len(known) :]:
                counted = counted.append_column(field, pa.nulls(counted.num_rows, pa.string()))
            for crossing in together:
                cells += marginal_cells(counted, columns, crossing)
        return GroupCounts(cells=tuple(cells))

    def _grouped(self, attribute: str, columns: Sequence[str]) -> Any:
        column = self._group_column(attribute)
        rows = self._log.joined(columns, ["label", column])
        return rows.rename(group=column)

    def _crossings(self, by: str | Sequence[str | tuple[str, ...]] | None) -> list[tuple[str, ...]]:
        """Distinct crossings that `by` requests; a single attribute is a tuple of one."""
        if by is None:
            by = list(self.attributes)
        entries = [by] if isinstance(by, str | tuple) else list(by)
        crossings = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]
        for attribute in (a for crossing in crossings for a in crossing):
            self._group_column(str(attribute))
        return list(dict.fromkeys(crossings))

    def _group_column(self, attribute: str) -> str:
        if attribute not in self.attributes:
            known = ", ".join(self.attributes) or "none"
            raise UnknownColumnError(
                f"no protected attribute {attribute!r}; the window has: {known}"
            )
        return self._log.group_columns[attribute]

    def _stratum(self, name: str) -> str:
        return self._log.group_columns.get(name) or self._known_column(name)

    def _known_column(self, name: str) -> str:
        if name not in self.table.columns:
            raise UnknownColumnError(
                f"no column {name!r}; the window has: {', '.join(self.table.columns)}"
            )
        return name
