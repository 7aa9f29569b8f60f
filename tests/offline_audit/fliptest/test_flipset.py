"""Tie-breaks show whether the flipset is identified or depends on the plan."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import Columns
from offline_audit.fliptest.flipset import DecidedRows, identify
from offline_audit.maps.columns import Scaling
from offline_audit.maps.transport_map import COSTS

COLUMNS = Columns.numeric(["work", "hair"])


def applicants(n: int, *, man: int, seed: int) -> np.ndarray:
    """Work experience and hair length, for which squared L1 has many optimal maps."""
    rng = np.random.default_rng(seed)
    work = rng.poisson(25 + 6 * man, n) - rng.normal(20, 0.2, n)
    return np.column_stack([work, 35 * rng.beta(2, 2 + 5 * man, n)]).astype(np.float32)


@pytest.fixture(scope="module")
def groups():
    women, men = (applicants(800, man=man, seed=man) for man in (0, 1))
    scaling = Scaling.of(women, men, COLUMNS)

    def hired(people: np.ndarray) -> np.ndarray:
        return np.asarray(scaling.scaled(people) @ [1.4, 1.2] > 0.87)

    one, other = (DecidedRows(features=people, decisions=hired(people)) for people in (women, men))
    return one, other, scaling


def test_squared_l1_does_not_identify_the_flipset(groups):
    women, men, scaling = groups
    result = identify(women, men, scaling, COSTS["squared_l1"], seed=0)
    assert not result.identified
    # Plans of equal cost, up to the cost that the tie-break adds.
    assert result.distances[0] == pytest.approx(result.distances[1], abs=0.002)
    assert result.most > 1.5 * result.fewest


def test_squared_l2_identifies_the_flipset(groups):
    women, men, scaling = groups
    result = identify(women, men, scaling, COSTS["squared_l2"], seed=0)
    assert result.identified
    assert result.most - result.fewest < 0.02


def test_no_plan_flips_less_than_the_difference_of_rates(groups):
    women, men, scaling = groups
    result = identify(women, men, scaling, COSTS["l2"], seed=0)
    gap = abs(women.decisions.mean() - men.decisions.mean())
    assert gap - 1e-9 <= result.fewest <= result.most


def test_larger_groups_are_sampled_the_same_way_for_the_same_seed(groups):
    one, other, scaling = groups
    twice = one.take(np.tile(np.arange(len(one)), 2))
    results = [identify(twice, other, scaling, COSTS["squared_l2"], seed=3) for _ in range(2)]
    assert results[0] == results[1]
    assert results[0].rows == len(other)
