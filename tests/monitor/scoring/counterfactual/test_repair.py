"""The repair of dependence: against a slow obvious version, and against damaged files."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monitor.scoring.counterfactual import TransportMaps
from monitor.scoring.counterfactual.repair import LIMIT, Repair
from tests.monitor.scoring.counterfactual.test_dependence import (
    correlation_only,
    fitted,
    interaction,
    numeric,
)


@pytest.fixture(scope="module")
def maps() -> TransportMaps:
    return fitted(*interaction(1), numeric(3))


def slow_rank(repair: Repair, rank: float, row: np.ndarray, source: int, target: int) -> float:
    """Rank of the one repaired variable of a row, step by step in Python."""

    def moments(group: int) -> tuple[float, float]:
        mean, log_scale = repair.bias[group].tolist()
        for ramp in range(len(repair.columns)):
            value = (row[repair.columns[ramp]] - float(repair.start[ramp])) * float(
                repair.slope[ramp]
            )
            value = min(max(value, 0.0), 1.0)
            mean += value * float(repair.weight[group, ramp, 0])
            log_scale += value * float(repair.weight[group, ramp, 1])
        return mean, np.exp(log_scale)

    score = np.clip(np.log(rank / (1 - rank)), -LIMIT, LIMIT)
    mean, scale = moments(source)
    residual = (score - mean) / scale
    levels = np.linspace(0, 1, repair.residuals.shape[2])
    own, other = repair.residuals[source, 0].numpy(), repair.residuals[target, 0].numpy()
    inside = np.clip(residual, own[0], own[-1])
    moved = np.interp(np.interp(inside, own, levels), levels, other) + residual - inside
    mean, scale = moments(target)
    return float(1 / (1 + np.exp(-(mean + scale * moved))))


def test_ranks_equal_those_of_a_slow_version(maps):
    (repair,) = maps.repairs[0]
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 2, (40, 3)).astype(np.float32)
    ranks = rng.uniform(0.001, 0.999, (1, 40, 1)).astype(np.float32)
    for source, target in ((0, 1), (1, 0)):
        ours = repair.ranks(
            torch.from_numpy(ranks),
            torch.from_numpy(rows)[:, repair.columns],
            None,
            torch.full((1, 40), source),
            torch.full((1, 40), target),
        )
        slow = [
            slow_rank(repair, float(rank), row, source, target)
            for rank, row in zip(ranks[0, :, 0], rows, strict=True)
        ]
        assert ours[0, :, 0].numpy() == pytest.approx(slow, abs=1e-4)


def test_stored_maps_transport_as_before(maps):
    for original in (maps, fitted(*correlation_only(1), numeric(3))):
        loaded = TransportMaps.from_arrays(original.to_arrays())
        assert loaded.orders == original.orders
        rows = torch.from_numpy(interaction(3)[0][:50].astype(np.float32))
        uniforms = torch.full((50, original.n_uniforms), 0.5)
        for order in range(original.orders):
            assert torch.equal(
                original.apply(rows, 0, 1, uniforms, order),
                loaded.apply(rows, 0, 1, uniforms, order),
            )


def test_two_orders_at_once_equal_each_order_alone():
    """They share ranks and categories, and each has repairs of its own."""
    rows, groups = correlation_only(1)
    maps = fitted(rows, groups, numeric(3))
    assert maps.orders == 2
    features = torch.from_numpy(rows[:100].astype(np.float32))
    uniforms = torch.rand(3, 100, maps.n_uniforms, generator=torch.Generator().manual_seed(3))
    sources = torch.tensor([0, 1, 1])[:, None].expand(3, 100)
    both = maps.transport(features, sources, 1 - sources, uniforms)
    alone = [maps.transport(features, sources, 1 - sources, uniforms, (o,)) for o in range(2)]
    assert torch.equal(both.features, torch.cat([one.features for one in alone]))
    assert torch.equal(both.moved, torch.cat([one.moved for one in alone]))
    assert not torch.equal(alone[0].features, alone[1].features)
    for draw in range(3):
        source = int(sources[draw, 0])
        expected = maps.apply(features, source, 1 - source, uniforms[draw], 1)
        assert torch.allclose(alone[1].features[draw], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("residuals", lambda a: a[:, :, ::-1].copy(), "increasing"),
        ("slope", lambda a: a * np.float32(np.nan), "finite"),
        ("columns", lambda a: a + 50, "do not exist"),
        ("free", lambda a: a + 50, "ordered features"),
        ("weight", lambda a: a[:, :-1], "expected"),
    ],
)
def test_damaged_arrays_are_refused(maps, name, change, message):
    arrays = maps.to_arrays()
    key = f"repair_0_0_{name}"
    with pytest.raises(ValueError, match=message):
        TransportMaps.from_arrays({**arrays, key: change(arrays[key])})


def test_far_rows_stay_finite(maps):
    rows = torch.tensor([[1e30, -1e30, 1e30], [0.0, 1e30, -1e30], [-1e30, 0.0, 0.0]])
    uniforms = torch.full((3, maps.n_uniforms), 0.5)
    assert maps.apply(rows, 0, 1, uniforms).isfinite().all()
