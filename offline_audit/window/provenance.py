"""Provenance of a window: the files and rows that it was read from, and those that are missing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from offline_audit.coverage import only_labelled_decision
from offline_audit.errors import AuditInputError
from offline_audit.rendering import count, moment, percent, size, some, wrapped
from offline_audit.validation import UNKNOWN
from offline_audit.window.files import ReadFile
from offline_audit.window.listing import LogReading
from offline_audit.window.provenance_warnings import TREATMENT, provenance_warnings

if TYPE_CHECKING:
    from offline_audit.window.copies import CopiedFile
    from offline_audit.window.files import FlawedFile, RemovedFile
    from offline_audit.window.row_facts import OutcomeFacts, RowFacts
    from offline_audit.window.schema import SchemaVariant

__all__ = ["FileUse", "Provenance", "WindowFacts", "json_form"]

_HOUR = dt.timedelta(hours=1)
_DERIVED = (
    *("complete", "label_share", "group_shares", "selective_labels"),
    *("joinable", "hours_without_files", "changes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """Files of one log that were read, and those that were not.

    Attributes:
        reading: Result of listing and checking the files.
        variants: Files whose columns differ from those of the whole window.
    """

    reading: LogReading
    variants: tuple[SchemaVariant, ...]

    @property
    def files(self) -> tuple[ReadFile, ...]:
        """Files that were read."""
        return self.reading.files

    @property
    def missing(self) -> tuple[FlawedFile, ...]:
        """Files that the ledger lists and that do not exist."""
        return self.reading.missing

    @property
    def corrupt(self) -> tuple[FlawedFile, ...]:
        """Files that exist and failed a check."""
        return self.reading.corrupt

    @property
    def copies(self) -> tuple[CopiedFile, ...]:
        """Files that were not read, because another file has the same rows."""
        return self.reading.copies

    @property
    def removed(self) -> tuple[RemovedFile, ...]:
        """Files that were deleted on purpose."""
        return self.reading.removed

    @property
    def complete(self) -> bool:
        """Whether all rows of the span that the store lists were read, except erased ones."""
        r = self.reading
        only_erased = all(file.why == "erased" for file in r.removed)
        flaws = r.missing or r.corrupt or r.unreadable_entries or r.lost_rows
        segments = r.pending_segments or r.quarantined_segments
        return r.exists and only_erased and not (flaws or segments)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Files and rows that a window was read from.

    Attributes:
        model: Name of the model; None if the log is empty.
        version: Requested version of the model; None for all versions.
        since: Start of the window; None if it is unbounded.
        until: End of the window, exclusive; None if it is unbounded.
        verified: Whether the digests of the files were verified.
        log: Files of the traffic log.
        outcomes: Files of the outcomes; None if no outcomes were requested.
        rows: Facts about the predictions.
        outcome_facts: Facts about the outcomes; None if no outcomes were requested.
    """

    model: str | None
    version: str | None
    since: dt.datetime | None
    until: dt.datetime | None
    verified: bool
    log: FileUse
    outcomes: FileUse | None
    rows: RowFacts
    outcome_facts: OutcomeFacts | None

    @property
    def complete(self) -> bool:
        """Whether all rows of the window that the stores list were read, except erased ones.

        Rows that a sidecar has not yet written to a shared store cannot be seen.
        """
        return self.log.complete and (self.outcomes is None or self.outcomes.complete)

    @property
    def label_share(self) -> float | None:
        """Share of rows with a label; None without rows."""
        return self.rows.labelled / self.rows.rows if self.rows.rows else None

    @property
    def group_shares(self) -> dict[str, float | None]:
        """Share of rows whose group is known, by protected attribute."""
        n = self.rows.rows
        return {
            attribute: known / n if n else None for attribute, known in self.rows.grouped.items()
        }

    @property
    def label_share_by_decision(self) -> dict[int | None, float]:
        """Share of rows with a label, by decision."""
        return {d: labelled / rows for d, (rows, labelled) in self.rows.by_decision.items()}

    @property
    def selective_labels(self) -> bool:
        """Whether labels exist for one decision only, or nearly so, although both occur."""
        counts = [self.rows.by_decision.get(decision, (0, 0)) for decision in (0, 1)]
        rows, labelled = np.array(counts).T
        return int(only_labelled_decision(rows, labelled)) != UNKNOWN

    @property
    def joinable(self) -> bool:
        """Whether log and outcomes share a pseudonym key of request ids."""
        if self.outcomes is None or not self.outcomes.files or not self.log.files:
            return True
        return bool(self.log.reading.pseudonym_keys & self.outcomes.reading.pseudonym_keys)

    @property
    def hours_without_files(self) -> tuple[str, ...]:
        """Hours without a file between the first and the last file."""
        hours = {file.partition.since for file in self.log.files}
        if not hours:
            return ()
        between = range((max(hours) - min(hours)) // _HOUR)
        every = (min(hours) + index * _HOUR for index in between)
        return tuple(f"{hour:%Y-%m-%d %H}h" for hour in every if hour not in hours)

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """Properties of the model whose values differ between files, the oldest value first.

        Keys: `class_names`, `favourable`, `threshold`; `pseudonyms`, the key of request ids; and
        `treatment of …`, the logged form of a feature.
        """
        values: dict[str, dict[str, None]] = {}
        for file in self.log.files:
            for name, value in _model_properties(file).items():
                values.setdefault(name, {})[value] = None
        return {name: tuple(different) for name, different in values.items() if len(different) > 1}

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the data, as sentences."""
        return provenance_warnings(self)

    def to_dict(self) -> dict[str, Any]:
        """All values in JSON form."""
        values = {f.name: json_form(getattr(self, f.name)) for f in dataclasses.fields(self)}
        values |= {name: json_form(getattr(self, name)) for name in _DERIVED}
        by_decision = self.label_share_by_decision.items()
        values["label_share_by_decision"] = [{"decision": d, "share": s} for d, s in by_decision]
        values["warnings"] = list(self.warnings)
        return values

    def __str__(self) -> str:
        lines = [_head(self), *_file_lines(self), *_outcome_lines(self)]
        if empty := self.hours_without_files:
            lines.append(
                f"{count(len(empty), 'hour')} between the first and the last file without a file: "
                f"{some(empty)}."
            )
        status = "Complete." if self.complete else "Incomplete: see the warnings."
        lines.append(status if self.warnings else f"{status} No warnings.")
        lines += [f"! {warning}" for warning in self.warnings]
        return "\n".join(wrapped(line) for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFacts:
    """Short description of a window, stored with findings; its provenance has the details.

    Attributes:
        model: Name of the model.
        versions: Versions of the model in the window.
        since: Start of the window, or time of its first prediction.
        until: End of the window, or time of its last prediction.
        rows: Number of predictions.
        files: Number of files that were read, of log and outcomes.
        sha256: Digest of the paths, digests and row counts of those files.
        favourable: Decision and label that audits count as positive.
        complete: Whether no rows are known to be missing.
        warnings: Warnings about the data.
    """

    model: str | None
    versions: tuple[str, ...]
    since: dt.datetime | None
    until: dt.datetime | None
    rows: int
    files: int
    sha256: str
    favourable: Literal[0, 1]
    complete: bool
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, provenance: Provenance) -> Self:
        """Facts of the window with this provenance.

        Raises:
            AuditInputError: The favourable decision changed within the window, or files hold the
                same rows in part.
        """
        p = provenance
        if p.rows.copied:
            rows = count(p.rows.copied, "row")
            unlisted = some([file.path for file in p.log.reading.unlisted]) or "none"
            raise AuditInputError(
                f"window: {rows} of the log repeated with the same request, row, time and values; "
                "delete the files that hold them once more (files that are not in the ledger: "
                f"{unlisted})"
            )
        uses = [use for use in (p.log, p.outcomes) if use is not None]
        return cls(
            model=p.model,
            versions=tuple(p.rows.by_version),
            since=p.rows.first if p.since is None else p.since,
            until=p.rows.last if p.until is None else p.until,
            rows=p.rows.rows,
            files=sum(len(use.files) for use in uses),
            sha256=_digest(uses),
            favourable=_favourable(p),
            complete=p.complete,
            warnings=p.warnings,
        )

    def __str__(self) -> str:
        span = ""
        if self.since is not None and self.until is not None:
            span = f", {moment(self.since)} to {moment(self.until)}"
        return f"{self.model or 'no model'}{span}, {count(self.rows, 'prediction')}"


def json_form(value: Any) -> Any:
    """A value of a provenance in JSON form; files without their schema and metadata."""
    if isinstance(value, FileUse):
        return {**json_form(value.reading), "variants": json_form(value.variants)}
    if isinstance(value, ReadFile):
        names = ("path", "rows", "bytes", "sha256", "verified", "erased")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, LogReading):
        fields = {f.name: json_form(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return fields | {"unlisted": [file.path for file in value.unlisted]}
    if dataclasses.is_dataclass(value):
        return {f.name: json_form(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {"" if key is None else str(key): json_form(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_form(item) for item in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _model_properties(file: ReadFile) -> dict[str, str]:
    """Properties of the model that should be the same in all files."""
    names = ("class_names", "favourable", "threshold")
    values = {name: str(file.metadata[name]) for name in names if name in file.metadata}
    values["pseudonyms"] = file.key or "no key"
    # Names that differ in case are read as one column.
    treatments = file.treatments.items()
    return values | {f"{TREATMENT}{name.casefold()}": value for name, value in treatments}


def _favourable(p: Provenance) -> Literal[0, 1]:
    values = {f.metadata["favourable"] for f in p.log.files if "favourable" in f.metadata}
    if len(values) > 1:
        raise AuditInputError(
            "window: the favourable decision changed within the window; audit each version by "
            "itself"
        )
    return 0 if values == {0} else 1


def _digest(uses: list[FileUse]) -> str:
    digest = hashlib.sha256()
    for use in uses:
        for file in sorted(use.files, key=lambda file: file.path):
            digest.update(f"{file.path} {file.sha256} {file.rows}\n".encode())
    return digest.hexdigest()


def _head(p: Provenance) -> str:
    rows = count(p.rows.rows, "row")
    if p.model is None:
        return f"No predictions are in Parquet files yet: {rows}."
    version = "all versions" if p.version is None else f"version {p.version}"
    return f"Model {p.model}, {version}, {_span(p.since, p.until)}: {rows}."


def _span(since: dt.datetime | None, until: dt.datetime | None) -> str:
    start = "" if since is None else f"from {moment(since)}"
    end = "" if until is None else f"{'to' if start else 'before'} {moment(until)}"
    return f"{start} {end}".strip() or "all times"


def _file_lines(p: Provenance) -> Iterator[str]:
    if p.rows.first is not None and p.rows.last is not None:
        yield f"First row at {moment(p.rows.first)}, last row at {moment(p.rows.last)}."
    uses = {"Traffic log": p.log} | ({} if p.outcomes is None else {"Outcomes": p.outcomes})
    for name, use in uses.items():
        files = use.files
        verified = p.verified and files and not use.reading.unlisted
        total = size(sum(file.bytes for file in files))
        yield (
            f"{name} at {use.reading.address}: {count(len(files), 'file')}, {total}"
            f"{', digests verified' if verified else ''}."
        )


def _outcome_lines(p: Provenance) -> Iterator[str]:
    facts = p.outcome_facts
    if facts is None:
        return
    yield (
        f"{count(facts.rows, 'outcome')} of {count(facts.predictions, 'prediction')}; "
        f"{facts.in_window:,} of predictions in the window, {facts.late:,} received after its end."
    )
    if p.rows.rows:
        shares = p.label_share_by_decision.items()
        labels = ", ".join(f"decision {decision} {percent(share)}" for decision, share in shares)
        groups = ", ".join(f"{name} {percent(share)}" for name, share in p.group_shares.items())
        yield f"Known labels: {percent(p.label_share)} ({labels}); known groups: {groups}."
