"""How often the tests of the audits are wrong: size, power, coverage, refusals, by simulation.

`python -m benchmarks.calibration [--quick]`. Full: 10⁴ simulations a design. Each kind of test has
its designs in a module of its own; add a module's `designs` to `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from benchmarks.calibration_rows import Calibrated, calibration_table, claims_of
from benchmarks.claims import Claim, Say, Scale, print_wide, report
from tests.calibration.designs import Design
from tests.calibration.permutation_designs import designs as permutation_designs
from tests.calibration.projection_designs import designs as projection_designs

KINDS: dict[str, Callable[[], list[Design]]] = {
    "permutation": permutation_designs,
    "projection": projection_designs,
}

_FULL, _QUICK, _SMOKE = 10_000, 100, 4
_SEED = 20_000


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Simulate every design and count."""
    simulations = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    claims = []
    for kind, designs in KINDS.items():
        rows = []
        for number, design in enumerate(designs()):
            say(f"{kind}: {design.name}")
            seed = _SEED + 1_000 * number
            planted = {
                effect: simulate(simulations, seed + 1 + place)
                for place, (effect, simulate) in enumerate(design.planted.items())
            }
            fair = design.fair(simulations, seed)
            rows.append(Calibrated(design=design, fair=fair, planted=planted))
            # At once, since the full run takes long.
            if not scale.small:
                print_wide(calibration_table(f"{kind}, design {number + 1}", rows[-1:]))
        print_wide(calibration_table(f"{kind}: {simulations:,} simulations a design", rows))
        claims += claims_of(kind, rows, few=scale.small)
    if scale.small:
        told = f"{simulations} simulations tell little: bars are wider by four standard errors"
        Console().print(f"[dim]{told}[/dim]")
    return claims


if __name__ == "__main__":
    report("Calibration of the audits' tests", measure)
