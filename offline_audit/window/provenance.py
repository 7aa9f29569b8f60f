"""Where a window's rows come from, and what is not among them."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offline_audit.window.files import FlawedFile, ReadFile, RemovedFile
from offline_audit.window.listing import LogReading
from offline_audit.window.provenance_text import text_of
from offline_audit.window.provenance_warnings import TREATMENT, warnings_of
from offline_audit.window.row_facts import OutcomeFacts, RowFacts
from offline_audit.window.schema import SchemaVariant

__all__ = ["FileUse", "Provenance", "plain"]

_HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """Which files of one log were read, and which were not.

    Attributes:
        reading: What was found.
        variants: Files whose columns are not those of the whole.
    """

    reading: LogReading
    variants: tuple[SchemaVariant, ...]

    @property
    def files(self) -> tuple[ReadFile, ...]:
        """That were read."""
        return self.reading.files

    @property
    def missing(self) -> tuple[FlawedFile, ...]:
        """That the ledger lists and that are not there."""
        return self.reading.missing

    @property
    def corrupt(self) -> tuple[FlawedFile, ...]:
        """That are there and were not read."""
        return self.reading.corrupt

    @property
    def removed(self) -> tuple[RemovedFile, ...]:
        """That were taken away on purpose."""
        return self.reading.removed

    @property
    def complete(self) -> bool:
        """Whether all that the store shows of the span was read, but for erased people."""
        r = self.reading
        on_purpose = all(file.why == "erased" for file in r.removed)
        flaws = r.missing or r.corrupt or r.unreadable_entries or r.lost
        return r.found and on_purpose and not (flaws or r.waiting or r.set_aside)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a window was read from.

    Attributes:
        model: Whose predictions; None if the log holds none yet.
        version: That was asked for; None for all.
        since: Start of the window.
        until: Its end, which is not in it.
        verified: Whether digests were to be checked.
        log: Files of the traffic log.
        outcomes: Files of the outcomes; None if none were asked for.
        rows: Facts about the predictions.
        told: Facts about the outcomes.
    """

    model: str | None
    version: str | None
    since: dt.datetime | None
    until: dt.datetime | None
    verified: bool
    log: FileUse
    outcomes: FileUse | None
    rows: RowFacts
    told: OutcomeFacts | None

    @property
    def complete(self) -> bool:
        """Whether all that the stores show of the window was read, but for erased people.

        What a sidecar elsewhere has not put into a shared store yet cannot be seen.
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
            attribute: found / n if n else None for attribute, found in self.rows.grouped.items()
        }

    @property
    def label_share_by_decision(self) -> dict[int | None, float]:
        """Share of rows with a label, by decision."""
        return {d: labelled / rows for d, (rows, labelled) in self.rows.by_decision.items()}

    @property
    def selective_labels(self) -> bool:
        """Whether labels exist for one decision only, although both were made."""
        shares = [s for d, s in self.label_share_by_decision.items() if d is not None]
        return len(shares) > 1 and max(shares) > 0 and min(shares) == 0

    @property
    def joinable(self) -> bool:
        """Whether log and outcomes call a request by the same name."""
        if self.outcomes is None or not self.outcomes.files or not self.log.files:
            return True
        return bool(self.log.reading.pseudonyms & self.outcomes.reading.pseudonyms)

    @property
    def hours_without_files(self) -> tuple[str, ...]:
        """Hours between the first and the last file of which there is none."""
        hours = {file.partition.since for file in self.log.files}
        if not hours:
            return ()
        between = range((max(hours) - min(hours)) // _HOUR)
        every = (min(hours) + place * _HOUR for place in between)
        return tuple(f"{hour:%Y-%m-%d %H}h" for hour in every if hour not in hours)

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """What the log's files say differently of their model, the oldest first.

        `class_names`, `favourable`, `threshold`; `pseudonyms`, the key of request ids; and
        `treatment of …`, what was written of a feature.
        """
        said: dict[str, dict[str, None]] = {}
        for file in self.log.files:
            for what, word in _said(file).items():
                said.setdefault(what, {})[word] = None
        return {what: tuple(words) for what, words in said.items() if len(words) > 1}

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What to know before a figure of this window is believed, in plain sentences."""
        return warnings_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found = {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        derived = (
            "complete",
            "label_share",
            "group_shares",
            "selective_labels",
            "joinable",
            "hours_without_files",
            "changes",
        )
        found |= {name: plain(getattr(self, name)) for name in derived}
        by_decision = self.label_share_by_decision.items()
        found["label_share_by_decision"] = [{"decision": d, "share": s} for d, s in by_decision]
        found["warnings"] = list(self.warnings)
        return found

    def __str__(self) -> str:
        return text_of(self)


def _said(file: ReadFile) -> dict[str, str]:
    """What a file says that others should say too."""
    model = ("class_names", "favourable", "threshold")
    said = {key: str(file.about[key]) for key in model if key in file.about}
    said["pseudonyms"] = file.key or "no key"
    # Names that differ in case stand in one column.
    return said | {f"{TREATMENT}{n.casefold()}": word for n, word in file.treatments.items()}


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, FileUse):
        return {**plain(value.reading), "variants": plain(value.variants)}
    if isinstance(value, ReadFile):
        names = ("path", "rows", "bytes", "sha256", "verified", "erased")
        return {name: getattr(value, name) for name in names}
    if isinstance(value, LogReading):
        found = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return found | {"unlisted": [file.path for file in value.unlisted]}
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {"" if key is None else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, dt.datetime) else value
