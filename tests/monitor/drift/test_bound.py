"""The lower bound on flip shares equals a slow computation, and its lower end is conservative."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.drift.bound import ShareBounds, _least_bound
from monitor.drift.reference import Layout
from monitor.drift.share import ShareSums
from monitor.fitting.bound import flip_share_bound
from monitor.scoring.scores import Predictions, Signals
from tests.monitor.drift.streams import part, predictions, watch
from tests.oracle.drift import least_share_bound, share_bound


def filled(batch: Predictions, *, groups: int) -> ShareBounds:
    bounds = ShareBounds(Layout(groups={"sex": groups}), alpha=0.01)
    bounds.add(0, batch)
    return bounds


def certain(rng, rates: list[float], n: int) -> tuple[Predictions, np.ndarray, np.ndarray]:
    """Predictions whose posterior is 1 for the true group, with that group and the decision."""
    groups = rng.integers(len(rates), size=n)
    positive = rng.random(n) < np.array(rates)[groups]
    signals = Signals(
        hard_flips=np.zeros(n), expected_change=np.zeros(n), posterior=np.eye(len(rates))[groups]
    )
    margin = np.where(positive, 1.0, -1.0)
    return Predictions(margin=margin, attributes={"sex": signals}), groups, positive


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_the_estimate_equals_the_slow_one(groups):
    batch = predictions(np.random.default_rng(0), 1_700, groups=groups, people=0.5)
    slow = share_bound(batch.attributes["sex"].posterior.tolist(), (batch.margin >= 0).tolist())
    assert filled(batch, groups=groups).read(0).share == pytest.approx(slow)


def test_with_known_groups_it_is_the_bound_of_the_audit():
    batch, groups, positive = certain(np.random.default_rng(1), [0.2, 0.5, 0.4], 5_000)
    audited = flip_share_bound(positive, groups.astype(np.int8))
    assert audited is not None
    bound = filled(batch, groups=3).read(0)
    assert bound.share == pytest.approx(audited.share)
    assert 0 < bound.low < audited.share


def test_variations_are_sums_of_squares_about_the_mean_of_the_earlier_blocks():
    batch = predictions(np.random.default_rng(2), 2_500)
    own = batch.attributes["sex"]
    values = own.posterior[:, 1] * (batch.margin >= 0)
    guesses = np.repeat([0.25, values[:1_000].mean(), values[:2_000].mean()], [1_000, 1_000, 500])
    bounds = filled(batch, groups=2)
    bounds.flush()
    expected = (2_500, values.sum(), ((values - guesses) ** 2).sum())
    assert bounds.sums[1, 0] == pytest.approx(expected)


@pytest.mark.parametrize("k", [2, 4])
def test_the_lower_end_is_at_most_the_bound_at_every_point_of_the_box(k):
    rng = np.random.default_rng(3)
    for _ in range(4):
        means = rng.dirichlet(np.ones(2 * k)).reshape(k, 2)
        low, high = means * 0.95, means * 1.05
        least = least_share_bound(low.tolist(), high.tolist(), rng)
        assert 0 <= _least_bound(low, high) <= least + 1e-12
        assert _least_bound(means, means) >= least


def test_predictions_without_a_posterior_a_margin_or_a_flip_are_ignored():
    batch = predictions(np.random.default_rng(4), 900, groups=3)
    expected = filled(part(batch, slice(300, None)), groups=3).read(0)
    batch.attributes["sex"].posterior[:100, 1] = np.nan
    batch.margin[100:200] = np.nan
    batch.attributes["sex"].hard_flips[200:300] = np.nan
    bound = filled(batch, groups=3).read(0)
    assert bound.n == 600
    assert bound.share == pytest.approx(expected.share)
    assert bound.low == pytest.approx(expected.low)
    batch.attributes["sex"].posterior[:] = np.inf
    assert filled(batch, groups=3).read(0).n == 0


def test_few_predictions_and_one_group_have_no_figure():
    batch = predictions(np.random.default_rng(5), 9)
    assert filled(batch, groups=2).read(0).share is None
    alone = predictions(np.random.default_rng(5), 50, groups=2)
    alone.attributes["sex"].posterior[:] = [1.0, 0.0]
    bound = filled(alone, groups=2).read(0)
    assert (bound.share, bound.low) == (0.0, 0.0)


def test_a_share_is_below_the_bound_if_its_band_is_below_the_lower_end():
    batch, _, _ = certain(np.random.default_rng(6), [0.3, 0.6], 4_000)
    bounds, answers = filled(batch, groups=2), set()
    for share in np.linspace(0, 0.5, 26):
        flips = ShareSums.of((np.random.default_rng(7).random(4_000) < share).astype(float))
        below = flips.band(0.01).high < bounds.read(0).low
        assert bounds.exceeds(0, flips) == below
        answers.add(below)
    assert answers == {True, False}


def test_the_watch_reports_a_share_below_the_bound_also_after_a_restart():
    batch, _, _ = certain(np.random.default_rng(8), [0.2, 0.7], 3_000)
    drift = watch()
    drift.update(part(batch, slice(0, 100)))
    assert not drift.is_below_bound("sex")
    drift.update(part(batch, slice(100, None)))
    assert drift.is_below_bound("sex")
    assert drift.share("sex").band.high < drift.share_bound("sex").low < 0.5
    drift._bounds.restart(0)
    assert not drift.is_below_bound("sex")


def test_it_does_not_keep_the_callers_arrays():
    batch = predictions(np.random.default_rng(9), 500)
    bounds, expected = filled(batch, groups=2), filled(batch, groups=2).read(0)
    batch.margin[:] = 1.0
    batch.attributes["sex"].posterior[:] = 0.5
    assert bounds.read(0) == expected
