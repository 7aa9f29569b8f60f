"""Results as people and programs read them: tables in a terminal and a notebook, JSON, figures."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Estimate",
    "TextTable",
    "are",
    "blank_figure",
    "bounds",
    "count",
    "duration",
    "interval_figure",
    "json_ready",
    "moment",
    "p_words",
    "percent",
    "rate",
    "signed",
    "size",
    "some",
    "to_html",
    "to_text",
    "wrapped",
]

_NOTHING = "–"
# Columns of a terminal that text is wrapped to.
_WIDTH = 100
# Letters of a line beside a figure.
_NAME_WIDTH = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A small table of words.

    Attributes:
        header: Names of the columns.
        rows: Each as long as the header.
        words: How many columns from the left hold words, set to the left; numbers to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1

    def __str__(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        laid = [self._line(cells, widths) for cells in lines]
        return "\n".join([laid[0], "  ".join("─" * width for width in widths), *laid[1:]])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        placed = (
            cell.ljust(width) if place < self.words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(placed).rstrip()

    def to_html(self) -> str:
        """For a notebook; every word is escaped."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = "".join(f"<tr>{self._cells(row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self, row: Sequence[str]) -> str:
        sides = ("left" if place < self.words else "right" for place in range(len(row)))
        return "".join(
            f'<td style="text-align:{side}">{html.escape(cell)}</td>'
            for side, cell in zip(sides, row, strict=True)
        )


def to_text(title: str, table: TextTable | None, notes: Sequence[str] = ()) -> str:
    """A title, a table and sentences below it, for a terminal."""
    parts = [wrapped(title), *([str(table)] if table else []), *(wrapped(note) for note in notes)]
    return "\n".join(parts)


def to_html(title: str, table: TextTable | None, notes: Sequence[str] = ()) -> str:
    """The same for a notebook."""
    listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    below = f"<ul>{listed}</ul>" if notes else ""
    shown = table.to_html() if table else ""
    return f"<div><p><strong>{html.escape(title)}</strong></p>{shown}{below}</div>"


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


def rate(value: float | None) -> str:
    """A rate or a score, with three decimals."""
    return _NOTHING if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return _NOTHING if value is None else f"{value:+.3f}"


def bounds(interval: tuple[float, float] | None) -> str:
    """An interval of differences."""
    return _NOTHING if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def p_words(p_value: float | None) -> str:
    """A p-value as journals print it; very small ones by a bound."""
    if p_value is None:
        return _NOTHING
    if p_value < 0.0001:
        return "< .0001"
    digits = 4 if p_value < 0.01 else 3
    return f"{p_value:.{digits}f}".removeprefix("0")


def json_ready(value: Any) -> Any:
    """As JSON has it: lists, plain numbers, times as text, None for what is not finite."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure with its interval, as it is drawn.

    Attributes:
        name: Beside it.
        value: Where its point stands.
        interval: Ends of its line; None for a point alone.
        sure: False draws it in gray.
    """

    name: str
    value: float
    interval: tuple[float, float] | None
    sure: bool = True


def interval_figure(estimates: Sequence[Estimate], label: str, at: float = 0.0) -> Figure:
    """Estimates with their intervals, one below the other, and a line at what would be equal."""
    names = [textwrap.fill(each.name, _NAME_WIDTH) for each in estimates]
    lines = sum(1 + name.count("\n") for name in names)
    figure, axes = blank_figure(8.0, 1.2 + 0.4 * max(lines, 1))
    if not estimates:
        axes.text(0.5, 0.5, "nothing to show", ha="center", va="center")
        axes.set_axis_off()
        return figure
    for place, each in enumerate(estimates):
        colour = "tab:blue" if each.sure else "tab:gray"
        axes.plot(each.interval or (each.value,) * 2, [place, place], color=colour, linewidth=2)
        axes.plot([each.value], [place], "o", color=colour)
    axes.axvline(at, color="black", linewidth=0.8)
    axes.set_yticks(range(len(estimates)), names, fontsize=8)
    # The first at the top, with room above and below.
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.set_xlabel(label)
    return figure


def blank_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel that no global state of matplotlib knows of.

    Args:
        width: In inches.
        height: In inches.
    """
    # Here, since only those who plot should wait for it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()
