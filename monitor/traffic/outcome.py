"""An outcome: what became of a prediction, and whether it can be recorded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from monitor.bundle.manifest import BundleSpec
from monitor.request_ids import LONGEST

__all__ = ["Outcome", "OutcomeCheck", "Refusal", "Source"]

Source = Literal["rpc", "rest", "file", "feature"]
# The place of an outcome among those sent, and why it was not recorded.
Refusal = tuple[int, str]

_LARGEST_ROW = 2**31 - 1
# An outcome from further ahead would keep every later correction from being heard.
_AHEAD = dt.timedelta(days=1)
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known of one row of one request.

    Attributes:
        request_id: As the sidecar returned it.
        row: Of the request, counted from 0.
        label: The true class, 0 or 1, if it is known.
        groups: Protected attribute to group, as far as they are known.
        observed_at: When; if None, when it arrived.
    """

    request_id: str
    row: int = 0
    label: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    observed_at: dt.datetime | None = None


class OutcomeCheck:
    """Tells outcomes that can be recorded from those that cannot."""

    def __init__(self, groups: Mapping[str, Sequence[str]]) -> None:
        self._groups = {name: frozenset(found) for name, found in groups.items()}

    @classmethod
    def of(cls, spec: BundleSpec) -> OutcomeCheck:
        """By the attributes and groups of a bundle."""
        return cls({a.name: a.groups for a in spec.protected_attributes})

    def flaw(self, outcome: Outcome, now: dt.datetime) -> str | None:
        """Why an outcome is refused, without its values; None if it is not."""
        name = outcome.request_id
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            return "request_id is no id that a request can have"
        if not 0 <= outcome.row <= _LARGEST_ROW:
            return "row is no row that a request can have"
        if outcome.label is None and not outcome.groups:
            return "neither label nor groups are given"
        if outcome.label not in (None, 0, 1):
            return "label is neither 0 nor 1"
        observed = outcome.observed_at
        if observed is not None and observed > now + _AHEAD:
            return "observed_at lies in the future"
        if observed is not None and observed < _EPOCH:
            return "observed_at lies before 1970"
        return self._flaw_of_groups(outcome)

    def _flaw_of_groups(self, outcome: Outcome) -> str | None:
        for attribute, group in outcome.groups.items():
            known = self._groups.get(attribute)
            if known is None:
                return f"no such protected attribute; there are {', '.join(sorted(self._groups))}"
            if group not in known:
                return f"no such group of {attribute}; there are {', '.join(sorted(known))}"
        return None
