"""What to know before a figure of a window is believed, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from offline_audit.rendering import are, count, some

if TYPE_CHECKING:
    from offline_audit.window.listing import LogReading
    from offline_audit.window.provenance import FileUse, Provenance
    from offline_audit.window.schema import SchemaVariant

__all__ = ["TREATMENT", "warnings_of"]

# What a change of a feature's treatment begins with; the name of its column follows.
TREATMENT = "treatment of "

_CAUSES = {
    "slow": "writing took too long",
    "disk": "the disk refused them",
    "full": "there was no room",
    "torn": "a crash cut them off",
    "damaged": "bytes changed on the disk",
    "fault": "they could not be encoded",
}
_CHANGED = {
    "class_names": "The names of the classes",
    "favourable": "Which decision is favourable",
    "threshold": "The threshold of the decision",
    "pseudonyms": "The key of the pseudonyms",
}


def warnings_of(found: Provenance) -> tuple[str, ...]:
    """Of files first, then of rows and of outcomes."""
    return (
        *_of_files(found.log, "the log", verified=found.verified),
        *_of_outcome_files(found),
        *_of_rows(found),
        *_of_outcomes(found),
        *_of_changes(found),
    )


def _of_files(use: FileUse, what: str, *, verified: bool) -> Iterator[str]:
    yield from _not_read(use.reading, what)
    yield from _removed(use.reading, what)
    yield from _ledger(use.reading, what)
    yield from (_variant(variant, what) for variant in use.variants)
    if use.files and not verified:
        yield f"Digests of {what}'s files were not checked."


def _not_read(r: LogReading, what: str) -> Iterator[str]:
    if r.missing:
        files = f"{count(len(r.missing), 'file')} of {what}"
        rows = count(sum(file.rows or 0 for file in r.missing), "row")
        paths = some([file.path for file in r.missing])
        yield f"{files} with {rows} {are(len(r.missing))} missing: {paths}."
    for file in r.corrupt:
        rows = "" if file.rows is None else f" ({count(file.rows, 'row')} by the ledger)"
        yield f"{file.path} of {what} is corrupt and was not read{rows}: {file.reason}."
    if r.strays:
        files = f"{count(len(r.strays), 'file')} {are(len(r.strays))}"
        yield f"{files} not laid out as {what} and not read: {some(r.strays)}."


def _removed(r: LogReading, what: str) -> Iterator[str]:
    for why in sorted({file.why for file in r.removed}):
        gone = [file for file in r.removed if file.why == why]
        files = f"{count(len(gone), 'file')} of {what}"
        rows = count(sum(file.rows for file in gone), "row")
        paths = some([file.path for file in gone])
        yield f"{files} with {rows}, taken away on purpose ({why}): {paths}."
    if erased := sum(f.erased for f in r.files) + sum(f.erased for f in r.removed):
        yield f"{count(erased, 'row')} of people who asked for it, erased from {what}."


def _ledger(r: LogReading, what: str) -> Iterator[str]:
    if r.unlisted:
        paths = some([file.path for file in r.unlisted])
        files = count(len(r.unlisted), "file")
        yield f"The ledger of {what} does not list {files}, read all the same: {paths}."
    if r.unreadable_entries:
        entries = count(len(r.unreadable_entries), "entry", "entries")
        paths = some(r.unreadable_entries)
        yield (
            f"{entries} of the ledger of {what} cannot be read, so files may be missing unnoticed: "
            f"{paths}."
        )
    for cause, rows in r.lost.items():
        yield f"The sidecar lost {count(rows, 'row')} of {what} ({_CAUSES.get(cause, cause)})."
    if r.waiting:
        segments = f"{count(r.waiting, 'segment')} of {what} {are(r.waiting)}"
        yield f"{segments} not compacted yet; rows in there are not in this window."
    if r.set_aside:
        segments = f"{count(len(r.set_aside), 'segment')} of {what}"
        were = "was" if len(r.set_aside) == 1 else "were"
        yield (
            f"{segments} could not be read and {were} set aside; rows in there "
            f"are not in this window: {some(r.set_aside)}."
        )


def _variant(variant: SchemaVariant, what: str) -> str:
    parts = [f"{name} as {old}, read as {new}" for name, old, new in variant.differs]
    if variant.lacks:
        parts.insert(0, f"no {some(variant.lacks, 6)} (null there)")
    files, has = count(len(variant.paths), "file"), "has" if len(variant.paths) == 1 else "have"
    columns, paths = "; ".join(parts), some(variant.paths)
    return f"{files} of {what} with another schema {has} {columns}: {paths}."


def _of_outcome_files(found: Provenance) -> Iterator[str]:
    if found.outcomes is None:
        return
    given, logged = found.outcomes.reading, found.log.reading
    if not given.found:
        yield f"There are no outcomes at {given.place}."
    yield from _of_files(found.outcomes, "the outcomes", verified=found.verified)
    if not found.joinable:
        yield (
            "Log and outcomes name requests by different pseudonym keys, so nothing can be joined: "
            f"{_keys(logged.pseudonyms)} against {_keys(given.pseudonyms)}."
        )
    elif given.files and len(logged.pseudonyms | given.pseudonyms) > 1:
        yield "The pseudonym key changed, so some outcomes cannot be joined."


def _of_rows(found: Provenance) -> Iterator[str]:
    facts = found.rows
    if not facts.rows:
        yield "The window is empty."
    if facts.duplicated:
        stand = "stands" if facts.duplicated == 1 else "stand"
        yield (
            f"{count(facts.duplicated, 'prediction')} {stand} in the log more than once "
            f"({count(facts.surplus, 'row')} too many); each copy counts and has the same outcome."
        )


def _of_outcomes(found: Provenance) -> Iterator[str]:
    told = found.told
    if told is None:
        return
    for field, n in told.conflicts.items():
        if n:
            of = count(n, "prediction")
            yield f"For {of} outcomes contradict each other on {field}; the latest holds."
    if told.without_prediction:
        of = count(told.without_prediction, "prediction")
        yield f"Outcomes of {of} belong to none that is in the log."
    if told.without_prediction is None:
        yield "How many outcomes belong to no prediction is not known: other files are damaged."
    if found.rows.rows and not found.rows.labelled:
        yield "No prediction of the window has a label."
    if found.selective_labels:
        only = next(d for d, share in found.label_share_by_decision.items() if share)
        yield f"Labels exist for decision {only} only: they do not stand for the whole window."


def _of_changes(found: Provenance) -> Iterator[str]:
    for key, values in found.changes.items():
        if key.startswith(TREATMENT):
            column = key.removeprefix(TREATMENT)
            changed, so = f"What is written of {column}", "; its values cannot be compared"
        else:
            changed, so = _CHANGED[key], ""
        yield f"{changed} changed within the window: {', then '.join(values)}{so}."


def _keys(fingerprints: set[str | None]) -> str:
    return some(sorted(key or "no key" for key in fingerprints))
