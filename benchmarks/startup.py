"""Start-up time of `evenhand --help`, and time to import the two packages."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.claims import Claim, Say, Scale, report

_PACKAGES = ("monitor", "offline_audit")
_TIMED_IMPORT = """
import time
started = time.perf_counter()
import {package}
print(time.perf_counter() - started)
"""


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Median time of the help, compared with the bare interpreter, and of both imports."""
    rounds = scale.pick(full=21, quick=7, smoke=1)
    commands = {
        "help": [sys.executable, "-m", "monitor", "--help"],
        "python": [sys.executable, "-c", "pass"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        say(f"round {number} of {rounds}")
        for name, command in commands.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            # The first round fills the caches of the file system.
            if number > 0:
                times[name].append(time.perf_counter() - started)
        for package in _PACKAGES:
            seconds = _import_seconds(package)
            if number > 0:
                times.setdefault(package, []).append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        Claim(
            claim="`evenhand --help`, start to exit",
            figure=medians["help"],
            unit="s",
            side="at most",
            bar=0.5,
            rounds=rounds,
            details={"slowest": max(times["help"]), "bare python": medians["python"]},
        ),
        *(_import_claim(package, times[package]) for package in _PACKAGES),
    ]


def _import_seconds(package: str) -> float:
    command = [sys.executable, "-c", _TIMED_IMPORT.format(package=package)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _import_claim(package: str, times: list[float]) -> Claim:
    return Claim(
        claim=f"`import {package}`",
        figure=statistics.median(times),
        unit="s",
        side="at most",
        bar=0.1,
        rounds=len(times),
        details={"slowest": max(times)},
    )


if __name__ == "__main__":
    report("Start-up of the command line", measure)
