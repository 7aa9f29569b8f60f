"""How long `evenhand --help` keeps a person waiting."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.claims import Claim, Say, Scale, report


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Median time of the help, beside the bare interpreter."""
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
        )
    ]


if __name__ == "__main__":
    report("Start-up of the command line", measure)
