"""Cost of the traffic log: in serving, in compaction to Parquet, and in counting a window.

`--only serving`, `--only compaction` or `--only counting` runs one part. The log that is counted is
made once and cached in `.cache/traffic`.
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
