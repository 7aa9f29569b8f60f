"""Designs for `benchmarks.calibration`: the projection test with equal and unequal rates.

Rows have a signed distance whose spread, shape and ties differ between groups while the rate of
decision 1 does not. Rivals: Wald's test with each group's own variance, the paper's kernel law with
Silverman's bandwidth, and p from the cost curves in the given distances.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc
from scipy.stats import norm, t

from offline_audit import projection_test
from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.projection.cells import Stratum
from offline_audit.projection.fair_change import common_rate
from offline_audit.projection.gaps import gaps, pair_effects
from offline_audit.projection.limiting_law import (
    curve_density,
    kernel_density,
    limiting_p_value,
    s_matrix,
)
from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Attribute, Sample
from tests.calibration.designs import ALPHA, Design, Tries

__all__ = ["People", "count_rejections", "designs"]

# As in `projection_test`.
_SMALLEST_EXPECTED = 5
_SECOND = (0.6, 0.3, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Distribution of rows.

    Attributes:
        rows: Number of people.
        shares: Shares of the groups.
        base: Share of label 1 in each group.
        rates: Rates of decision 1 among label 1 and among label 0.
        spreads: Scale of the distances in each group.
        shape: Shape of the signed distances: normal, heavy-tailed, or in steps of 0.25.
        copies: Maximum number of rows per person, drawn uniformly from 1.
        overlapping: Whether there is a second attribute, of three groups.
        gap: Added to the last group's rate among label 1, or among all.
    """

    rows: int
    shares: tuple[float, ...] = (0.5, 0.5)
    base: tuple[float, ...] = (0.5, 0.5)
    rates: tuple[float, float] = (0.7, 0.3)
    spreads: tuple[float, ...] = (1.0, 1.0)
    shape: str = "normal"
    copies: int = 1
    overlapping: bool = False
    gap: float = 0.0

    def draw(self, rng: np.random.Generator) -> Sample:
        """One sample."""
        n = self.rows
        group = rng.choice(len(self.shares), n, p=self.shares)
        label = (rng.random(n) < np.take(self.base, group)).astype(np.int8)
        rate = np.where(label == 1, self.rates[0], self.rates[1])
        rate = rate + self.gap * ((group == len(self.shares) - 1) & (label == 1))
        if self.shape == "heavy":
            signed = rng.standard_t(2, n) - t.isf(rate, 2)
        else:
            signed = rng.standard_normal(n) - norm.isf(rate)
        distance = np.abs(signed) * np.take(self.spreads, group)
        if self.shape == "steps":
            distance = np.ceil(4 * distance) / 4
        codes = [group]
        if self.overlapping:
            codes.append(rng.choice(len(_SECOND), n, p=_SECOND))
        decision = (signed >= 0).astype(np.int8)
        person = np.arange(n)
        if self.copies > 1:
            person = np.repeat(person, rng.integers(1, self.copies + 1, n))
        return Sample(
            decisions=decision[person],
            distances=distance[person],
            attributes=tuple(
                Attribute(
                    name=f"attribute {index}",
                    groups=tuple(str(g) for g in range(int(code.max()) + 1)),
                    codes=code[person].astype(np.int32),
                )
                for index, code in enumerate(codes)
            ),
            labels=label[person],
            units=person if self.copies > 1 else None,
        )

    def smallest_cell(self, criterion: Criterion) -> float:
        """People expected for the rarer decision in the smallest group of any stratum."""
        counts = []
        shares = [*self.shares, *(_SECOND if self.overlapping else ())]
        mean_base = float(np.dot(self.shares, self.base))
        bases = [*self.base, *([mean_base] * 3 if self.overlapping else ())]
        for label in CRITERIA[criterion]:
            for share, base in zip(shares, bases, strict=True):
                part = 1.0 if label is None else base if label else 1 - base
                rate = self.rates[1 - (label or 0)]
                if label is None:
                    rate = base * self.rates[0] + (1 - base) * self.rates[1]
                counts.append(self.rows * share * part * min(rate, 1 - rate))
        return float(min(counts))


def count_rejections(
    people: People,
    criterion: Criterion,
    simulations: int,
    seed: int,
    *,
    ignore_units: bool = False,
) -> Tries:
    """Simulate samples; return the rejection rates of our test and of the rivals."""
    rng = np.random.default_rng(seed)
    rejected = {"ours": 0, "Wald": 0, "curve": 0, "kernel": 0}
    covered = n_intervals = refused = 0
    for number in range(simulations):
        sample = people.draw(rng)
        if ignore_units:
            sample = replace(sample, units=None)
        parts = partition(
            sample,
            criterion,
            smallest_expected=_SMALLEST_EXPECTED,
            all_distances=people.overlapping,
        )
        if parts.untestable:
            refused += 1
            continue
        gap_estimates = gaps(sample, parts.strata)
        p = limiting_p_value(
            gap_estimates, s_matrix(gap_estimates, None), law="standardized", statistic=0.0
        )
        if number < 2:
            _assert_equals_the_public_test(sample, criterion, p)
        rejected["ours"] += p <= ALPHA
        for rival, value in _rivals(sample, parts.strata, overlapping=people.overlapping).items():
            rejected[rival] += value <= ALPHA
        effect = pair_effects(sample, parts.strata, gap_estimates, confidence_level=1 - ALPHA)[0]
        if len(people.shares) == 2:
            n_intervals += 1
            part = {None: people.base[-1], 1: 1.0, 0: 0.0}[effect.label]
            covered += effect.interval[0] <= -part * people.gap <= effect.interval[1]
    if people.overlapping:
        del rejected["kernel"]
    shares = {name: count / simulations for name, count in rejected.items()}
    return Tries(
        simulations=simulations,
        refused=refused,
        rejected=shares.pop("ours"),
        rivals=shares,
        covered=covered / n_intervals if n_intervals else None,
    )


