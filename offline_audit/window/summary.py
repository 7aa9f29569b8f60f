"""Summary of a whole log, as `evenhand log inspect` prints it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offline_audit.rendering import count, duration, moment, percent, size, wrapped
from offline_audit.window.counts import VerdictCounts
from offline_audit.window.engine import Engine
from offline_audit.window.listing import LogListing
from offline_audit.window.provenance import Provenance, json_form
from offline_audit.window.row_facts import OutcomeFacts
from offline_audit.window.window import Window

__all__ = ["LogSummary", "ModelSummary", "summarise"]

_INDENT = 12
# Printed words for causes of lost rows whose name in the ledger is not clear by itself.
_CAUSES = {"torn": "partial write"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """Summary of one model.

    Attributes:
        model: Name of the model.
        provenance: Files, rows and outcomes.
        verdicts: Verdicts and actions.
    """

    model: str
    provenance: Provenance
    verdicts: VerdictCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """Summary of a log.

    Attributes:
        log: Path or address of the log.
        outcomes: Path or address of the outcomes; None if no outcomes were requested.
        pending_segments: Number of segments in the store that are not compacted yet.
        models: Models in the order of their names.
    """

    log: str
    outcomes: str | None
    pending_segments: int
    models: tuple[ModelSummary, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all models."""
        return sum(model.provenance.rows.rows for model in self.models)

    @property
    def bytes(self) -> int:
        """Size of all files that were read."""
        return sum(f.bytes for model in self.models for f in model.provenance.log.files)

    def to_dict(self) -> dict[str, Any]:
        """All values in JSON form."""
        return {
            "log": self.log,
            "outcomes": self.outcomes,
            "pending_segments": self.pending_segments,
            "rows": self.rows,
            "bytes": self.bytes,
            "models": {
                m.model: {**m.provenance.to_dict(), "verdicts": json_form(m.verdicts)}
                for m in self.models
            },
        }

    def __str__(self) -> str:
        head = f"Log {self.log}: {count(len(self.models), 'model')}, {count(self.rows, 'row')}"
        lines = [f"{head}, {size(self.bytes)}."]
        if self.pending_segments:
            lines.append(f"{count(self.pending_segments, 'segment')} not compacted yet.")
        if not self.models:
            lines.append("No predictions are in Parquet files yet.")
        for model in self.models:
            lines += ["", model.model, *_model_lines(model)]
        return "\n".join(lines)


def summarise(
    log: str | Path,
    outcomes: str | Path | None = None,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
    *,
    engine: Engine | None = None,
    verify: bool = True,
) -> LogSummary:
    """Summarise every model of a log. Missing and corrupt files are reported, not raised.

    Args:
        log: Path or address of the traffic log.
        outcomes: Path or address of the outcomes.
        since: Start of the span, with a time zone.
        until: End of the span, exclusive, with a time zone.
        engine: Engine; None for DuckDB in this process.
        verify: Whether to hash every file and compare the digest with the ledger.

    Raises:
        LogNotFoundError: There is no log at the address.
        LogUnreadableError: An address cannot be used, or files cannot be listed.
        SpanError: A time has no time zone, or the end is not after the start.
    """
    listing = LogListing(log, "traffic")
    listing.require()
    if engine is None:
        with Engine.duckdb() as own:
            return summarise(log, outcomes, since, until, engine=own, verify=verify)
    models = []
    for model in listing.versions:
        with Window.read(
            log, outcomes, since, until, model, engine=engine, verify=verify
        ) as window:
            summary = ModelSummary(
                model=model, provenance=window.provenance, verdicts=window.verdicts()
            )
            models.append(summary)
    return LogSummary(
        log=str(log),
        outcomes=None if outcomes is None else str(outcomes),
        pending_segments=len(listing.segments.pending),
        models=tuple(models),
    )


def _model_lines(model: ModelSummary) -> Iterator[str]:
    p = model.provenance
    if p.rows.first is not None and p.rows.last is not None:
        yield _line("span", f"{moment(p.rows.first)} to {moment(p.rows.last)}")
    versions = ", ".join(f"version {v}: {n:,}" for v, n in p.rows.by_version.items())
    yield _line("rows", f"{p.rows.rows:,}" + (f" ({versions})" if versions else ""))
    yield _line("files", _files(p))
    losses = {"": p.log.reading.lost_rows}
    if p.outcomes is not None:
        losses["of outcomes: "] = p.outcomes.reading.lost_rows
    for prefix, lost in losses.items():
        if lost:
            yield _line("lost", f"{prefix}{sum(lost.values()):,} rows ({_list(_causes(lost))})")
    name = "verdicts"
    for attribute, counts in model.verdicts.verdicts.items():
        yield _line(name, f"{attribute}: {_shares(counts)}")
        name = ""
    if p.rows.rows:
        yield _line("actions", _shares(model.verdicts.actions))
    if p.outcome_facts is not None:
        yield from _outcome_lines(p, p.outcome_facts)
    yield from (wrapped(warning, "  ! ", "    ") for warning in p.warnings)


def _files(p: Provenance) -> str:
    r = p.log.reading
    flaws = {
        "missing": len(r.missing),
        "corrupt": len(r.corrupt),
        "with the rows of another": len(r.copies),
        "not in the ledger": len(r.unlisted),
        "deleted on purpose": len(r.removed),
    }
    listed = ", ".join(f"{n:,} {flaw}" for flaw, n in flaws.items() if n)
    total = f"{len(r.files):,}, {size(sum(f.bytes for f in r.files))}"
    return f"{total}; {listed}" if listed else total


def _outcome_lines(p: Provenance, facts: OutcomeFacts) -> Iterator[str]:
    sources = f" ({_list(facts.sources)})" if facts.sources else ""
    predictions = count(facts.predictions, "prediction")
    yield _line("outcomes", f"{facts.rows:,}, of {predictions}{sources}")
    names = {field: field.removeprefix("group_") for field in facts.values}
    yield _line("", "with " + ", ".join(f"{names[f]} {n:,}" for f, n in facts.values.items()))
    conflicts = ", ".join(f"{names[f]} {n:,}" for f, n in facts.conflicts.items() if n)
    unmatched = "unknown" if facts.without_prediction is None else f"{facts.without_prediction:,}"
    yield _line(
        "",
        f"repeated for {count(facts.repeated, 'prediction')}; conflicting: {conflicts or 'none'}; "
        f"without a prediction: {unmatched}",
    )
    if p.rows.rows:
        missing = {"label": p.rows.rows - p.rows.labelled}
        missing |= {a: p.rows.rows - n for a, n in p.rows.grouped.items()}
        shares = ", ".join(f"{a} {n:,} ({percent(n / p.rows.rows)})" for a, n in missing.items())
        yield _line("", f"predictions missing {shares}")
    if facts.median_delay is not None and facts.longest_delay is not None:
        median, longest = duration(facts.median_delay), duration(facts.longest_delay)
        yield _line("", f"received {median} after the prediction (median), {longest} at most")


def _line(name: str, text: str) -> str:
    return wrapped(text, f"  {name:<{_INDENT - 2}}", " " * _INDENT)


def _list(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{name or 'unknown'} {n:,}" for name, n in counts.items())


def _causes(lost: Mapping[str, int]) -> dict[str, int]:
    """Lost rows by cause, in words."""
    return {_CAUSES.get(cause, cause): rows for cause, rows in lost.items()}


def _shares(counts: Mapping[str | None, int]) -> str:
    total = sum(counts.values())
    parts = (f"{name or 'missing'} {n:,} ({percent(n / total)})" for name, n in counts.items())
    return ", ".join(parts) or "none"
