"""Size, power and coverage of the audits' tests by simulation, and how often there is no p-value.

`python -m benchmarks.calibration [--quick]`. A full run has 10⁴ simulations per design. The designs
of each kind of test are a module of `tests/calibration`; add its `designs` to `KINDS`. The power at
the smallest detectable effects is simulated for the designs of `power_designs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from benchmarks.calibration_rows import Calibrated, calibration_table, claims_of
from benchmarks.claims import Claim, Say, Scale, print_wide, report
from tests.calibration.designs import Design
from tests.calibration.permutation_designs import designs as permutation_designs
from tests.calibration.power_designs import DETECTED, WITHIN
from tests.calibration.power_designs import designs as power_designs
from tests.calibration.projection_designs import designs as projection_designs
from tests.calibration.unknown_designs import designs as unknown_designs

KINDS: dict[str, Callable[[], list[Design]]] = {
    "permutation": permutation_designs,
    "projection": projection_designs,
    "unknown labels and groups": unknown_designs,
}

_FULL, _QUICK, _SMOKE = 10_000, 100, 4
# Simulations of the power at a smallest detectable effect, whose standard error is then .9 points.
_FULL_POWER = 2_000
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
    claims += _power_claims(scale, say)
    if scale.small:
        note = f"only {simulations} simulations: bars are wider by four standard errors"
        Console().print(f"[dim]{note}[/dim]")
    return claims


def _power_claims(scale: Scale, say: Say) -> list[Claim]:
    """Simulate the power at the smallest detectable effects of each design, in both directions."""
    simulations = scale.pick(full=_FULL_POWER, quick=_QUICK, smoke=_SMOKE)
    error = math.sqrt(DETECTED * (1 - DETECTED) / simulations)
    table = Table(
        "design", "effects", "power", title=f"up to {simulations:,} simulations per direction"
    )
    distances, least = [], []
    for design in power_designs():
        say(f"power: {design.name}")
        stated = design.stated(_SEED)
        powers = [
            None
            if effect is None
            else design.power(effect, min(simulations, design.most), _SEED + 1 + index)
            for index, effect in enumerate(stated)
        ]
        known = [power for power in powers if power is not None]
        if design.claim == "within":
            distances += [(abs(power - DETECTED), design.name) for power in known]
        elif design.claim == "at least":
            least += [(power, design.name) for power in known]
        table.add_row(
            design.name,
            " / ".join("none" if effect is None else f"{effect:+.4f}" for effect in stated),
            " / ".join("–" if power is None else f"{power:.3f}" for power in powers),
        )
    print_wide(table)
    slack = 4 * error if scale.small else 0.0
    return [
        Claim(
            claim=f"power at the smallest detectable effect, largest distance from {DETECTED:.0%}",
            figure=max(distances)[0],
            unit="of samples",
            side="at most",
            bar=WITHIN + slack,
            rounds=simulations,
            details={"worst": max(distances)[1], "designs": len(distances)},
        ),
        Claim(
            claim="power at the smallest detectable effect of FlipTest",
            figure=min(least)[0],
            unit="of samples",
            side="at least",
            bar=DETECTED - WITHIN - slack,
            rounds=simulations,
            details={"worst": min(least)[1], "designs": len(least)},
        ),
    ]


if __name__ == "__main__":
    report("Calibration of the audits' tests", measure)
