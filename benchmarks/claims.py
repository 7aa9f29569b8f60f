"""Claims: what a benchmark measured, the bar it had to meet, and whether it did."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

__all__ = [
    "Claim",
    "PairedRatio",
    "Say",
    "Scale",
    "add_scale_options",
    "paired_ratio",
    "print_claims",
    "print_wide",
    "report",
    "report_parts",
    "scale_of",
]

_WIDE = 150

# Called by a benchmark as it goes: what it is doing now.
Say = Callable[[str], None]

_Value = TypeVar("_Value")


class Scale(StrEnum):
    """How much a benchmark measures."""

    FULL = "full"
    # At most 60 s a script.
    QUICK = "quick"
    # Seconds a script: every code path, no claim judged.
    SMOKE = "smoke"

    @property
    def small(self) -> bool:
        """Whether less than everything is measured."""
        return self is not Scale.FULL

    def pick(self, *, full: _Value, quick: _Value, smoke: _Value) -> _Value:
        """The value of this scale."""
        return {Scale.FULL: full, Scale.QUICK: quick, Scale.SMOKE: smoke}[self]


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
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> PairedRatio:
    """Time both in every round, alternating which runs first, after one round unmeasured."""
    ours(), peer()
    ratios = []
    for number in range(rounds):
        first, second = (ours, peer) if number % 2 == 0 else (peer, ours)
        times = {action: _seconds(action, clock) for action in (first, second)}
        ratios.append(times[ours] / times[peer])
    return PairedRatio(ratios=tuple(ratios))


def report(title: str, measure: Callable[[Scale, Say], list[Claim]]) -> None:
    """Run a benchmark as a script: parse its options, measure, print its table, write its JSON."""
    report_parts(title, {"all": measure})


def report_parts(title: str, parts: Mapping[str, Callable[[Scale, Say], list[Claim]]]) -> None:
    """The same for a benchmark of several parts; `--only` runs one of them."""
    parser = argparse.ArgumentParser(description=title)
    add_scale_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the claims to FILE")
    if len(parts) > 1:
        parser.add_argument("--only", choices=parts, help="run this part alone")
    options = parser.parse_args()
    scale, only = scale_of(options), getattr(options, "only", None)
    chosen = list(parts.values()) if only is None else [parts[only]]
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns()[:1], console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        say = partial(_say, progress, task)
        claims = [claim for measure in chosen for claim in measure(scale, say)]
    machine = f"{os.cpu_count()} cores, torch {version('torch')}"
    print_claims(f"{title} ({scale} sizes, {machine})", claims, judged=scale is not Scale.SMOKE)
    if options.json:
        found = [claim.to_dict() | {"scale": scale} for claim in claims]
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def add_scale_options(parser: argparse.ArgumentParser) -> None:
    """Add `--quick` and `--smoke`, of which one at most may be given."""
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument("--quick", action="store_true", help="smaller sizes, within 60 s")
    scales.add_argument(
        "--smoke", action="store_true", help="tiny sizes, within seconds; no claim is judged"
    )


def scale_of(options: argparse.Namespace) -> Scale:
    """The scale that the options of `add_scale_options` name."""
    if options.smoke:
        return Scale.SMOKE
    return Scale.QUICK if options.quick else Scale.FULL


def _say(progress: Progress, task: TaskID, text: str) -> None:
    progress.update(task, description=text)


def print_claims(title: str, claims: list[Claim], *, judged: bool = True) -> None:
    """Print the claims as a table; unless they are judged, without saying which of them hold."""
    table = Table("claim", "measured", "bar", "holds", title=title, show_lines=True)
    for claim in claims:
        details = {"rounds": claim.rounds, **claim.details}
        listed = ", ".join(f"{key} {_shown(value)}" for key, value in details.items())
        table.add_row(
            f"{claim.claim}\n[dim]{listed}[/dim]",
            f"{claim.figure:.3g} {claim.unit}",
            f"{claim.side} {claim.bar:g}",
            ("yes" if claim.holds else "NO") if judged else "not judged (smoke)",
        )
    Console().print(table)


def print_wide(table: Table) -> None:
    """A table of many columns, legible also in a file."""
    Console(width=max(Console().width, _WIDE)).print(table)


def _seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    action()
    return clock() - started


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
