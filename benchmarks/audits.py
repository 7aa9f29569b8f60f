"""What the audits cost in time and memory, beside what else computes the same.

`--only permutation`, `--only projection` or `--only fliptest` leaves the others out.
"""

from __future__ import annotations

from benchmarks.audits_fliptest import measure_fliptest
from benchmarks.audits_permutation import measure_permutation
from benchmarks.audits_projection import measure_projection
from benchmarks.claims import report_parts

_PARTS = {
    "permutation": measure_permutation,
    "projection": measure_projection,
    "fliptest": measure_fliptest,
}

if __name__ == "__main__":
    report_parts("Audits", _PARTS)
