"""A span of time."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Self

from offline_audit.errors import SpanError
from offline_audit.window.files import Partition

__all__ = ["Span"]

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span of time in UTC, with its start and without its end; None is open."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @classmethod
    def between(cls, since: dt.datetime | None, until: dt.datetime | None) -> Self:
        """From times of any zone.

        Raises:
            SpanError: A time has no zone, or the end is not after the start.
        """
        for name, time in (("since", since), ("until", until)):
            if time is not None and time.utcoffset() is None:
                raise SpanError(f"{name} has no time zone: {time.isoformat()}; give one, as +00:00")
        if since is not None and until is not None and until <= since:
            raise SpanError(f"{until.isoformat()} is not after {since.isoformat()}")
        start, end = (None if time is None else time.astimezone(dt.UTC) for time in (since, until))
        return cls(since=start, until=end)

    @property
    def of_outcomes(self) -> Span:
        """In which something may be told of its predictions: for ever, by clocks that disagree."""
        return Span(since=None if self.since is None else self.since - _DAY)

    def meets(self, since: dt.datetime, until: dt.datetime) -> bool:
        """Whether another has a moment in common with it, that one's end included."""
        return (self.until is None or since < self.until) and (
            self.since is None or until >= self.since
        )

    def covers(self, partition: Partition) -> bool:
        """Whether a partition may hold a moment of it."""
        return (self.until is None or partition.since < self.until) and (
            self.since is None or partition.until > self.since
        )
