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
    product,
)


@pytest.fixture(scope="module")
def maps() -> TransportMaps:
    return fitted(*interaction(1), numeric(3))


@pytest.fixture(scope="module")
def maps_with_products() -> TransportMaps:
    return fitted(*product(1), numeric(3), order=("x0", "x1", "x2"))


def slow_rank(repair: Repair, rank: float, row: np.ndarray, source: int, target: int) -> float:
    """Rank of the one repaired variable of a row, step by step in Python."""

    def moments(group: int) -> tuple[float, float]:
        mean, log_scale = repair.bias[group].tolist()
        ramps = []
        for ramp in range(len(repair.columns)):
            value = (row[repair.columns[ramp]] - float(repair.start[ramp])) * float(
                repair.slope[ramp]
            )
            ramps.append(min(max(value, 0.0), 1.0))
        for first, second in repair.products.T.tolist():
            ramps.append(ramps[first] * ramps[second])
        for value, weights in zip(ramps, repair.weight[group].tolist(), strict=True):
            mean += value * weights[0]
            log_scale += value * weights[1]
        return mean, np.exp(log_scale)

    def table(group: int, mean: float) -> np.ndarray:
        number = sum(mean > edge for edge in repair.edges[group, 0].tolist())
        return repair.residuals[group, 0, number].numpy()

    score = np.clip(np.log(rank / (1 - rank)), -LIMIT, LIMIT)
    mean, scale = moments(source)
    target_mean, target_scale = moments(target)
    residual = (score - mean) / scale
    levels = np.linspace(0, 1, repair.residuals.shape[3])
    own, other = table(source, mean), table(target, target_mean)
    inside = np.clip(residual, own[0], own[-1])
    moved = np.interp(np.interp(inside, own, levels), levels, other) + residual - inside
    return float(1 / (1 + np.exp(-(target_mean + target_scale * moved))))


@pytest.mark.parametrize("which", ["maps", "maps_with_products"])
def test_ranks_equal_those_of_a_slow_version(which, request):
    (repair,) = request.getfixturevalue(which).repairs[0]
    assert (repair.products.shape[1] > 0) == (which == "maps_with_products")
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


def test_stored_maps_transport_as_before(maps, maps_with_products):
    for original in (maps, maps_with_products, fitted(*correlation_only(1), numeric(3))):
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
        ("residuals", lambda a: a[..., ::-1].copy(), "increasing"),
        ("slope", lambda a: a * np.float32(np.nan), "finite"),
        ("columns", lambda a: a + 50, "do not exist"),
        ("free", lambda a: a + 50, "ordered features"),
        ("weight", lambda a: a[:, :-1], "expected"),
        ("products", lambda a: a + 500, "ramps that do not exist"),
        ("edges", lambda a: a[:, :, :-1], "expected"),
    ],
)
def test_damaged_arrays_are_refused(maps_with_products, name, change, message):
    arrays = maps_with_products.to_arrays()
    key = f"repair_0_0_{name}"
    with pytest.raises(ValueError, match=message):
        TransportMaps.from_arrays({**arrays, key: change(arrays[key])})


def test_a_repair_that_was_stored_without_bins_and_products_is_read(maps):
    """It has one bin."""
    arrays = maps.to_arrays()
    one = {"edges": (2, 1, 0), "residuals": (2, 1, 1, -1)}
    for name in one:
        key = f"repair_0_0_{name}"
        arrays[key] = arrays[key][:, :, : one[name][2]]
    old = {k: v for k, v in arrays.items() if not k.endswith(("_products", "_edges"))}
    old["repair_0_0_residuals"] = old["repair_0_0_residuals"][:, :, 0]
    rows = torch.from_numpy(interaction(3)[0][:50].astype(np.float32))
    uniforms = torch.full((50, maps.n_uniforms), 0.5)
    ours, expected = (
        TransportMaps.from_arrays(a).apply(rows, 0, 1, uniforms) for a in (old, arrays)
    )
    assert torch.equal(ours, expected)


def test_far_rows_stay_finite(maps):
    rows = torch.tensor([[1e30, -1e30, 1e30], [0.0, 1e30, -1e30], [-1e30, 0.0, 0.0]])
    uniforms = torch.full((3, maps.n_uniforms), 0.5)
    assert maps.apply(rows, 0, 1, uniforms).isfinite().all()
