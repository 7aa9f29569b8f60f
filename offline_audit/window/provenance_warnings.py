"""Warnings about a window: missing files and rows, conflicting outcomes, changes of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING

from offline_audit.rendering import are, count, some

if TYPE_CHECKING:
    from offline_audit.window.listing import LogReading
    from offline_audit.window.provenance import FileUse, Provenance
    from offline_audit.window.schema import SchemaVariant

__all__ = ["TREATMENT", "provenance_warnings"]

# Prefix of the key of a feature's treatment in `Provenance.changes`; the column name follows.
TREATMENT = "treatment of "

# Causes of lost rows, as the ledger names them.
_CAUSES = {
    "slow": "a write took too long",
    "disk": "a disk error",
    "full": "the disk quota was exhausted",
    "torn": "the process was killed during a write",
    "damaged": "data on disk were corrupted",
    "fault": "the rows could not be encoded",
}
_CHANGED = {
    "class_names": "The class names",
    "favourable": "The favourable decision",
    "threshold": "The decision threshold",
    "pseudonyms": "The pseudonym key",
}


def provenance_warnings(provenance: Provenance) -> tuple[str, ...]:
    """Warnings about the files, then about rows, outcomes and changes."""
    return (
        *_about_files(provenance.log, "traffic log", verified=provenance.verified),
        *_about_outcome_files(provenance),
        *_about_rows(provenance),
        *_about_outcomes(provenance),
        *_about_changes(provenance),
    )


def _about_files(use: FileUse, log: str, *, verified: bool) -> Iterator[str]:
    yield from _not_read(use.reading, log)
    yield from _removed(use.reading, log)
    yield from _ledger(use.reading, log)
    yield from (_variant(variant, log) for variant in use.variants)
    if use.files and not verified:
        yield f"The digests of the files of the {log} were not verified."


def _not_read(r: LogReading, log: str) -> Iterator[str]:
    if r.missing:
        files = f"{count(len(r.missing), 'file')} of the {log}"
        rows = count(sum(file.rows or 0 for file in r.missing), "row")
        paths = some([file.path for file in r.missing])
        yield f"{files} with {rows} {are(len(r.missing))} missing: {paths}."
    for file in r.corrupt:
        rows = "" if file.rows is None else f" ({count(file.rows, 'row')} in the ledger)"
        yield f"{file.path} of the {log} is corrupt and was not read{rows}: {file.reason}."
    if r.copies:
        files = f"{count(len(r.copies), 'file')} of the {log}"
        rows = count(sum(copy.rows for copy in r.copies), "row")
        pairs = some([f"{copy.path} (rows of {copy.of})" for copy in r.copies])
        yield (
            f"{files} with {rows} {_were(r.copies)} not read, because the same rows are in another "
            f"file: {pairs}."
        )
    if r.unrecognized:
        files = count(len(r.unrecognized), "Parquet file")
        verb = "does" if len(r.unrecognized) == 1 else "do"
        yield (
            f"{files} {verb} not follow the layout of the {log} and {_were(r.unrecognized)} not "
            f"read: {some(r.unrecognized)}."
        )


def _removed(r: LogReading, log: str) -> Iterator[str]:
    for why in sorted({file.why for file in r.removed}):
        removed = [file for file in r.removed if file.why == why]
        files = f"{count(len(removed), 'file')} of the {log}"
        rows = count(sum(file.rows for file in removed), "row")
        paths = some([file.path for file in removed])
        yield f"{files} with {rows} {_were(removed)} deleted on purpose ({why}): {paths}."
    if erased := sum(f.erased for f in r.files) + sum(f.erased for f in r.removed):
        verb = "was" if erased == 1 else "were"
        yield f"{count(erased, 'row')} of the {log} {verb} erased on request."


def _ledger(r: LogReading, log: str) -> Iterator[str]:
    if r.unlisted:
        paths = some([file.path for file in r.unlisted])
        files = f"{count(len(r.unlisted), 'file')} of the {log}"
        they = "it was" if len(r.unlisted) == 1 else "they were"
        yield (
            f"{files} {are(len(r.unlisted))} not listed in the ledger; {they} read anyway: {paths}."
        )
    if r.unreadable_entries:
        entries = count(len(r.unreadable_entries), "entry", "entries")
        paths = some(r.unreadable_entries)
        yield (
            f"{entries} of the ledger of the {log} cannot be read, so missing files may go "
            f"unnoticed: {paths}."
        )
    for cause, rows in r.lost_rows.items():
        reason = _CAUSES.get(cause, cause)
        yield f"The sidecar lost {count(rows, 'row')} of the {log} ({reason})."
    if r.pending_segments:
        segments = f"{count(r.pending_segments, 'segment')} of the {log}"
        verb = are(r.pending_segments)
        its = "its" if r.pending_segments == 1 else "their"
        yield (
            f"{segments} {verb} not compacted yet; {its} rows are not in this window. A running "
            "sidecar compacts them after `traffic.roll_seconds` or when it stops; afterwards "
            "`evenhand log compact` does."
        )
    if r.quarantined_segments:
        segments = f"{count(len(r.quarantined_segments), 'segment')} of the {log}"
        its = "its" if len(r.quarantined_segments) == 1 else "their"
        yield (
            f"{segments} could not be read and {_were(r.quarantined_segments)} quarantined; {its} "
            f"rows are not in this window: {some(r.quarantined_segments)}."
        )


def _variant(variant: SchemaVariant, log: str) -> str:
    differences = [f"{name} is {old}, read as {new}" for name, old, new in variant.differs]
    if variant.lacks:
        differences.insert(0, f"without {some(variant.lacks, 6)}, read as null")
    files, has = count(len(variant.paths), "file"), "has" if len(variant.paths) == 1 else "have"
    return (
        f"{files} of the {log} {has} a different schema ({'; '.join(differences)}): "
        f"{some(variant.paths)}."
    )


def _about_outcome_files(provenance: Provenance) -> Iterator[str]:
    if provenance.outcomes is None:
        return
    outcomes, traffic = provenance.outcomes.reading, provenance.log.reading
    if not outcomes.exists:
        yield f"There are no outcomes at {outcomes.address}."
    yield from _about_files(provenance.outcomes, "outcomes", verified=provenance.verified)
    if not provenance.joinable:
        yield (
            "Log and outcomes use different pseudonym keys, so outcomes cannot be joined: "
            f"{_keys(traffic.pseudonym_keys)} in the log, {_keys(outcomes.pseudonym_keys)} in the "
            "outcomes."
        )
    elif outcomes.files and len(traffic.pseudonym_keys | outcomes.pseudonym_keys) > 1:
        yield "The pseudonym key changed, so some outcomes cannot be joined."


def _about_rows(provenance: Provenance) -> Iterator[str]:
    facts = provenance.rows
    if not facts.rows:
        yield "The window has no predictions."
    if facts.duplicated:
        yield (
            f"{count(facts.duplicated, 'prediction')} {are(facts.duplicated)} logged more than "
            f"once ({count(facts.surplus, 'duplicate row')}); every copy counts, with the same "
            "outcome."
        )
    if facts.copied:
        rows = f"{count(facts.copied, 'row')} {are(facts.copied)}"
        yield (
            f"{rows} logged twice with the same request, row, time and values, so files of the log "
            "hold the same rows in part. Figures count them twice, and audits refuse the window."
        )


def _about_outcomes(provenance: Provenance) -> Iterator[str]:
    facts = provenance.outcome_facts
    if facts is None:
        return
    for field, n in facts.conflicts.items():
        if n:
            predictions = count(n, "prediction")
            yield f"Outcomes of {predictions} conflict in {field}; the latest value is used."
    if facts.without_prediction:
        predictions = count(facts.without_prediction, "prediction")
        yield f"Outcomes of {predictions} have no matching row in the log."
    if facts.without_prediction is None:
        yield "Outcomes without a prediction could not be counted: other log files are damaged."
    if provenance.rows.rows and not provenance.rows.labelled:
        yield "No prediction of the window has a label."
    if provenance.selective_labels:
        shares = provenance.label_share_by_decision
        only = 0 if shares[0] > shares[1] else 1
        others = provenance.rows.by_decision[1 - only][1]
        but = f", and for {count(others, 'row')} of the other" if others else ""
        yield (
            f"Labels exist for decision {only} only{but}; they do not represent the whole window."
        )


def _about_changes(provenance: Provenance) -> Iterator[str]:
    for key, values in provenance.changes.items():
        if key.startswith(TREATMENT):
            subject = f"The logged form of {key.removeprefix(TREATMENT)}"
            consequence = "; its values cannot be compared"
        else:
            subject, consequence = _CHANGED[key], ""
        yield f"{subject} changed within the window: {', then '.join(values)}{consequence}."


def _keys(fingerprints: set[str | None]) -> str:
    return some(sorted(key or "no key" for key in fingerprints))


def _were(items: Sized) -> str:
    return "was" if len(items) == 1 else "were"
