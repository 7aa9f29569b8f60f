"""The interval of the share of flips includes the fit, and says when rows are insufficient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monitor.fitting.intervals import FlipShareInterval, flip_share_interval
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.sensitivity import Sensitivity
from tests.monitor.fitting.shifted_group import FEATURES, SPEC, TRUE_SHARE, draw, interval


def made(share, low, high, rows=1_000):
    return FlipShareInterval(
        share=share,
        low=low,
        high=high,
        standard_error=0.0,
        map_error=0.0,
        rows=rows,
        refits=20,
        lowest_order=share,
        highest_order=share,
        pairs=(),
    )


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.4, 1.0, 8.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_interval_contains_the_estimate_and_stays_within_0_and_1(shift, seed):
    result = interval(*draw(400, seed, shift), n_refits=6)
    assert 0 <= result.low <= result.share <= result.high <= 1
    assert result.high > result.low


def test_fewer_rows_give_a_wider_interval():
    few, many = (interval(*draw(n, seed=3)) for n in (500, 8_000))
    # Four times by √n; the standard error of 20 refits has an error of 16%.
    assert few.standard_error > 2 * many.standard_error
    assert few.high - few.low > 2 * (many.high - many.low)
    assert many.low <= TRUE_SHARE <= many.high


def test_the_interval_is_determined_by_the_seed():
    data = draw(600, seed=4)
    assert interval(*data, seed=5) == interval(*data, seed=5)
    assert interval(*data, seed=5) != interval(*data, seed=6)


def test_rows_with_an_unknown_group_are_ignored():
    features, groups = draw(900, seed=7)
    hidden = np.where(np.arange(900) % 3 == 0, -1, groups).astype(np.int8)
    result = interval(features, hidden)
    assert result.rows == 600
    assert result.low <= TRUE_SHARE <= result.high


def test_without_flips_the_upper_end_is_positive():
    features, groups = draw(400, seed=8)
    result = interval(features + np.float32(100), groups, n_refits=6)
    assert result.share == result.low == 0
    assert 0 < result.high < 0.03


def test_a_dependence_that_the_maps_miss_extends_the_interval_to_the_right_side():
    features, groups = draw(4_000, seed=9)
    # Women's features are correlated, so feature by feature their sum has too little variance.
    women = groups == 1
    features[:, 0] -= women
    features[women, 1] = features[women, 0]
    features += np.float32(1.5)
    result = interval(features, groups)
    rng = np.random.default_rng(10)
    men, woman = rng.normal(size=(100_000, 2)).sum(1), 2 * rng.normal(size=100_000)
    gap = (woman > -3).mean() - (men > -3).mean()
    assert result.map_error == pytest.approx(abs(gap), abs=4 * np.sqrt(0.05 / 800))
    assert result.share + 0.5 * result.map_error < result.high
    for pair in result.pairs:
        assert pair.unexplained
        assert abs(pair.miss) == pytest.approx(abs(gap), abs=4 * np.sqrt(0.05 / 800))


def test_the_interval_covers_all_causal_orders_that_the_data_do_not_tell_apart():
    """Decisions depend on the second feature only, which the group affects given the first."""
    rng = np.random.default_rng(11)
    groups = (rng.random(4_000) < 0.4).astype(np.int8)
    first, other = rng.normal(size=(2, 4_000))

    def second(group):
        return 0.8 * np.where(group == 1, -1, 1) * first + 0.6 * other

    features = np.column_stack([first, second(groups)]).astype(np.float32)
    true_share = ((second(groups) > 0) != (second(1 - groups) > 0)).mean()

    def refit(rows):
        maps = fit_transport_maps(features[rows], groups[rows], FEATURES, (), 2, repair=True)
        return Sensitivity(
            logit=lambda x: x[:, 1],
            status=lambda x: torch.zeros(len(x), 2),
            maps={"sex": maps},
            spec=SPEC,
            logit_spread=1.0,
        )

    result = flip_share_interval(
        refit, features, groups, SPEC.protected_attributes[0], n_refits=2, seed=0
    )
    # Given the second, the first moves, and no decision changes.
    assert result.lowest_order == pytest.approx(0, abs=0.01)
    assert result.highest_order == pytest.approx(true_share, abs=0.03)
    assert result.low <= 0.01 < result.share < true_share < result.high
    assert result.enough_rows
    assert not result.identified


@pytest.mark.parametrize(
    ("result", "enough", "needed"),
    [
        (made(0.26, 0.21, 0.31), True, 1_000),
        (made(0.002, 0.0, 0.04), True, 1_000),
        (made(0.03, 0.005, 0.07), False, 1_600),
        (made(0.005, 0.0, 0.095), False, 4_000),
        (made(0.06, 0.0, 0.2), False, 1_500),
    ],
)
def test_the_rows_that_would_do_follow_from_the_width(result, enough, needed):
    assert result.enough_rows is enough
    assert result.rows_needed == needed


def test_a_single_refit_is_rejected():
    with pytest.raises(ValueError, match="n_refits is 1"):
        interval(*draw(400, seed=0), n_refits=1)
