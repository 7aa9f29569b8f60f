"""An outcome of a prediction, and its validation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from monitor.bundle.manifest import BundleSpec
from monitor.request import MAX_ID_LENGTH

__all__ = ["Outcome", "OutcomeCheck", "Refusal", "Source"]

Source = Literal["rpc", "rest", "file", "feature"]
# Index of a rejected outcome in the request, and the reason.
Refusal = tuple[int, str]

_LARGEST_ROW = 2**31 - 1
# Allows for clock skew; an outcome from further ahead would override every later correction.
_AHEAD = dt.timedelta(days=1)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became known about one row of a request.

    Attributes:
        request_id: Request id that the sidecar returned.
        row: Row of the request, from 0.
        label: True class, 0 or 1; None if unknown.
        groups: Known groups by protected attribute.
        observed_at: Time of observation; None for the time of arrival.
    """

    request_id: str
    row: int = 0
    label: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    observed_at: dt.datetime | None = None


class OutcomeCheck:
    """Validates outcomes."""

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = {name: frozenset(names) for name, names in groups.items()}

    @classmethod
    def of(cls, spec: BundleSpec) -> OutcomeCheck:
        """A check against the attributes and groups of a bundle."""
        return cls({a.name: a.groups for a in spec.protected_attributes})

    def flaw(self, outcome: Outcome, now: dt.datetime) -> str | None:
        """Why an outcome is rejected, without its values; None if it is valid."""
        name = outcome.request_id
        if not 0 < len(name) <= MAX_ID_LENGTH or not name.isprintable():
            return f"request_id must be 1 to {MAX_ID_LENGTH} printable characters"
        if not 0 <= outcome.row <= _LARGEST_ROW:
            return f"row must be between 0 and {_LARGEST_ROW}"
        if outcome.label is None and not outcome.groups:
            return "label and groups are both missing; at least one is required"
        if outcome.label not in (None, 0, 1):
            return "label must be 0 or 1"
        observed = outcome.observed_at
        if observed is not None and observed > now + _AHEAD:
            return "observed_at is in the future"
        if observed is not None and observed < _EPOCH:
            return "observed_at is before 1970"
        return self._flaw_of_groups(outcome)

    def _flaw_of_groups(self, outcome: Outcome) -> str | None:
        for attribute, group in outcome.groups.items():
            known = self._groups.get(attribute)
            if known is None:
                return f"unknown protected attribute; known: {', '.join(sorted(self._groups))}"
            if group not in known:
                return f"unknown group of {attribute}; known: {', '.join(sorted(known))}"
        return None
