"""Size, power and coverage of the audits' tests by simulation, and how often there is no p-value.

`python -m benchmarks.calibration [--quick]`. A full run has 10⁴ simulations per design. The designs
of each kind of test are a module of `tests/calibration`; add its `designs` to `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from benchmarks.calibration_rows import Calibrated, calibration_table, claims_of
from benchmarks.claims import Claim, Say, Scale, print_wide, report
from tests.calibration.designs import Design
from tests.calibration.permutation_designs import designs as permutation_designs
from tests.calibration.projection_designs import designs as projection_designs
from tests.calibration.unknown_designs import designs as unknown_designs

KINDS: dict[str, Callable[[], list[Design]]] = {
    "permutation": permutation_designs,
    "projection": projection_designs,
    "unknown labels and groups": unknown_designs,
}

_FULL, _QUICK, _SMOKE = 10_000, 100, 4
_SEED = 20_000


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Simulate every design and count rejections."""
    simulations = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    claims = []
    for kind, designs in KINDS.items():
        rows = []
        for number, design in enumerate(designs()):
            say(f"{kind}: {design.name}")
            seed = _SEED + 1_000 * number
            planted = {
                effect: simulate(simulations, seed + 1 + index)
                for index, (effect, simulate) in enumerate(design.planted.items())
            }
            fair = design.fair(simulations, seed)
            rows.append(Calibrated(design=design, fair=fair, planted=planted))
            # Print every row at once, since a full run takes long.
            if not scale.small:
                print_wide(calibration_table(f"{kind}, design {number + 1}", rows[-1:]))
        print_wide(calibration_table(f"{kind}: {simulations:,} simulations per design", rows))
        claims += claims_of(kind, rows, few=scale.small)
    if scale.small:
        note = f"only {simulations} simulations: bars are wider by four standard errors"
        Console().print(f"[dim]{note}[/dim]")
    return claims


if __name__ == "__main__":
    report("Calibration of the audits' tests", measure)
