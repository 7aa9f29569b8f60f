"""Numbers, times and lists as a person reads them."""

from __future__ import annotations

import datetime as dt
import textwrap
from collections.abc import Sequence

__all__ = ["are", "count", "duration", "moment", "percent", "size", "some", "wrapped"]

_WIDTH = 100


def count(n: int, noun: str, plural: str | None = None) -> str:
    """A number of things: `1 row`, `2,000 rows`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def are(n: int) -> str:
    """The verb after a number of things."""
    return "is" if n == 1 else "are"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first of some names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def percent(share: float | None) -> str:
    """A share as people write it."""
    return "–" if share is None else f"{100 * share:.1f}%"


def size(n: int) -> str:
    """Bytes in a unit that fits."""
    found = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if found < 1000:
            return f"{found:.0f} {unit}" if unit == "bytes" else f"{found:.1f} {unit}"
        found /= 1000
    return f"{found:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds in a unit that fits."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def moment(time: dt.datetime) -> str:
    """A time in UTC."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def wrapped(line: str, first: str = "", rest: str = "  ") -> str:
    """A line broken where a terminal ends, with what stands before it and before what follows."""
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
