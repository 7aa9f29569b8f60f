"""Run a projection test in a process of its own, for `benchmarks.audits`.

    python -m benchmarks.audits_projection_run <rows>

Prints JSON: wall-clock and CPU seconds of the test, and the peak resident memory in GiB, with the
rows, and before the test.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.audits_projection import synthetic_boundary
from benchmarks.peak_memory import peak_gib

if __name__ == "__main__":
    # Imports and caches are not measured.
    synthetic_boundary(1_000).test()
    sample = synthetic_boundary(int(sys.argv[1]))
    before = peak_gib()
    started, cpu_started = time.perf_counter(), time.process_time()
    sample.test()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak_gib(), "before": before}))
