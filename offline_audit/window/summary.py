"""A whole log at a glance: what `evenhand log inspect` prints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offline_audit.rendering import count, duration, moment, percent, size, wrapped
from offline_audit.window.engine import Engine
from offline_audit.window.listing import LogListing
from offline_audit.window.provenance import Provenance, plain
from offline_audit.window.row_facts import OutcomeFacts
from offline_audit.window.verdict_counts import VerdictCounts
from offline_audit.window.window import Window

__all__ = ["LogSummary", "ModelSummary", "summarise"]

_INDENT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """What a log holds of one model.

    Attributes:
        model: Its name.
        provenance: Files, rows and outcomes.
        verdicts: Verdicts and actions.
    """

    model: str
    provenance: Provenance
    verdicts: VerdictCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSummary:
    """What a log holds.

    Attributes:
        log: Path or address.
        outcomes: Path or address of the outcomes; None if none were asked for.
        waiting: Segments in the store that are not compacted yet.
        models: In the order of their names.
    """

    log: str
    outcomes: str | None
    waiting: int
    models: tuple[ModelSummary, ...]

    @property
    def rows(self) -> int:
        """Of all models."""
        return sum(model.provenance.rows.rows for model in self.models)

    @property
    def bytes(self) -> int:
        """Of all files that were read."""
        return sum(f.bytes for model in self.models for f in model.provenance.log.files)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "log": self.log,
            "outcomes": self.outcomes,
            "waiting": self.waiting,
            "rows": self.rows,
            "bytes": self.bytes,
            "models": {
                m.model: {**m.provenance.to_dict(), "verdicts": plain(m.verdicts)}
                for m in self.models
            },
        }

    def __str__(self) -> str:
        head = f"Log {self.log}: {count(len(self.models), 'model')}, {count(self.rows, 'row')}"
        lines = [f"{head}, {size(self.bytes)}."]
        if self.waiting:
            lines.append(f"{count(self.waiting, 'segment')} not compacted yet.")
        if not self.models:
            lines.append("No predictions are in it yet.")
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
    """Look at every model of a log; flaws of its files are told, not raised.

    Args:
        log: Path or address of the traffic log.
        outcomes: Path or address of the outcomes.
        since: Start of what is looked at, with a time zone.
        until: Its end, which is not in it.
        engine: None for DuckDB in this process.
        verify: Hash every file and hold it against the ledger.

    Raises:
        LogNotFoundError: There is no log.
        LogUnreadableError: An address cannot be used, or files cannot be listed.
        SpanError: A time has no zone, or the end is before the start.
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
            found = ModelSummary(
                model=model, provenance=window.provenance, verdicts=window.verdicts()
            )
            models.append(found)
    return LogSummary(
        log=str(log),
        outcomes=None if outcomes is None else str(outcomes),
        waiting=len(listing.left.waiting),
        models=tuple(models),
    )


def _model_lines(model: ModelSummary) -> Iterator[str]:
    p = model.provenance
    if p.rows.first is not None and p.rows.last is not None:
        yield _line("span", f"{moment(p.rows.first)} to {moment(p.rows.last)}")
    versions = ", ".join(f"version {v}: {n:,}" for v, n in p.rows.by_version.items())
    yield _line("rows", f"{p.rows.rows:,}" + (f" ({versions})" if versions else ""))
    yield _line("files", _files(p))
    for name, lost in (("lost", p.log.reading.lost), ("", p.outcomes and p.outcomes.reading.lost)):
        if lost:
            of = "" if name else "of outcomes: "
            yield _line(name or "lost", f"{of}{sum(lost.values()):,} rows ({_list(lost)})")
    name = "verdicts"
    for attribute, found in model.verdicts.verdicts.items():
        yield _line(name, f"{attribute}: {_shares(found)}")
        name = ""
    if p.rows.rows:
        yield _line("actions", _shares(model.verdicts.actions))
    if p.told is not None:
        yield from _outcome_lines(p, p.told)
    yield from (wrapped(warning, "  ! ", "    ") for warning in p.warnings)


def _files(p: Provenance) -> str:
    r = p.log.reading
    flaws = {
        "missing": len(r.missing),
        "corrupt": len(r.corrupt),
        "not in the ledger": len(r.unlisted),
        "removed on purpose": len(r.removed),
    }
    told = ", ".join(f"{n:,} {what}" for what, n in flaws.items() if n)
    total = f"{len(r.files):,}, {size(sum(f.bytes for f in r.files))}"
    return f"{total}; {told}" if told else total


def _outcome_lines(p: Provenance, told: OutcomeFacts) -> Iterator[str]:
    sources = f" ({_list(told.sources)})" if told.sources else ""
    yield _line("outcomes", f"{told.rows:,}, on {count(told.predictions, 'prediction')}{sources}")
    names = {field: field.removeprefix("group_") for field in told.told}
    yield _line("", "tell " + ", ".join(f"{names[f]} {n:,}" for f, n in told.told.items()))
    conflicts = ", ".join(f"{names[f]} {n:,}" for f, n in told.conflicts.items() if n)
    without = "unknown" if told.without_prediction is None else f"{told.without_prediction:,}"
    yield _line(
        "",
        f"repeated for {count(told.repeated, 'prediction')}; conflicting: {conflicts or 'none'}; "
        f"without a prediction: {without}",
    )
    if p.rows.rows:
        lacking = {"label": p.rows.rows - p.rows.labelled}
        lacking |= {a: p.rows.rows - n for a, n in p.rows.grouped.items()}
        shares = ", ".join(f"{a} {n:,} ({percent(n / p.rows.rows)})" for a, n in lacking.items())
        yield _line("", f"predictions without: {shares}")
    if told.median_delay is not None and told.longest_delay is not None:
        median, longest = duration(told.median_delay), duration(told.longest_delay)
        yield _line("", f"received {median} after the prediction (median), {longest} at most")


def _line(name: str, text: str) -> str:
    return wrapped(text, f"  {name:<{_INDENT - 2}}", " " * _INDENT)


def _list(found: Mapping[Any, int]) -> str:
    return ", ".join(f"{name or 'unknown'} {n:,}" for name, n in found.items())


def _shares(found: Mapping[str | None, int]) -> str:
    total = sum(found.values())
    parts = (f"{name or 'without'} {n:,} ({percent(n / total)})" for name, n in found.items())
    return ", ".join(parts) or "none"
