"""Variables whose dependence differs between groups are found, and transported rows have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from monitor import Feature, OneHotGroup
from monitor.scoring.counterfactual import TransportMaps, fit_transport_maps
from monitor.scoring.counterfactual.pairs import BinnedRows, Variables

N = 6_000


def numeric(width: int) -> list[Feature]:
    return [Feature(name=f"x{index}", kind="numeric") for index in range(width)]


def fitted(rows: np.ndarray, groups: np.ndarray, kinds, one_hot=(), **more) -> TransportMaps:
    return fit_transport_maps(
        rows.astype(np.float32), groups.astype(np.int8), kinds, one_hot, 2, repair=True, **more
    )


def transported(maps: TransportMaps, rows: np.ndarray, order: int = 0) -> np.ndarray:
    uniforms = torch.from_numpy(
        np.random.default_rng(5).random((len(rows), maps.n_uniforms), np.float32)
    )
    features = torch.from_numpy(rows.astype(np.float32))
    return maps.apply(features, 0, 1, uniforms, order).numpy()


def correlation_only(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Same margins in both groups; correlation .7 in one and −.7 in the other."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    rows = rng.standard_normal((2 * N, 3))
    sign = np.where(groups == 1, -0.7, 0.7)
    rows[:, 1] = sign * rows[:, 0] + np.sqrt(1 - 0.49) * rows[:, 1]
    return rows, groups


def interaction(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The group shifts the second feature by an amount that depends on the first."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    rows = rng.standard_normal((2 * N, 3))
    rows[:, 1] += groups * (1 + 1.5 * rows[:, 0])
    return rows, groups


def product(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The third feature follows the product of the others, with the other sign in one group."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    rows = rng.standard_normal((2 * N, 3))
    rows[:, 2] = (1 - 2 * groups) * 0.9 * rows[:, 0] * rows[:, 1] + 0.5 * rows[:, 2]
    return rows, groups


def test_a_feature_is_transported_given_one_that_does_not_differ():
    """Margins and dependence of the target, against which the map of single features fails."""
    rows, groups = interaction(1)
    maps = fitted(rows, groups, numeric(3))
    assert len(maps.repairs) == 1
    new, _ = interaction(2)
    source = new[_ == 0]
    moved = transported(maps, source)
    truth = source[:, 1] + 1 + 1.5 * source[:, 0]
    assert np.array_equal(moved[:, [0, 2]], source[:, [0, 2]].astype(np.float32))
    by_feature = transported(fit_by_feature(rows, groups), source)
    error = np.abs(moved[:, 1] - truth).mean()
    assert error < 0.15
    assert np.abs(by_feature[:, 1] - truth).mean() > 5 * error


def fit_by_feature(rows: np.ndarray, groups: np.ndarray) -> TransportMaps:
    return fit_transport_maps(
        rows.astype(np.float32), groups.astype(np.int8), numeric(rows.shape[1]), (), 2
    )


def test_equal_margins_are_repaired_in_both_directions():
    """Each order moves one of the two features, and both reproduce the target's correlation."""
    rows, groups = correlation_only(1)
    maps = fitted(rows, groups, numeric(3))
    assert maps.orders == 2
    new, new_groups = correlation_only(2)
    source, target = new[new_groups == 0], new[new_groups == 1]
    moved_columns = set()
    for order in range(2):
        moved = transported(maps, source, order)
        (column,) = np.flatnonzero((moved != source.astype(np.float32)).any(0))
        moved_columns.add(int(column))
        assert np.corrcoef(moved[:, :2].T)[0, 1] == pytest.approx(-0.7, abs=0.04)
        assert stats.ks_2samp(moved[:, column], target[:, column]).statistic < 0.035
    assert moved_columns == {0, 1}


@pytest.mark.parametrize(("order", "moves"), [(("x0", "x1"), 1), (("x2", "x1", "x0"), 0)])
def test_the_later_feature_of_a_causal_order_moves(order, moves):
    rows, groups = correlation_only(1)
    maps = fitted(rows, groups, numeric(3), order=order)
    assert maps.orders == 1
    source = rows[groups == 0]
    moved = transported(maps, source)
    assert np.flatnonzero((moved != source.astype(np.float32)).any(0)).tolist() == [moves]


def test_independent_groups_need_no_repair():
    rng = np.random.default_rng(3)
    rows = rng.multivariate_normal(np.zeros(3), np.eye(3) * 0.5 + 0.5, 2 * N)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    rows[groups == 1] += [0.0, 1.0, 0.0]
    assert fitted(rows, groups, numeric(3)).repairs == ()


def test_an_ordered_feature_is_transported_given_a_category():
    """The relation of a category and a count is reversed in the other group."""
    rng = np.random.default_rng(4)
    groups = (rng.random(2 * N) < 0.5).astype(int)
    trade = rng.integers(3, size=2 * N)
    hours = np.round(
        30 + 5 * np.where(groups == 1, -1, 1) * (trade - 1) + 2 * rng.normal(size=2 * N)
    )
    rows = np.column_stack([trade[:, None] == np.arange(3), hours]).astype(np.float32)
    kinds = [Feature(name=f"trade={i}", kind="onehot") for i in range(3)]
    kinds.append(Feature(name="hours", kind="integer"))
    one_hot = [OneHotGroup(name="trade", features=tuple(kind.name for kind in kinds[:3]))]
    maps = fitted(rows, groups, kinds, one_hot)
    source, target = rows[groups == 0], rows[groups == 1]
    moved = transported(maps, source)
    assert np.array_equal(moved[:, :3], source[:, :3])
    assert np.array_equal(moved[:, 3], np.round(moved[:, 3]))
    for category in range(3):
        ours = moved[moved[:, category] == 1, 3].mean()
        assert ours == pytest.approx(target[target[:, category] == 1, 3].mean(), abs=0.5)


@pytest.mark.calibration
def test_pairs_of_equal_groups_are_rejected_at_the_stated_level():
    """At most 1% of families; 300 runs, exact binomial bound at 99.9%."""
    rng, rejected = np.random.default_rng(6), 0
    variables = Variables(ordered=[0, 1, 2, 3], categories=[])
    for _ in range(300):
        rows = rng.multivariate_normal(np.zeros(4), np.eye(4) * 0.5 + 0.5, 600).astype(np.float32)
        rows[:, 3] = np.round(rows[:, 3])
        binned = BinnedRows.of(rows, variables)
        rejected += bool(binned.differing(rng.random(600) < 0.4, 0.01))
    assert rejected <= stats.binom.ppf(0.999, 300, 0.01)


def test_a_pair_that_differs_is_found():
    rows, groups = correlation_only(7)
    binned = BinnedRows.of(rows.astype(np.float32), Variables(ordered=[0, 1, 2], categories=[]))
    assert binned.differing(groups == 1, 0.01) == [(0, 1)]
