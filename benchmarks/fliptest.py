"""Accuracy of FlipTest: against true counterfactuals, over 100 classifiers, on Lipton's data.

`--only maps`, `--only seeds` or `--only lipton` runs one part.
"""

from __future__ import annotations

from benchmarks.claims import report_parts
from benchmarks.fliptest_lipton import measure_lipton
from benchmarks.fliptest_maps import measure_maps
from benchmarks.fliptest_seeds import measure_seeds

_PARTS = {"maps": measure_maps, "seeds": measure_seeds, "lipton": measure_lipton}

if __name__ == "__main__":
    report_parts("FlipTest", _PARTS)
