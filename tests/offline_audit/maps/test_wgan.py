"""The paper's GAN learns to transport people, the same way every time, and keeps every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from offline_audit import AuditInputError, Columns
from offline_audit.maps import wgan
from offline_audit.maps.transport_map import COSTS, cost_of
from offline_audit.maps.wgan import Network, WganMethod
from tests.offline_audit.maps.two_groups import (
    MIXED,
    assert_kinds_are_kept,
    assert_no_batch_matters,
    mixed,
)

NUMERIC = Columns.numeric(["a", "b"])


def shifted(n, seed):
    """Two independent features, and the same elsewhere."""
    rng = np.random.default_rng(seed)
    here, there = rng.normal(size=(n, 2)), rng.normal([1, -1], size=(n, 2))
    return here.astype(np.float32), there.astype(np.float32)


@pytest.mark.parametrize("seed", [0, 2])
def test_it_learns_where_the_other_group_is(seed):
    source, target = shifted(2_000, 1)
    unseen, there = shifted(2_000, 2)

    def apart(people):
        return [stats.ks_2samp(people[:, c], there[:, c]).statistic for c in (0, 1)]

    moved = WganMethod(steps=1_000).fit(source, target, NUMERIC, seed=seed).transport(unseen)[0]
    assert min(apart(unseen)) > 0.35
    # It keeps swinging round the target, so this is not about chance: it has come most of the way.
    assert max(apart(moved)) < 0.15
    untrained = WganMethod(steps=1).fit(source, target, NUMERIC, seed=seed).transport(unseen)[0]
    assert max(apart(untrained)) > 0.3


def test_people_stay_nearer_if_moving_costs_more():
    source, target = shifted(500, 3)

    def moves(weight, cost="squared_l2"):
        method = WganMethod(steps=250, weight=weight, cost=COSTS[cost])
        return np.abs(method.fit(source, target, NUMERIC).transport(source)[0] - source).mean()

    free = moves(0.0)
    for cost in COSTS:
        # So dear that the critic, whose slopes are clipped, has no say.
        assert moves(10.0, cost) < 0.4 * free, cost


def test_the_same_seed_gives_the_same_map_and_leaves_no_trace():
    source, target = shifted(200, 4)
    torch.manual_seed(11)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(3)
    first, again, other = (
        WganMethod(steps=20).fit(source, target, NUMERIC, seed=seed).transport(source)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 3
    torch.set_num_threads(threads)


def test_gradients_by_hand_are_those_of_automatic_differentiation():
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
    wanted = torch.autograd.grad((out * slope).sum(), [flat, inputs])
    torch.testing.assert_close(network.layers(rows)[-1], out.detach())
    torch.testing.assert_close(by_flat, wanted[0])
    torch.testing.assert_close(by_rows, wanted[1])


@pytest.mark.parametrize("cost", sorted(COSTS))
def test_slopes_are_those_of_the_costs(cost):
    change = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    nowhere = np.zeros((1, 3))

    def costs(moved):
        return COSTS[cost].pairwise(nowhere, moved.numpy())[0]

    for column in range(3):
        step = 1e-6 * torch.eye(3, dtype=torch.float64)[column]
        wanted = (costs(change + step) - costs(change - step)) / 2e-6
        np.testing.assert_allclose(wgan._GRADIENTS[cost](change)[:, column], wanted, rtol=1e-6)
    assert not wgan._GRADIENTS[cost](torch.zeros(1, 3)).any()


def test_kinds_are_kept_and_no_batch_matters():
    g = mixed(200)
    fitted = WganMethod(steps=50).fit(g.source, g.target, MIXED)
    assert fitted.splits
    assert_kinds_are_kept(fitted.transport(g.unseen, 3), g)
    assert_no_batch_matters(fitted, g.unseen)
    here, there = shifted(100, 6)
    numeric = WganMethod(steps=50).fit(here, there, NUMERIC)
    assert not numeric.splits
    assert_no_batch_matters(numeric, shifted(100, 7)[0])


def test_progress_is_told_now_and_then():
    told: list[tuple[int, int]] = []
    source, target = shifted(50, 8)
    WganMethod(steps=150, batch=4).fit(
        source, target, NUMERIC, progress=lambda *steps: told.append(steps)
    )
    assert told[-1] == (150, 150)
    assert 20 <= len(told) <= 200


def test_constant_features_and_one_person_do_no_harm():
    still = np.full((3, 2), 2.0, np.float32)
    assert np.isfinite(WganMethod(steps=5).fit(still, still, NUMERIC).transport(still)).all()
    alone = WganMethod(steps=5).fit(still[:1], still[:1] + 1, NUMERIC).transport(still)
    assert np.isfinite(alone).all()


def test_what_cannot_be_is_refused_in_words():
    with pytest.raises(AuditInputError, match="gradient of the cost"):
        WganMethod(cost=cost_of(lambda a, b: COSTS["l2"].pairwise(a, b)))
    for options in ({"steps": 0}, {"batch": 0}, {"weight": -1.0}, {"weight": float("nan")}):
        with pytest.raises(AuditInputError, match=next(iter(options))):
            WganMethod(**options)
