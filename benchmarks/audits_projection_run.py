"""One projection test in a process of its own, for `benchmarks.audits`: how long, in what memory.

    python -m benchmarks.audits_projection_run <rows>

Prints JSON: seconds of the test by the clock and of the processor, and the peak of the resident
memory in GiB, rows included, with what it was before the test.
"""

from __future__ import annotations

import json
import sys
import time

from benchmarks.audits_projection import made_up_boundary
from benchmarks.peak_memory import peak_gib

if __name__ == "__main__":
    # What is imported or made once a process is not measured.
    made_up_boundary(1_000).test()
    sample = made_up_boundary(int(sys.argv[1]))
    before = peak_gib()
    started, processor = time.perf_counter(), time.process_time()
    sample.test()
    seconds, used = time.perf_counter() - started, time.process_time() - processor
    found = {"seconds": seconds, "processor": used, "peak": peak_gib(), "before": before}
    print(json.dumps(found))
