"""Segments beside a log's files: not in the log yet, or never to be."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Self

from monitor.traffic.segment import segment_begun
from monitor.traffic.store import Store
from offline_audit.window.span import Span

__all__ = ["LeftSegments"]

_SEGMENTS = "_segments"
_EVER = dt.datetime.min.replace(tzinfo=dt.UTC)
# The config lets a segment grow one day old at most; the other is for clocks, and for late rows.
_LONGEST = dt.timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftSegments:
    """Segments in the store's own folder; those of sidecars elsewhere cannot be seen.

    Attributes:
        waiting: Paths of those that are to become files.
        set_aside: Paths of those that nothing could be made of.
    """

    waiting: tuple[str, ...]
    set_aside: tuple[str, ...]

    @classmethod
    def listed(cls, store: Store) -> Self:
        """As the store has them.

        Raises:
            OSError: They cannot be listed.
        """
        paths = [file.path for file in store.files(_SEGMENTS)]
        return cls(
            waiting=tuple(path for path in paths if path.endswith(".segment")),
            set_aside=tuple(path for path in paths if path.endswith(".unreadable")),
        )

    def of(self, span: Span) -> LeftSegments:
        """Those that may hold rows of a span.

        Of those that wait all that began before its end: a window is called complete only where
        nothing older is left to do. Of those that were set aside, which stay, those of its time.
        """
        return LeftSegments(
            waiting=tuple(
                path for path in self.waiting if span.until is None or _begun(path) < span.until
            ),
            set_aside=tuple(path for path in self.set_aside if _may_hold(path, span)),
        )


def _may_hold(path: str, span: Span) -> bool:
    begun = _begun(path)
    return begun == _EVER or span.meets(begun, begun + _LONGEST)


def _begun(path: str) -> dt.datetime:
    """When a segment was begun, by its name; before everything, if that does not say."""
    found = segment_begun(path.rpartition("/")[2])
    return _EVER if found is None else dt.datetime.fromtimestamp(found / 1e9, dt.UTC)
