"""What the traffic log costs: while serving, as it becomes Parquet, and when a window is counted.

`--only serving`, `--only compaction` or `--only counting` leaves the others out. The log that is
counted is made once, and kept under `.cache/traffic`.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks.claims import Claim, Say, report
from benchmarks.traffic_compaction import measure_compaction
from benchmarks.traffic_counting import measure_counting
from benchmarks.traffic_serving import measure_serving

_PARTS = {
    "serving": measure_serving,
    "compaction": measure_compaction,
    "counting": measure_counting,
}


def measure(quick: bool, say: Say, only: str | None = None) -> list[Claim]:  # noqa: FBT001 - the signature of a benchmark
    """All three parts, or one."""
    chosen = _PARTS if only is None else {only: _PARTS[only]}
    return [claim for part in chosen.values() for claim in part(quick, say)]


def _only() -> str | None:
    """Which part; the option is taken away from those that every benchmark has."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", choices=_PARTS)
    options, sys.argv[1:] = parser.parse_known_args()
    found: str | None = options.only
    return found


if __name__ == "__main__":
    report("Traffic log", partial(measure, only=_only()))
