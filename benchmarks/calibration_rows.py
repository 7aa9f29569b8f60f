"""Rows of `benchmarks.calibration`: results of the designs, and claims about them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table

from benchmarks.claims import Claim
from tests.calibration.designs import ALPHA, Design, Tries

__all__ = [
    "ENOUGH",
    "LEAST_SIZE",
    "MOST_SIZE",
    "Calibrated",
    "calibration_table",
    "claims_of",
]

MOST_SIZE, LEAST_SIZE, ENOUGH = 0.06, 0.04, 20
_POWER_LOSS = 0.02
_COVERAGE, _WITHIN, _LEAST_COVERAGE = 0.95, 0.015, 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Results of one design."""

    design: Design
    fair: Tries
    planted: dict[str, Tries]

    def losses(self) -> list[tuple[float, str]]:
        """Power of the best rival with a size of at most 6%, minus ours, by effect and rival."""
        return [
            (loss, f"{self.design.name}, {effect}, against {rival}")
            for effect, tries in self.planted.items()
            for loss, rival in self._loss([tries])
        ]

    def mean_losses(self) -> list[tuple[float, str]]:
        """Loss of the mean power over both directions, where both were simulated.

        A test that trades power between the directions gains nothing here.
        """
        if len(self.planted) < 2:
            return []
        losses = self._loss(list(self.planted.values()))
        return [(loss, f"{self.design.name}, against {rival}") for loss, rival in losses]

    def _loss(self, tries: list[Tries]) -> list[tuple[float, str]]:
        ours = sum(one.rejected for one in tries) / len(tries)
        rivals = {
            name: sum(one.rivals[name] for one in tries) / len(tries)
            for name, size in self.fair.rivals.items()
            if size <= MOST_SIZE
        }
        best = max(rivals, key=lambda name: rivals[name], default=None)
        return [] if best is None else [(rivals[best] - ours, best)]


def calibration_table(title: str, rows: Iterable[Calibrated]) -> Table:
    """Table of all designs."""
    columns = (
        "design",
        "cell",
        "n",
        "no p-value",
        "size",
        "rivals' size",
        "power",
        "rivals' power",
    )
    table = Table(*columns, "coverage", title=title)
    for row in rows:
        rivals = [_rates(tries.rivals) for tries in row.planted.values()]
        powers = [f"{effect} {tries.rejected:.3f}" for effect, tries in row.planted.items()]
        table.add_row(
            row.design.name,
            f"{row.design.cell:.3g}",
            f"{row.fair.simulations:,}",
            f"{row.fair.refused:,}",
            f"{row.fair.rejected:.4f}",
            _rates(row.fair.rivals),
            "\n".join(powers),
            "\n".join(rivals),
            "–" if row.fair.covered is None else f"{row.fair.covered:.4f}",
        )
    return table


def claims_of(kind: str, rows: list[Calibrated], *, few: bool = False) -> list[Claim]:
    """Claims about the worst cases over all designs.

    Args:
        kind: Kind of the tests.
        rows: Results of the designs.
        few: Whether to widen bars by four standard errors, because simulations are few; claims
            that could not fail then are omitted.
    """
    sims = min(row.fair.simulations for row in rows)
    enough = [row for row in rows if row.design.cell >= ENOUGH]
    small = [row for row in rows if row.design.cell < ENOUGH]
    slack = 4 * math.sqrt(ALPHA * (1 - ALPHA) / sims) if few else 0.0
    # Powers are of the same samples; two tests differ on about 10% of them.
    power_slack = 4 * math.sqrt(0.1 / min(_planted(rows), default=sims)) if few else 0.0
    claims = []

    def claim(
        text: str, cases: list[tuple[float, str]], unit: str, *, at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:  # fmt: skip
        if not cases or (at_least is not None and at_least <= 0):
            return
        worst = max(cases) if at_most is not None else min(cases)
        bar = at_most if at_most is not None else at_least
        assert bar is not None
        claims.append(
            Claim(
                claim=f"{kind}: {text}",
                figure=worst[0],
                unit=unit,
                side="at most" if at_most is not None else "at least",
                bar=bar,
                rounds=sims,
                details={"worst": worst[1], "designs": len(cases)},
            )
        )

    sizes = [(row.fair.rejected, row.design.name) for row in rows]
    claim("size at 5%, largest", sizes, "of fair samples rejected", at_most=MOST_SIZE + slack)
    claim(
        f"size at 5%, smallest, cells of {ENOUGH} and more",
        [(row.fair.rejected, row.design.name) for row in enough],
        "of fair samples rejected",
        at_least=LEAST_SIZE - slack,
    )
    losses = [loss for row in rows for loss in row.losses()]
    claim(
        "power lost to the best valid rival",
        losses,
        "of samples",
        at_most=_POWER_LOSS + power_slack,
    )
    claim(
        "power lost to the best valid rival, mean of both directions",
        [loss for row in rows for loss in row.mean_losses()],
        "of samples",
        at_most=_POWER_LOSS + power_slack,
    )
    claim(
        f"coverage, distance from {_COVERAGE}, cells of {ENOUGH} and more",
        [
            (abs(row.fair.covered - _COVERAGE), row.design.name)
            for row in enough
            if row.fair.covered is not None
        ],
        "",
        at_most=_WITHIN + slack,
    )
    claim(
        f"coverage, cells below {ENOUGH}",
        [(r.fair.covered, r.design.name) for r in small if r.fair.covered is not None],
        "of intervals",
        at_least=_LEAST_COVERAGE - slack,
    )
    bad = [
        (row.fair.rivals[row.design.known_bad], row.design.name)
        for row in rows
        if row.design.known_bad is not None
    ]
    if bad:
        worst = max(bad)
        names = sorted({row.design.known_bad for row in rows if row.design.known_bad is not None})
        claims.append(
            Claim(
                claim=f"{kind}: the {' or '.join(names)} variant fails the same check",
                figure=worst[0],
                unit="of fair samples rejected",
                side="at least",
                bar=MOST_SIZE,
                rounds=sims,
                details={"worst": worst[1], "designs": len(bad)},
            )
        )
    return claims


def _planted(rows: list[Calibrated]) -> list[int]:
    return [tries.simulations for row in rows for tries in row.planted.values()]


def _rates(rates: dict[str, float]) -> str:
    return ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items())
