"""What a finding says of the window that it was found in."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal, Self

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count, moment
from offline_audit.window.provenance import FileUse, Provenance

__all__ = ["WindowFacts", "computed_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFacts:
    """A window at a glance; its provenance has the whole.

    Attributes:
        model: Whose predictions.
        versions: Of the model, that are in it.
        since: Time of its first prediction, or its start.
        until: Time of its last prediction, or its end.
        rows: Predictions.
        files: Files that were read, of log and outcomes.
        sha256: Digest of the list of those files, each with its path and its own digest.
        favourable: The decision, and the label, that audits count as positive.
        complete: Whether nothing is known to be missing.
        warnings: What to know before a figure is believed.
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
        """From where a window's rows come from.

        Raises:
            AuditInputError: Which decision is favourable changed within the window.
        """
        p = provenance
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


def computed_by() -> Mapping[str, str]:
    """Versions of what computes findings."""
    return {name: version(name) for name in ("evenhand", "numpy", "scipy")}


def _favourable(p: Provenance) -> Literal[0, 1]:
    said = {file.about["favourable"] for file in p.log.files if "favourable" in file.about}
    if len(said) > 1:
        raise AuditInputError(
            "which decision is favourable changed within the window; audit each version on its own"
        )
    return 0 if said == {0} else 1


def _digest(uses: list[FileUse]) -> str:
    found = hashlib.sha256()
    for use in uses:
        for file in sorted(use.files, key=lambda file: file.path):
            found.update(f"{file.path} {file.sha256} {file.rows}\n".encode())
    return found.hexdigest()
