"""Rendering of results: numbers as text, tables for terminals and notebooks, JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "TextTable",
    "are",
    "bounds",
    "compared",
    "count",
    "detectable",
    "duration",
    "format_p_value",
    "json_ready",
    "moment",
    "p_equals",
    "percent",
    "rate",
    "share_in_words",
    "signed",
    "size",
    "some",
    "to_html",
    "to_text",
    "uncorrected",
    "wrapped",
]

_NOTHING = "–"
# Columns of a terminal that text is wrapped to.
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of text.

    Attributes:
        header: Names of the columns.
        rows: Rows, as long as the header.
        words: Number of columns, from the left, that are aligned to the left; others to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [self._line(cells, widths) for cells in lines]
        return "\n".join([text[0], "  ".join("─" * width for width in widths), *text[1:]])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        aligned = (
            cell.ljust(width) if index < self.words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    def to_html(self) -> str:
        """The table as HTML, with all text escaped."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self, row: Sequence[str]) -> str:
        sides = ("left" if index < self.words else "right" for index in range(len(row)))
        return "".join(
            f'<td style="text-align:{side}">{html.escape(cell)}</td>'
            for side, cell in zip(sides, row, strict=True)
        )


def to_text(title: str, table: TextTable | None, notes: Sequence[str] = ()) -> str:
    """A title, a table and notes as text for a terminal."""
    parts = [wrapped(title), *([str(table)] if table else []), *(wrapped(note) for note in notes)]
    return "\n".join(parts)


def to_html(title: str, table: TextTable | None, notes: Sequence[str] = ()) -> str:
    """A title, a table and notes as HTML for a notebook."""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    below = f"<ul>{items}</ul>" if notes else ""
    body = table.to_html() if table else ""
    return f"<div><p><strong>{html.escape(title)}</strong></p>{body}{below}</div>"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun: `1 row`, `2,000 rows`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def are(n: int) -> str:
    """The verb after a count: `is` or `are`."""
    return "is" if n == 1 else "are"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first names of a list, and the number of the others."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def percent(share: float | None) -> str:
    """A share in percent; a dash for None."""
    return "–" if share is None else f"{100 * share:.1f}%"


def size(n: int) -> str:
    """A number of bytes in a suitable unit."""
    amount = float(n)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def duration(seconds: float) -> str:
    """A number of seconds in a suitable unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def moment(time: dt.datetime) -> str:
    """A time in UTC."""
    return f"{time.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def wrapped(line: str, first: str = "", rest: str = "  ") -> str:
    """A line wrapped to the width of a terminal.

    Args:
        line: Text of the line.
        first: Prefix of the first line.
        rest: Prefix of the following lines.
    """
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def rate(value: float | None) -> str:
    """A rate or a score with three decimals; a dash for None."""
    return _NOTHING if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """A difference with its sign; a dash for None."""
    return _NOTHING if value is None else f"{value:+.3f}"


def detectable(
    effects: tuple[float | None, float | None], form: Callable[[float], str] | None = None
) -> str:
    """The smallest detectable effects downwards and upwards, in words.

    Args:
        effects: The effects; None where there is none.
        form: How an effect is written; by default with a sign and three decimals.
    """
    down, up = (None if e is None else (form or signed)(e) for e in effects)
    if down is None and up is None:
        return "none in either direction"
    if down is None:
        return f"{up}, none downwards"
    return f"{down}, none upwards" if up is None else f"{down} or {up}"


def bounds(interval: tuple[float, float] | None) -> str:
    """An interval of a difference; a dash for None."""
    return _NOTHING if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def share_in_words(share: float, interval: tuple[float, float]) -> str:
    """A share with its 95% interval: `2.0% (95% interval 1.7% to 2.4%)`."""
    return f"{percent(share)} (95% interval {percent(interval[0])} to {percent(interval[1])})"


def compared(
    values: tuple[float, float],
    interval: tuple[float, float] | None,
    *,
    unit: str | None = "rate",
    confidence_level: float = 0.95,
) -> str:
    """Two values and their difference in words, for example `41.3% against 68.1%, …`.

    Args:
        values: Values of the first and of the second group.
        interval: Interval of the first value minus the second.
        unit: `rate` for shares; other values are written as they are.
        confidence_level: Confidence level of the interval.
    """
    points = unit == "rate"
    one, other = (percent(v) if points else rate(v) for v in values)
    scale, number = (100, "{:+.1f}") if points else (1, "{:+.3f}")
    difference = number.format(scale * (values[0] - values[1]))
    text = f"{one} against {other}, a difference of {difference}"
    text += " percentage points" if points else ""
    if interval is None:
        return text
    low, high = (number.format(scale * end) for end in interval)
    return f"{text} ({100 * confidence_level:g}% interval {low} to {high})"


def format_p_value(p_value: float | None) -> str:
    """A p-value without the leading zero, `< .0001` if it is smaller; a dash for None."""
    if p_value is None:
        return _NOTHING
    if p_value < 0.0001:
        return "< .0001"
    digits = 4 if p_value < 0.01 else 3
    return f"{p_value:.{digits}f}".removeprefix("0")


def p_equals(p_value: float) -> str:
    """A p-value with its relation, to follow the letter p: `= .012` or `< .0001`."""
    text = format_p_value(p_value)
    return text if text.startswith("<") else f"= {text}"


def uncorrected(tests: int) -> str | None:
    """Note that the p-values of several tests are raw, and what to do; None for a single test."""
    if tests < 2:
        return None
    return (
        f"p-values are not corrected for the number of tests ({tests}): correct them together, for "
        "example by scipy.stats.false_discovery_control, before you report a difference"
    )


def json_ready(value: Any) -> Any:
    """A value in JSON form: lists, numbers, times as text, None for NaN and infinity."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {field.name: json_ready(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return json_ready(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
