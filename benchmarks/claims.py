"""Claims: what a benchmark measured, the bar it had to meet, and whether it did."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

__all__ = [
    "Claim",
    "PairedRatio",
    "paired_ratio",
    "print_claims",
    "print_wide",
    "report",
    "report_parts",
]

_WIDE = 150

# Called by a benchmark as it goes: what it is doing now.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One measured figure beside its bar.

    Attributes:
        claim: What is claimed, in words.
        figure: What was measured.
        unit: Of what: "s", "GiB", "× torch.export.load".
        side: Whether the figure must stay at or below the bar, or reach it.
        bar: The bar.
        rounds: How many repetitions the figure rests on.
        details: Spread, peers, sizes; `extrapolated` where a figure was not measured in full.
    """

    claim: str
    figure: float
    unit: str
    side: Literal["at most", "at least"]
    bar: float
    rounds: int
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the figure meets the bar; a figure that is not a number never does."""
        return self.figure <= self.bar if self.side == "at most" else self.figure >= self.bar

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the JSON file."""
        return {
            "claim": self.claim,
            "figure": self.figure,
            "unit": self.unit,
            "bar": f"{self.side} {self.bar:g}",
            "holds": self.holds,
            "rounds": self.rounds,
            "details": self.details,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatio:
    """Time of ours over time of the peer's, one ratio a round."""

    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle ratio."""
        return statistics.median(self.ratios)

    @property
    def details(self) -> dict[str, Any]:
        """The spread, for a claim's details."""
        return {"lowest": min(self.ratios), "highest": max(self.ratios)}


def paired_ratio(
    ours: Callable[[], object], peer: Callable[[], object], *, rounds: int
) -> PairedRatio:
    """Time both in every round, in turns about who goes first, after one round unmeasured."""
    ours(), peer()
    ratios = []
    for number in range(rounds):
        first, second = (ours, peer) if number % 2 == 0 else (peer, ours)
        times = {first: _seconds(first), second: _seconds(second)}
        ratios.append(times[ours] / times[peer])
    return PairedRatio(ratios=tuple(ratios))


def report(title: str, measure: Callable[[bool, Say], list[Claim]]) -> None:
    """Run a benchmark as a script: parse its options, measure, print its table, write its JSON."""
    report_parts(title, {"all": measure})


def report_parts(title: str, parts: Mapping[str, Callable[[bool, Say], list[Claim]]]) -> None:
    """The same for a benchmark of several parts; `--only` runs one of them."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, within 60 s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the claims to FILE")
    if len(parts) > 1:
        parser.add_argument("--only", choices=parts, help="run this part alone")
    options = parser.parse_args()
    only = getattr(options, "only", None)
    chosen = list(parts.values()) if only is None else [parts[only]]
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns()[:1], console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        say = partial(_say, progress, task)
        claims = [claim for measure in chosen for claim in measure(options.quick, say)]
    size = "quick sizes" if options.quick else "full sizes"
    print_claims(f"{title} ({size}, {os.cpu_count()} cores, torch {version('torch')})", claims)
    if options.json:
        options.json.write_text(json.dumps([claim.to_dict() for claim in claims], indent=2) + "\n")


def _say(progress: Progress, task: TaskID, text: str) -> None:
    progress.update(task, description=text)


def print_claims(title: str, claims: list[Claim]) -> None:
    """The table for people."""
    table = Table("claim", "measured", "bar", "holds", title=title, show_lines=True)
    for claim in claims:
        details = {"rounds": claim.rounds, **claim.details}
        told = ", ".join(f"{key} {_shown(value)}" for key, value in details.items())
        table.add_row(
            f"{claim.claim}\n[dim]{told}[/dim]",
            f"{claim.figure:.3g} {claim.unit}",
            f"{claim.side} {claim.bar:g}",
            "yes" if claim.holds else "NO",
        )
    Console().print(table)


def print_wide(table: Table) -> None:
    """A table of many columns, legible also in a file."""
    Console(width=max(Console().width, _WIDE)).print(table)


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
