"""What the audits cost in time and memory, beside what else computes the same.

`--only permutation` or `--only projection` leaves the others out.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from benchmarks.audits_permutation import measure_permutation
from benchmarks.audits_projection import measure_projection
from benchmarks.claims import Claim, Say, report

_PARTS = {"permutation": measure_permutation, "projection": measure_projection}


def measure(quick: bool, say: Say, only: str | None = None) -> list[Claim]:  # noqa: FBT001 - the signature of a benchmark
    """All parts, or one."""
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
    report("Audits", partial(measure, only=_only()))
