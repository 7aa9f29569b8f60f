"""Size, power and coverage of the permutation tests by simulation, small and seeded.

`python -m benchmarks.calibration` has 10⁴ simulations per design. Bounds are the bars of the
benchmark, widened to binomial quantiles of 1 in 10,000 for the number of simulations.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from benchmarks.calibration_rows import Calibrated as Row
from benchmarks.calibration_rows import claims_of
from offline_audit import TableCounts, permutation_test, selection_table
from offline_audit.intervals import rate_ratio_interval
from offline_audit.permutation.impact import FOUR_FIFTHS
from tests.calibration.designs import Tries
from tests.calibration.permutation_designs import designs

DESIGNS = {design.name: design for design in designs()}
RARE = 1e-4

TABLES = [name for name in DESIGNS if name.startswith(("fnr", "selection", "ppv", "accuracy"))]
TABLES = [name for name in TABLES if "people" not in name and "copied" not in name]
QUICK = [
    "mean_score: skewed, 30 against 30, unequal spreads",
    "mean_score: t(3), 50 against 500",
    "mean_score: lognormal(1.5), 50 against 500",
    "mean_score: 1% outliers, 200 against 200",
    "auc: ties, minority of 100 in 600",
    "selection_rate: people who come back, 15% minority",
    "selection_rate: copied rows",
    "correlation: unequal spreads, 30 rows",
]


def consistent(share: float, low: float, high: float, n: int) -> bool:
    """Whether a share of n simulations is consistent with a rate between two bars."""
    most = stats.binom.isf(RARE, n, high)
    least = stats.binom.ppf(RARE, n, low)
    return bool(least <= round(share * n) <= most)


def test_there_are_at_least_twelve_designs():
    assert len(DESIGNS) >= 12
    assert set(QUICK) <= set(DESIGNS)


@pytest.mark.parametrize("name", TABLES)
def test_tests_of_rates_have_their_nominal_size_and_coverage(name):
    design = DESIGNS[name]
    result = design.fair(300, 1)
    assert consistent(result.rejected, 0.04 if design.cell >= 20 else 0.0, 0.06, 300)
    assert result.covered is not None
    assert consistent(result.covered, 0.935 if design.cell >= 20 else 0.93, 1.0, 300)
    assert result.refused == 0 or design.cell < 10


@pytest.mark.parametrize("name", QUICK)
def test_other_tests_have_their_nominal_size_and_coverage(name):
    design = DESIGNS[name]
    result = design.fair(100, 2)
    assert consistent(result.rejected, 0.04 if design.cell >= 20 else 0.0, 0.06, 100)
    assert result.covered is not None
    assert consistent(result.covered, 0.93, 1.0, 100)


@pytest.mark.parametrize("kind", ["t(3)", "lognormal(1.5)", "1% outliers"])
def test_intervals_of_means_have_their_coverage_under_heavy_tails(kind):
    """Of a difference that is not 0, too; refused samples are counted."""
    rng, groups, shift, n = np.random.default_rng(6), np.repeat(["a", "b"], [50, 150]), 1.0, 300
    intervals = []
    for seed in range(n):
        scores = {
            "t(3)": lambda: rng.standard_t(3, 200),
            "lognormal(1.5)": lambda: rng.lognormal(0, 1.5, 200),
            "1% outliers": lambda: rng.normal(size=200) + 20 * (rng.random(200) < 0.01),
        }[kind]()
        result = permutation_test(
            metrics="mean_score",
            groups=groups,
            scores=scores + shift * (groups == "a"),
            score_limits=None,
            n_resamples=99,
            seed=seed,
        )[0]
        if result.interval is not None:
            intervals.append(result.interval)
    assert len(intervals) > 0.9 * n
    covered = float(np.mean([low <= shift <= high for low, high in intervals]))
    assert consistent(covered, 0.94, 0.96, len(intervals))


@pytest.mark.parametrize(
    ("rates", "sizes"),
    [
        ((0.3, 0.3), (200, 200)),
        ((0.3,) * 3, (200,) * 3),
        ((0.3,) * 7, (100,) * 7),
        ((0.3,) * 7, (1_000, 500, 200, 100, 60, 50, 50)),
        ((0.3, 0.4, 0.42), (100, 200, 300)),
        ((0.3, 0.32, 0.34, 0.36, 0.38, 0.4, 0.4), (100,) * 7),
    ],
)
def test_intervals_of_impact_ratios_allow_for_the_choice_of_the_best_group(rates, sizes):
    """Without this choice, seven fair groups have a coverage of .90, as the last line checks."""
    n, truth = 400, np.array(rates) / max(rates)
    covered, naive, marked = [], [], 0
    for hits in np.random.default_rng(7).binomial(sizes, rates, (n, len(sizes))):
        counts = TableCounts.from_mapping(
            {
                f"{index}": {(None, 1): int(h), (None, 0): size - int(h)}
                for index, (h, size) in enumerate(zip(hits, sizes, strict=True))
            }
        )
        table = selection_table(counts=counts).table
        (best,) = (row for row in table if row.best)
        others = [(row, true) for row, true in zip(table, truth, strict=True) if not row.best]
        for row, true in others:
            low, high = row.impact_interval  # type: ignore[misc]
            covered.append(low <= true + 1e-9 and true - 1e-9 <= high)
            pair = (row.selected, row.rows, best.selected, best.rows, 0.95)
            low, high = rate_ratio_interval(*pair)  # type: ignore[misc]
            naive.append(low <= true <= high)
        marked += any(row.impact == "below" for row, true in others if true >= FOUR_FIFTHS)
    # Ratios of one table are dependent, so the number of tables counts.
    assert consistent(float(np.mean(covered)), 0.94, 1.0, n)
    assert consistent(marked / n, 0.0, 0.05, n)
    if rates == (0.3,) * 7 and len(set(sizes)) == 1:
        assert not consistent(float(np.mean(naive)), 0.94, 1.0, n)


@pytest.mark.parametrize(
    "name",
    [
        "fnr: 80% and 20% positives, 200 against 200",
        "correlation: unequal spreads, 100 rows",
        "mean_score: skewed wide minority of 50 against narrow 950",
    ],
)
def test_without_studentizing_the_same_check_fails(name):
    n = {"f": 600, "c": 300, "m": 60}[name[0]]
    result = DESIGNS[name].fair(n, 3)
    assert not consistent(result.rivals["un-studentized"], 0.0, 0.06, n)
    assert consistent(result.rejected, 0.0, 0.06, n)


def test_ignoring_units_fails_the_same_check():
    result = DESIGNS["selection_rate: people who come back, 15% minority"].fair(80, 4)
    assert not consistent(result.rivals["z without units"], 0.0, 0.06, 80)


def test_power_is_about_that_of_a_z_test():
    design = DESIGNS["selection_rate: 200 against 200, 10%"]
    for simulate in design.planted.values():
        result = simulate(300, 5)
        # Both tests see the same samples, so their powers differ by little.
        assert result.rejected > result.rivals["z"] - 0.03
        assert result.rejected > 0.5


def test_claims_name_the_worst_design():
    design = DESIGNS["selection_rate: 200 against 200, 10%"]
    good = Tries(simulations=10, refused=0, rejected=0.05, rivals={"z": 0.05}, covered=0.95)
    bad = Tries(simulations=10, refused=0, rejected=0.2, rivals={"z": 0.5}, covered=0.5)
    rows = [Row(design=design, fair=good, planted={}), Row(design=design, fair=bad, planted={})]
    claims = {claim.claim: claim for claim in claims_of("permutation", rows)}
    size = claims["permutation: size at 5%, largest"]
    assert not size.holds
    assert size.figure == 0.2
    assert np.isclose(next(c.figure for name, c in claims.items() if "distance" in name), 0.45)
