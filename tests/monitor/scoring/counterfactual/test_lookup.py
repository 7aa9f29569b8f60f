"""Lookup tables agree with a search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.scoring.counterfactual.lookup import GRID, CategoryLookup, OrderedLookup
from tests.oracle import transport

BOTH = torch.tensor([[[False], [True]], [[True], [False]]])


def ordered(here, there, *, smooth: bool) -> OrderedLookup:
    quantiles = torch.from_numpy(np.stack([np.sort(here), np.sort(there)])[:, None])
    return OrderedLookup.of(torch.tensor([0]), torch.tensor([smooth]), quantiles.float(), BOTH, 1)


def transported(lookup, values, uniforms):
    """From the first group to the second."""
    n = len(values)
    sources, targets = torch.zeros(1, n).long(), torch.ones(1, n).long()
    ranks = lookup.ranks(values, sources, uniforms[None])
    return lookup.at_ranks(ranks, values, sources, targets)[0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), spread=st.floats(0.1, 60))
def test_discrete_values_keep_their_rank_exactly(seed, spread):
    """From two to more than a hundred values, with values that the source does not have."""
    rng = np.random.default_rng(seed)
    here, there = (
        np.sort(np.round(rng.normal(shift, spread, GRID))).astype(np.float32) for shift in (0, 1)
    )
    values = torch.arange(-70.0, 70.0)[:, None]
    uniforms = torch.rand(140, 1, generator=torch.Generator().manual_seed(seed))
    result = transported(ordered(here, there, smooth=False), values, uniforms)
    for value, uniform, transported_value in zip(values, uniforms, result, strict=True):
        assert float(transported_value) == transport.discrete(
            float(value), here, there, float(uniform)
        )


@pytest.mark.parametrize("law", ["normal", "lognormal", "uniform", "bimodal"])
def test_continuous_values_keep_their_rank(law):
    """Within the error of interpolation between some points of the grid."""
    rng = np.random.default_rng(3)
    draw = {
        "normal": lambda: rng.normal(0, 2, 40_000),
        "lognormal": lambda: rng.lognormal(0, 1.2, 40_000),
        "uniform": lambda: rng.uniform(-1, 1, 40_000),
        "bimodal": lambda: np.where(rng.random(40_000) < 0.3, -5, 5) + rng.normal(size=40_000),
    }[law]
    grid = np.linspace(0, 1, GRID)
    here = np.quantile(draw(), grid).astype(np.float32)
    there = np.quantile(draw() * 1.5 + 1, grid).astype(np.float32)
    values = np.concatenate([draw()[:2_000], [here[0] - 3, here[-1] + 3]]).astype(np.float32)
    result = transported(
        ordered(here, there, smooth=True), torch.from_numpy(values)[:, None], torch.zeros(2_002, 1)
    )[:, 0].numpy()
    exact = np.array([transport.continuous(float(v), here, there) for v in values])
    # Errors of rank in the target: at most half an interval between stops, far less on average.
    ranks = [np.interp(v, there, grid) for v in (result, exact)]
    assert np.abs(ranks[0] - ranks[1]).max() < 1 / 64
    assert np.abs(ranks[0] - ranks[1]).mean() < 1 / 1000
    assert np.allclose(result[-2:], exact[-2:], rtol=1e-5)


def test_a_peak_among_continuous_values_is_spread_over_its_ranks():
    """A quarter of the group has value zero and is transported to a quarter of the other group."""
    rng = np.random.default_rng(4)
    here = np.sort(np.where(np.arange(GRID) < GRID // 4, 0, rng.uniform(0, 10, GRID)))
    there = np.linspace(100, 200, GRID)
    uniforms = torch.linspace(0, 1 - 1e-6, 1001)[:, None]
    result = transported(ordered(here, there, smooth=True), torch.zeros(1001, 1), uniforms)[:, 0]
    assert torch.allclose(result, 100 + 25 * uniforms[:, 0], atol=0.5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 40))
def test_categories_follow_the_coupling_of_least_mass(seed, size):
    """Over evenly spaced uniforms each category has the share of the coupling."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(size, 0.7), 2)
    shares[:, 0] = 0  # no dropped category
    shares /= shares.sum(1, keepdims=True)
    lookup = CategoryLookup.of(
        [torch.arange(size - 1)], [torch.from_numpy(shares).float()], BOTH, size - 1
    )
    draws = 4_000
    uniforms = ((torch.arange(draws) + 0.5) / draws)[:, None]
    for category in range(1, size):
        if shares[0, category] < 1e-4:
            continue
        current = torch.full((draws, 1), category)
        sources, targets = torch.zeros(1, draws).long(), torch.ones(1, draws).long()
        drawn = lookup.transport(current, sources, targets, uniforms[None])[0, :, 0].numpy()
        expected = transport.coupling(shares[0], shares[1])[category]
        # Each cell of the table cuts the even spacing at two points.
        tolerance = (2 * size + 2) / draws
        result = np.bincount(drawn, minlength=size) / draws
        assert np.abs(result - expected).max() < tolerance


def test_categories_are_read_and_written():
    """Columns in any order, a dropped category, and rows with no or several categories."""
    categories = [torch.tensor([3, 0]), torch.tensor([1, 4, 2])]
    shares = [
        torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]),
        torch.tensor([[0, 0.5, 0.3, 0.2]] * 2),
    ]
    lookup = CategoryLookup.of(categories, shares, BOTH.expand(2, 2, 2), 5)
    rows = torch.tensor(
        [[0.0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    )
    current = lookup.read(rows)
    assert current[:4].tolist() == [[1, 1], [2, 3], [0, 2], [0, 0]]
    assert ((current >= 0) & (current < lookup.sizes)).all()
    drawn = torch.tensor([[2, 1], [0, 1], [0, 2], [1, 3], [2, 3]])
    written = lookup.write(rows[None], current, drawn[None])[0]
    assert written[:4].tolist() == [
        [1, 1, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 1, 1, 0],
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38, -3e38])
def test_no_value_indexes_outside_a_table(value):
    """Compiled code would read arbitrary memory."""
    rng = np.random.default_rng(5)
    for smooth in (True, False):
        lookup = ordered(rng.normal(size=GRID), rng.normal(size=GRID), smooth=smooth)
        transported(lookup, torch.full((3, 1), value), torch.rand(3, 1))
    shares = [torch.tensor([[0, 0.3, 0.7], [0, 0.7, 0.3]])]
    categories = CategoryLookup.of([torch.tensor([0, 1])], shares, BOTH, 2)
    current = categories.read(torch.full((3, 2), value))
    assert ((current >= 0) & (current <= 2)).all()
