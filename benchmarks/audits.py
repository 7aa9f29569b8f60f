"""Time and memory of the audits, compared with other implementations.

`--only permutation`, `--only projection` or `--only fliptest` runs one part.
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
