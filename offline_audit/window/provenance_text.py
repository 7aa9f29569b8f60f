"""A window's provenance for a terminal of 100 columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

from offline_audit.rendering import count, moment, percent, size, some, wrapped

if TYPE_CHECKING:
    from offline_audit.window.provenance import FileUse, Provenance

__all__ = ["text_of"]


def text_of(found: Provenance) -> str:
    """What was read, whether it is all, and what to know of it."""
    lines = [_head(found), *_files(found), *_known(found)]
    if empty := found.hours_without_files:
        lines.append(f"No file for {count(len(empty), 'hour')} in between: {some(empty)}.")
    verdict = "Complete." if found.complete else "NOT complete."
    lines.append(verdict if found.warnings else f"{verdict} Nothing to warn of.")
    lines += [f"! {warning}" for warning in found.warnings]
    return "\n".join(wrapped(line) for line in lines)


def _head(found: Provenance) -> str:
    rows = count(found.rows.rows, "row")
    if found.model is None:
        return f"No model has predictions in this log yet: {rows}."
    version = "all versions" if found.version is None else f"version {found.version}"
    return f"Model {found.model}, {version}, {_span(found.since, found.until)}: {rows}."


def _files(found: Provenance) -> Iterator[str]:
    if found.rows.first is not None and found.rows.last is not None:
        yield f"First at {moment(found.rows.first)}, last at {moment(found.rows.last)}."
    yield _use("Log", found.log, verified=found.verified)
    if found.outcomes is not None:
        yield _use("Outcomes", found.outcomes, verified=found.verified)


def _use(name: str, use: FileUse, *, verified: bool) -> str:
    files = use.files
    digests = ", digests checked" if verified and files and not use.reading.unlisted else ""
    total = size(sum(file.bytes for file in files))
    return f"{name} {use.reading.place}: {count(len(files), 'file')}, {total}{digests}."


def _known(found: Provenance) -> Iterator[str]:
    told = found.told
    if told is None:
        return
    of = f"{count(told.rows, 'outcome')} of {count(told.predictions, 'prediction')}"
    yield f"{of}; {told.of_window:,} of the window's, {told.late:,} received after its end."
    if found.rows.rows:
        shares = found.label_share_by_decision.items()
        by = ", ".join(f"decision {decision} {percent(share)}" for decision, share in shares)
        groups = ", ".join(f"{name} {percent(share)}" for name, share in found.group_shares.items())
        yield f"Known of the rows: label {percent(found.label_share)} ({by}); group {groups}."


def _span(since: dt.datetime | None, until: dt.datetime | None) -> str:
    if since is None and until is None:
        return "of all times"
    start = "the beginning" if since is None else moment(since)
    return f"from {start} " + ("on" if until is None else f"to {moment(until)}")
