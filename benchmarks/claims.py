"""Claims: a figure that a benchmark measured, its bar, and whether it meets the bar."""

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

# Called by a benchmark with a description of its current step.
Say = Callable[[str], None]

_Value = TypeVar("_Value")


class Scale(StrEnum):
    """Size of a benchmark run."""

    FULL = "full"
    # At most 60 s per script.
    QUICK = "quick"
    # A few seconds per script: every code path, no claim evaluated.
    SMOKE = "smoke"

    @property
    def small(self) -> bool:
        """Whether the run is smaller than a full one."""
        return self is not Scale.FULL

    def pick(self, *, full: _Value, quick: _Value, smoke: _Value) -> _Value:
        """Choose the value for this scale."""
        return {Scale.FULL: full, Scale.QUICK: quick, Scale.SMOKE: smoke}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A measured figure and its bar.

    Attributes:
        claim: Description of what is claimed.
        figure: Measured value.
        unit: Unit of the figure, such as "s", "GiB" or "× torch.export.load".
        side: Whether the bar is an upper or a lower bound.
        bar: Bound that the figure must meet.
        rounds: Number of repetitions.
        details: Spread, peers, sizes; `extrapolated` if the figure was not measured in full.
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
        """Whether the figure meets the bar; NaN never does."""
        return self.figure <= self.bar if self.side == "at most" else self.figure >= self.bar

    def to_dict(self) -> dict[str, Any]:
        """Fields of the JSON file."""
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
    """Our time divided by the peer's, one ratio per round."""

    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median ratio."""
        return statistics.median(self.ratios)

    @property
    def details(self) -> dict[str, Any]:
        """Lowest and highest ratio, for the details of a claim."""
        return {"lowest": min(self.ratios), "highest": max(self.ratios)}


def paired_ratio(
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> PairedRatio:
    """Time both in every round, in alternating order, after one unmeasured round."""
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
    """Run a benchmark with several parts as a script; `--only` runs one part."""
    parser = argparse.ArgumentParser(description=title)
    add_scale_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the claims to FILE")
    if len(parts) > 1:
        parser.add_argument("--only", choices=parts, help="run only this part")
    options = parser.parse_args()
    scale, only = scale_of(options), getattr(options, "only", None)
    selected = list(parts.values()) if only is None else [parts[only]]
    console = Console(stderr=True)
    with Progress(*Progress.get_default_columns()[:1], console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        say = partial(_say, progress, task)
        claims = [claim for measure in selected for claim in measure(scale, say)]
    machine = f"{os.cpu_count()} cores, torch {version('torch')}"
    print_claims(f"{title} ({scale} sizes, {machine})", claims, evaluated=scale is not Scale.SMOKE)
    if options.json:
        rows = [claim.to_dict() | {"scale": scale} for claim in claims]
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def add_scale_options(parser: argparse.ArgumentParser) -> None:
    """Add the mutually exclusive options `--quick` and `--smoke`."""
    scales = parser.add_mutually_exclusive_group()
    scales.add_argument("--quick", action="store_true", help="smaller sizes, within 60 s")
    scales.add_argument(
        "--smoke", action="store_true", help="tiny sizes, within seconds; no claim is evaluated"
    )


def scale_of(options: argparse.Namespace) -> Scale:
    """Scale selected by the options of `add_scale_options`."""
    if options.smoke:
        return Scale.SMOKE
    return Scale.QUICK if options.quick else Scale.FULL


def _say(progress: Progress, task: TaskID, text: str) -> None:
    progress.update(task, description=text)


def print_claims(title: str, claims: list[Claim], *, evaluated: bool = True) -> None:
    """Print the claims as a table; unless evaluated, without whether they hold."""
    table = Table("claim", "measured", "bar", "holds", title=title, show_lines=True)
    for claim in claims:
        details = {"rounds": claim.rounds, **claim.details}
        text = ", ".join(f"{key} {_format(value)}" for key, value in details.items())
        table.add_row(
            f"{claim.claim}\n[dim]{text}[/dim]",
            f"{claim.figure:.3g} {claim.unit}",
            f"{claim.side} {claim.bar:g}",
            ("yes" if claim.holds else "NO") if evaluated else "not evaluated (smoke)",
        )
    Console().print(table)


def print_wide(table: Table) -> None:
    """Print a table with many columns, legible in a file as well."""
    Console(width=max(Console().width, _WIDE)).print(table)


def _seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    started = clock()
    action()
    return clock() - started


def _format(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
