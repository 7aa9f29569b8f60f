"""What the traffic log costs: while serving, as it becomes Parquet, and when a window is counted.

`--only serving`, `--only compaction` or `--only counting` leaves the others out. The log that is
counted is made once, and kept under `.cache/traffic`.
"""

from __future__ import annotations

from benchmarks.claims import report_parts
from benchmarks.traffic_compaction import measure_compaction
from benchmarks.traffic_counting import measure_counting
from benchmarks.traffic_serving import measure_serving

_PARTS = {
    "serving": measure_serving,
    "compaction": measure_compaction,
    "counting": measure_counting,
}

if __name__ == "__main__":
    report_parts("Traffic log", _PARTS)
