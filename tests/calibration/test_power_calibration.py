"""Power at the smallest detectable effects, by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.calibration.power_designs import DETECTED, WITHIN, designs

DESIGNS = {design.name: design for design in designs()}


def tolerance(simulations: int) -> float:
    """Three points and four standard errors of the simulations."""
    return WITHIN + 4 * np.sqrt(DETECTED * (1 - DETECTED) / simulations)


def test_there_are_at_least_ten_designs():
    assert sum(design.claim == "within" for design in DESIGNS.values()) >= 10


@pytest.mark.parametrize(
    ("name", "simulations"),
    [
        ("rates: 100 against 1,900, 0.1", 300),
        ("rates: 200 against 200, 0.1", 300),
        ("mean score: 60 wide against 240 narrow", 150),
        ("correlation: 150 rows", 200),
        ("projection: two groups", 200),
    ],
)
def test_a_stated_effect_is_detected_in_80_percent_of_samples(name, simulations):
    design = DESIGNS[name]
    for seed, effect in enumerate(design.stated(1), 2):
        assert effect is not None
        power = design.power(effect, simulations, seed)
        assert abs(power - DETECTED) <= tolerance(simulations)


def test_one_effect_for_both_directions_fails_the_same_check():
    """The normal approximation, (1.96 + 0.84) standard errors, in either direction."""
    design = DESIGNS["rates: 100 against 1,900, 0.1"]
    effect = 2.802 * np.sqrt(0.1 * 0.9 * (1 / 100 + 1 / 1_900))
    powers = [design.power(sign * effect, 300, 4) for sign in (-1, 1)]
    assert all(abs(power - DETECTED) > tolerance(300) for power in powers)


def test_no_effect_is_stated_where_none_can_be_detected():
    """60 rows with a rate of .05 cannot fall far enough below the other group."""
    design = DESIGNS["rates: 60 against 60, 0.05"]
    down, up = design.stated(1)
    assert down is None
    assert up is not None
    assert design.power(-0.05, 100, 2) < DETECTED - tolerance(100)