def _rivals(sample: Sample, strata: tuple[Stratum, ...], *, overlapping: bool) -> dict[str, float]:
    # Within a tolerance of nearly 1 every rate is fair, so each group has its own variance.
    separate = gaps(sample, strata, tolerance=0.999)
    statistic = float(separate.values @ np.linalg.pinv(separate.covariance) @ separate.values)
    rank = int(np.linalg.matrix_rank(separate.covariance))
    gap_estimates = gaps(sample, strata)
    s = s_matrix(gap_estimates, curve_density(strata))
    values = {
        "Wald": float(chdtrc(rank, statistic)),
        "curve": limiting_p_value(gap_estimates, s, law="curve", statistic=0.0),
    }
    if not overlapping:
        cost = sum(common_rate(stratum.cells).cost for stratum in strata)
        s = s_matrix(gap_estimates, kernel_density(sample, strata))
        values["kernel"] = limiting_p_value(gap_estimates, s, law="kernel", statistic=cost)
    return values


def _assert_equals_the_public_test(sample: Sample, criterion: Criterion, p: float) -> None:
    def names(attribute: Attribute) -> NDArray[np.str_]:
        return np.array(attribute.groups)[attribute.codes]

    public = projection_test(
        groups={attribute.name: names(attribute) for attribute in sample.attributes},
        decisions=sample.decisions,
        distances=sample.distances,
        labels=sample.labels,
        units=sample.units,
        criterion=criterion,
    )
    assert public.p_value is not None
    assert abs(public.p_value - p) < 1e-9


_FOUR = People(
    rows=1_000,
    shares=(0.5, 0.3, 0.15, 0.05),
    base=(0.5, 0.4, 0.5, 0.6),
    spreads=(1.0, 3.0, 0.3, 1.0),
)
_DESIGNS: dict[str, tuple[People, Criterion, float]] = {
    "balanced, parity": (People(rows=1_000), "statistical_parity", 0.18),
    "balanced, opportunity": (People(rows=1_000), "equal_opportunity", 0.11),
    "balanced, odds": (People(rows=1_000), "equalized_odds", 0.13),
    "80% and 20% base rates, opportunity": (
        People(rows=2_000, base=(0.8, 0.2), rates=(0.9, 0.1)),
        "equal_opportunity",
        0.07,
    ),
    "80% and 20% base rates, odds": (
        People(rows=2_000, base=(0.8, 0.2), rates=(0.9, 0.1)),
        "equalized_odds",
        0.07,
    ),
    "5% minority, opportunity": (
        People(rows=1_000, shares=(0.95, 0.05)),
        "equal_opportunity",
        0.2,
    ),
    "5% minority, odds, 10⁴ rows": (
        People(rows=10_000, shares=(0.95, 0.05), spreads=(1.0, 4.0)),
        "equalized_odds",
        0.1,
    ),
    "rare outcomes, opportunity": (
        People(rows=2_000, base=(0.05, 0.05), rates=(0.6, 0.02)),
        "equal_opportunity",
        0.3,
    ),
    "rare decisions, odds": (
        People(rows=10_000, rates=(0.05, 0.02)),
        "equalized_odds",
        0.025,
    ),
    "ties, odds": (People(rows=1_000, shape="steps"), "equalized_odds", 0.13),
    "heavy tails, odds": (People(rows=1_000, shape="heavy"), "equalized_odds", 0.13),
    "unequal spreads, odds": (
        People(rows=2_000, shares=(0.7, 0.3), spreads=(1.0, 5.0)),
        "equalized_odds",
        0.1,
    ),
    "duplicated rows, opportunity": (
        People(rows=600, shares=(0.7, 0.3), copies=5),
        "equal_opportunity",
        0.18,
    ),
    "duplicated rows, odds": (
        People(rows=2_000, shares=(0.7, 0.3), copies=5),
        "equalized_odds",
        0.12,
    ),
    "four groups, opportunity": (
        _FOUR,
        "equal_opportunity",
        0.25,
    ),
    "four groups, the last crowded, opportunity": (
        People(
            rows=4_000,
            shares=(0.5, 0.3, 0.05, 0.15),
            base=(0.5, 0.5, 0.5, 0.5),
            spreads=(1.0, 3.0, 1.0, 0.3),
        ),
        "equal_opportunity",
        0.12,
    ),
    "four groups, heavy tails, odds": (
        replace(_FOUR, rows=4_000, shape="heavy"),
        "equalized_odds",
        0.15,
    ),
    "four groups, duplicated rows, odds": (
        replace(_FOUR, rows=2_000, copies=5),
        "equalized_odds",
        0.28,
    ),
    "two attributes, odds": (
        People(rows=2_000, shares=(0.7, 0.3), overlapping=True),
        "equalized_odds",
        0.1,
    ),
    "10⁵ rows, odds": (
        People(rows=100_000, shares=(0.9, 0.1), spreads=(1.0, 2.0)),
        "equalized_odds",
        0.02,
    ),
}


def designs() -> list[Design]:
    """All designs, each with planted gaps of both signs in the last group."""

    def simulate(people: People, criterion: Criterion) -> Callable[[int, int], Tries]:
        return functools.partial(count_rejections, people, criterion)

    return [
        Design(
            name=name,
            cell=people.smallest_cell(criterion),
            fair=simulate(people, criterion),
            planted={
                f"{signed:+g}": simulate(replace(people, gap=signed), criterion)
                for signed in (gap, -gap)
            },
        )
        for name, (people, criterion, gap) in _DESIGNS.items()
    ]
