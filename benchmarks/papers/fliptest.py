"""FlipTest on the paper's own evaluation: sections 3.2, 5.1, 5.3 and 5.5.

With the paper's GAN and with every map of this library. The data of sections 5.2 (Chicago's list)
and 5.4 (law schools) were not available.

`python -m benchmarks.papers.fliptest [--only PART] [--out DIR] [--quick] [--json FILE]`
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.claims import Claim, Say, Scale, report_parts
from benchmarks.papers.fliptest_arrests import measure_arrests
from benchmarks.papers.fliptest_control import measure_control
from benchmarks.papers.fliptest_hiring import measure_hiring
from benchmarks.papers.fliptest_stability import measure_stability
from benchmarks.papers.options import OUT, out_folder

__all__ = ["measure"]


def measure(
    scale: Scale,
    say: Say,
    out: Path = OUT,
) -> list[Claim]:
    """Measure all parts."""
    return [
        *measure_stability(scale, say, out),
        *measure_control(scale, say),
        *measure_hiring(scale, say),
        *measure_arrests(scale, say),
    ]


if __name__ == "__main__":
    report_parts(
        "FlipTest as in its paper",
        {
            "stability": partial(measure_stability, out=out_folder()),
            "control": measure_control,
            "hiring": measure_hiring,
            "arrests": measure_arrests,
        },
    )
