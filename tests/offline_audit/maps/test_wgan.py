"""The paper's GAN learns the target's distribution, reproducibly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from offline_audit import AuditInputError, Columns
from offline_audit.maps import wgan
from offline_audit.maps.transport_map import COSTS, cost_of
from offline_audit.maps.wgan import Network, WganMethod

NUMERIC = Columns.numeric(["a", "b"])


def shifted(n, seed):
    """Two independent features, and the same with other means."""
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(n, 2)), rng.normal([1, -1], size=(n, 2))
    return source.astype(np.float32), target.astype(np.float32)


@pytest.mark.parametrize("seed", [0, 2])
def test_it_learns_the_distribution_of_the_target(seed):
    source, target = shifted(2_000, 1)
    unseen, unseen_target = shifted(2_000, 2)

    def ks_statistics(rows):
        return [stats.ks_2samp(rows[:, c], unseen_target[:, c]).statistic for c in (0, 1)]

    moved = WganMethod(steps=1_000).fit(source, target, NUMERIC, seed=seed).transport(unseen)[0]
    assert min(ks_statistics(unseen)) > 0.35
    # Training oscillates around the target, so the bound is not one of sampling error.
    assert max(ks_statistics(moved)) < 0.15
    untrained = WganMethod(steps=1).fit(source, target, NUMERIC, seed=seed).transport(unseen)[0]
    assert max(ks_statistics(untrained)) > 0.3


def test_rows_move_less_with_a_larger_weight_of_the_cost():
    source, target = shifted(500, 3)

    def mean_move(weight, cost="squared_l2"):
        method = WganMethod(steps=250, weight=weight, cost=COSTS[cost])
        return np.abs(method.fit(source, target, NUMERIC).transport(source)[0] - source).mean()

    without_cost = mean_move(0.0)
    for cost in COSTS:
        # So large that the critic, whose weights are clipped, has no influence.
        assert mean_move(10.0, cost) < 0.4 * without_cost, cost


def test_the_same_seed_gives_the_same_map_without_side_effects():
    source, target = shifted(200, 4)
    torch.manual_seed(11)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(3)
    first, repeated, other = (
        WganMethod(steps=20).fit(source, target, NUMERIC, seed=seed).transport(source)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)


def test_explicit_gradients_agree_with_automatic_differentiation():
    random = torch.Generator().manual_seed(3)
    network = Network.glorot(3, 2, random).double()
    rows = torch.randn(7, 3, generator=random, dtype=torch.float64)
    slope = torch.randn(7, 2, generator=random, dtype=torch.float64)
    by_flat, by_rows = network.gradients(network.layers(rows), slope)

    flat, inputs = network.flat.clone().requires_grad_(), rows.clone().requires_grad_()
    w = [piece.view(-1, 128) for piece in flat[: 128 * 3 + 128 + 128 * 128].split(128)]
    first = (inputs @ torch.cat(w[:3]) + w[3]).relu()
    second = (first @ torch.cat(w[4:]) + flat[-128 * 3 - 2 : -128 * 2 - 2]).relu()
    out = second @ flat[-128 * 2 - 2 : -2].view(128, 2) + flat[-2:]
    expected = torch.autograd.grad((out * slope).sum(), [flat, inputs])
    torch.testing.assert_close(network.layers(rows)[-1], out.detach())
    torch.testing.assert_close(by_flat, expected[0])
    torch.testing.assert_close(by_rows, expected[1])


@pytest.mark.parametrize("cost", sorted(COSTS))
def test_gradients_of_costs_agree_with_finite_differences(cost):
    change = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    origin = np.zeros((1, 3))

    def costs(moved):
        return COSTS[cost].pairwise(origin, moved.numpy())[0]

    for column in range(3):
        step = 1e-6 * torch.eye(3, dtype=torch.float64)[column]
        expected = (costs(change + step) - costs(change - step)) / 2e-6
        np.testing.assert_allclose(wgan._GRADIENTS[cost](change)[:, column], expected, rtol=1e-6)
    assert not wgan._GRADIENTS[cost](torch.zeros(1, 3)).any()


def test_progress_is_reported():
    reports: list[tuple[int, int]] = []
    source, target = shifted(50, 8)
    WganMethod(steps=150, batch=4).fit(
        source, target, NUMERIC, progress=lambda *steps: reports.append(steps)
    )
    assert reports[-1] == (150, 150)
    assert 20 <= len(reports) <= 200


def test_a_cost_without_a_known_gradient_is_refused():
    with pytest.raises(AuditInputError, match="gradient of the cost"):
        WganMethod(cost=cost_of(lambda a, b: COSTS["l2"].pairwise(a, b)))
