"""Unknown labels and groups give no false differences, at random or not; ignoring them does."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from offline_audit import permutation_test
from tests.calibration.unknown_designs import KNOWN_ROWS, Sides, designs

DESIGNS = {design.name: design for design in designs()}
SIMULATIONS = 100
# The bar of 6%, widened to a binomial quantile of 1 in 10,000.
MOST = stats.binom.isf(1e-4, SIMULATIONS, 0.06) / SIMULATIONS


@pytest.mark.parametrize("name", DESIGNS)
def test_fair_samples_are_rejected_in_at_most_six_percent_of_simulations(name):
    result = DESIGNS[name].fair(SIMULATIONS, 7)
    assert result.rejected <= MOST
    # The known rows alone give false differences exactly where a design says so.
    assert (result.rivals[KNOWN_ROWS] > MOST) == (DESIGNS[name].known_bad is not None)


@pytest.mark.parametrize("name", [name for name, design in DESIGNS.items() if design.planted])
def test_differences_are_detected_although_some_labels_or_groups_are_unknown_at_random(name):
    assert DESIGNS[name].planted["less"](SIMULATIONS, 8).rejected > 0.5
    assert DESIGNS[name].fair(SIMULATIONS, 9).refused <= 0.15 * SIMULATIONS


def test_the_smallest_detectable_effect_is_detected_although_labels_are_missing():
    """With 80% power, up to four standard errors of the number of simulations."""
    rng, fair = np.random.default_rng(10), Sides(rows=(2_000, 2_000), labels=0.7)
    comparisons = [permutation_test(counts=fair.counts(rng), metrics="tpr")[0] for _ in range(50)]
    effects = [c.smallest_detectable_effect for c in comparisons if c.determined]
    effect = -float(np.mean([e[0] for e in effects if e is not None and e[0] is not None]))
    worse = Sides(rows=(2_000, 2_000), labels=0.7, tpr=(0.7 - effect, 0.7))
    tests = [permutation_test(counts=worse.counts(rng), metrics="tpr")[0] for _ in range(200)]
    assert np.mean([c.rejected for c in tests]) == pytest.approx(0.8, abs=4 * 0.4 / 200**0.5)
