"""Time and memory that the world needs for people and their counterfactuals."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from benchmarks.claims import Claim, Say, Scale, report
from tests.oracle import lending

# Runs in a process of its own, so that its peak memory can be measured.
_DRAW = """
import json, resource, sys, time
from monitor import World
n, counterfactuals = int(sys.argv[1]), sys.argv[2] == "counterfactuals"
started = time.perf_counter()
people = World().people(n, seed=1)
for attribute in people.groups if counterfactuals else ():
    for _, features in people.counterfactuals(attribute):
        pass
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": seconds, "peak": peak}))
"""
_SLOW_PEOPLE, _SMOKE_PEOPLE = 300, 20


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time and memory of a million people with all six counterfactuals, and of ten million."""
    rounds = scale.pick(full=7, quick=3, smoke=1)
    few = scale.pick(full=_SLOW_PEOPLE, quick=_SLOW_PEOPLE, smoke=_SMOKE_PEOPLE)
    many = scale.pick(full=1_000_000, quick=1_000_000, smoke=2_000)
    say("a million people with their counterfactuals")
    million = [_draw(many, "counterfactuals") for _ in range(rounds)]
    say("ten million people")
    ten_million = [_draw(10 * many, "alone") for _ in range(scale.pick(full=3, quick=1, smoke=1))]
    ratios = []
    for number in range(rounds):
        say(f"one person at a time, round {number + 1} of {rounds}")
        slow = _seconds_per_person(few) * many
        ratios.append(slow / _draw(many, "counterfactuals")["seconds"])
    seconds = [run["seconds"] for run in million]
    return [
        Claim(
            claim="10⁶ people with all counterfactuals by sex and ethnicity",
            figure=statistics.median(seconds),
            unit="s",
            side="at most",
            bar=5,
            rounds=rounds,
            details={"slowest": max(seconds)},
        ),
        Claim(
            claim="peak memory of 10⁶ people with all counterfactuals",
            figure=max(run["peak"] for run in million),
            unit="GiB",
            side="at most",
            bar=2,
            rounds=rounds,
        ),
        Claim(
            claim="10⁷ people",
            figure=statistics.median(run["seconds"] for run in ten_million),
            unit="s",
            side="at most",
            bar=30,
            rounds=len(ten_million),
            details={"peak GiB": max(run["peak"] for run in ten_million)},
        ),
        Claim(
            claim="10⁶ people with all counterfactuals, speed relative to one person at a time",
            figure=statistics.median(ratios),
            unit="× faster",
            side="at least",
            bar=20,
            rounds=rounds,
            details={
                "lowest": min(ratios),
                "highest": max(ratios),
                "extrapolated": f"one person at a time, from {few} people",
            },
        ),
    ]


def _draw(n: int, how: str) -> dict[str, float]:
    command = [sys.executable, "-c", _DRAW, str(n), how]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _seconds_per_person(n: int) -> float:
    """Time of the slow implementation: everyone's own features, and those in each of six groups."""
    started = time.perf_counter()
    for group in (None, *lending.ALL_GROUPS):
        lending.features(people=n, seed=1, group=group)
    return (time.perf_counter() - started) / n


if __name__ == "__main__":
    report("The lending world", measure)
