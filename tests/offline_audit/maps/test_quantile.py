"""The quantile map: the monitor's map, the names of moved features, draws and refits."""

from __future__ import annotations

import numpy as np
import torch

from monitor.scoring.counterfactual import fit_transport_maps, row_uniforms
from offline_audit import Columns
from offline_audit.maps.quantile import FAMILY_LEVEL, QuantileMethod
from offline_audit.maps.transport_map import SparseMethod
from tests.offline_audit.maps.two_groups import MIXED, mixed, mixed_people

TWO = Columns.numeric(["a", "b"])


def shifted(n, seed=0, by=(1.0, 0.0)):
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(2, n, 2))
    return source.astype(np.float32), (target + by).astype(np.float32)


def test_it_equals_the_map_of_the_monitor():
    g = mixed(800)
    maps = fit_transport_maps(
        np.concatenate([g.source, g.target]),
        np.repeat(np.array([0, 1], np.int8), 800),
        MIXED.features,
        MIXED.one_hot_groups,
        2,
        level=FAMILY_LEVEL / len(MIXED.variables),
    )
    rows = torch.from_numpy(g.unseen)
    source_codes = torch.zeros((1, len(rows)), dtype=torch.long)
    expected = maps.transport(
        rows, source_codes, source_codes + 1, row_uniforms(rows, maps.n_uniforms)[None]
    ).features
    transported = QuantileMethod().fit(g.source, g.target, MIXED).transport(g.unseen)
    assert np.array_equal(transported, expected.numpy())


def test_features_that_do_not_differ_are_not_moved():
    source, target = shifted(500)
    fitted = QuantileMethod().fit(source, target, TWO)
    assert fitted.moved == ("a",)
    assert fitted.splits
    transported = fitted.transport(source, 4)
    assert (transported[:, :, 1] == source[:, 1]).all()
    assert (transported[:, :, 0] != source[:, 0]).all()
    identity = QuantileMethod().fit(source, source[::-1], TWO)
    assert identity.moved == ()
    assert not identity.splits
    assert np.array_equal(identity.transport(source, 4), source[None])


def test_categories_that_move_are_named_by_their_group():
    g = mixed(1_000)
    moved = QuantileMethod().fit(g.source, g.target, MIXED).moved
    assert set(moved) == {"income", "children", "owns", "town", "job"}


def test_the_identity_check_agrees_with_the_fit():
    """About 1 in 20 of 300 random splits moves a row."""
    method = QuantileMethod()
    assert isinstance(method, SparseMethod)
    rng = np.random.default_rng(3)
    people = np.concatenate([mixed_people(80, 0, rng), mixed_people(80, 1, rng)])
    is_identity = method.identity_check(people, MIXED)
    moved = 0
    for _ in range(300):
        first = rng.permutation(160) < 70
        fitted = method.fit(people[first], people[~first], MIXED)
        assert is_identity(first) == (not fitted.splits)
        moved += fitted.splits
    assert 1 <= moved <= 30


def test_a_refit_moves_the_same_features_only():
    source, target = shifted(400)
    method = QuantileMethod()
    fitted = method.fit(source, target, TWO)
    # Here the second feature differs and the first does not.
    new_source, new_target = shifted(400, seed=1, by=(0.0, 2.0))
    assert method.fit(new_source, new_target, TWO).moved == ("b",)
    refitted = method.refit(fitted, new_source, new_target, TWO)
    assert refitted.moved == ("a",)
    transported = refitted.transport(new_source)[0]
    assert np.array_equal(transported[:, 1], new_source[:, 1])
    # Transported by the ranks of the new rows.
    assert abs(transported[:, 0].mean() - new_target[:, 0].mean()) < 0.05


def test_draws_of_one_row_are_independent_between_features():
    """Two binary features of identical rows."""
    rng = np.random.default_rng(0)
    columns = Columns(features=tuple(f.model_copy(update={"kind": "binary"}) for f in TWO.features))
    target = (rng.random((4_000, 2)) < (0.5, 0.3)).astype(np.float32)
    source = np.zeros((4_000, 2), np.float32)
    counterparts = QuantileMethod().fit(source, target, columns).transport(source[:1], 256)[:, 0]
    shares = np.array([(target == pair).all(1).mean() for pair in ((1, 1), (1, 0), (0, 1))])
    drawn_shares = np.array(
        [(counterparts == pair).all(1).mean() for pair in ((1, 1), (1, 0), (0, 1))]
    )
    # Means are exact up to the grid; the joint shares are those of 256 random draws.
    np.testing.assert_allclose(counterparts.mean(0), target.mean(0), atol=2 / 256)
    np.testing.assert_allclose(drawn_shares, shares, atol=4 * np.sqrt(0.25 / 256))


def test_duplicates_get_different_random_counterparts():
    rng = np.random.default_rng(1)
    columns = Columns(features=(TWO.features[0].model_copy(update={"kind": "binary"}),))
    source = np.zeros((1_000, 1), np.float32)
    target = (rng.random((1_000, 1)) < 0.4).astype(np.float32)
    fitted = QuantileMethod().fit(source, target, columns)
    assert fitted.transport(source)[0].std() == 0
    counterparts = fitted.random_counterparts(source, 0)
    assert abs(counterparts.mean() - target.mean()) < 4 * np.sqrt(0.24 / 1_000)
    assert np.array_equal(counterparts, fitted.random_counterparts(source, 0))
    assert not np.array_equal(counterparts, fitted.random_counterparts(source, 1))


def test_rows_are_transported_equally_in_large_batches():
    source, target = shifted(40_000)
    fitted = QuantileMethod().fit(source[:500], target[:500], TWO)
    assert np.array_equal(
        fitted.transport(source)[0][35_000:], fitted.transport(source[35_000:])[0]
    )
