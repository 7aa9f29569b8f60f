"""Names for requests that nothing else in the log is called by."""

from __future__ import annotations

import secrets
from collections import deque

__all__ = ["RequestIds"]

# Longer ones would not fit beside a metric, and are no names.
LONGEST = 100
_REMEMBERED = 100_000


class RequestIds:
    """Takes a client's id where it can serve as a name, and makes one where it cannot.

    An id is refused as a name if it is empty, long, holds control characters or quotes, looks like
    one of our own, or was used among the last requests; what was used is remembered by its hash, so
    memory is bounded.
    """

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._run, self._count = secrets.token_hex(8), 0
        self._used: set[int] = set()
        self._order: deque[int] = deque()
        self._remembered = remembered

    def name(self, given: str) -> str:
        """The given id, or a generated one."""
        if self._can_serve(given):
            key = hash(given)
            if key not in self._used:
                self._remember(key)
                return given
        self._count += 1
        return f"{self._run}-{self._count}"

    def _can_serve(self, given: str) -> bool:
        return (
            0 < len(given) <= LONGEST
            and given.isprintable()
            # Quotes break the lines in which metrics name requests; our own names are ours.
            and not set(given) & {'"', "\\"}
            and not given.startswith(self._run)
        )

    def _remember(self, key: int) -> None:
        self._used.add(key)
        self._order.append(key)
        if len(self._order) > self._remembered:
            self._used.remove(self._order.popleft())
