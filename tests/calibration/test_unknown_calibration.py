"""Unknown labels and groups give no false differences, at random or not; ignoring them does."""

from __future__ import annotations

import pytest
from scipy import stats

from tests.calibration.unknown_designs import KNOWN_ROWS, designs

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
