"""What every map can be relied on for, whichever way it was fitted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from monitor import Feature, OneHotGroup
from offline_audit import Columns, map_method
from offline_audit.maps import MAPS
from offline_audit.maps.wgan import WganMethod
from tests.offline_audit.maps.two_groups import (
    MIXED,
    assert_kinds_are_kept,
    assert_no_batch_matters,
    mixed,
)

# A handful of steps: what it has learned does not matter here.
METHODS = {name: map_method(name) for name in MAPS} | {"wgan": WganMethod(steps=20)}
GROUPS = mixed(250, unseen=300)
ONE = Columns.numeric(["a"])

every_map = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@pytest.fixture(scope="module")
def fitted_maps():
    return {
        name: method.fit(GROUPS.source, GROUPS.target, MIXED) for name, method in METHODS.items()
    }


@pytest.mark.parametrize("name", METHODS)
def test_unseen_people_are_carried_and_kinds_are_kept(fitted_maps, name):
    fitted = fitted_maps[name]
    transported = fitted.transport(GROUPS.unseen, 3)
    assert transported.shape == (3 if fitted.splits else 1, *GROUPS.unseen.shape)
    assert transported.dtype == np.float32
    assert_kinds_are_kept(transported, GROUPS)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_row_gets_the_same_counterparts_in_any_batch(fitted_maps, name):
    assert_no_batch_matters(fitted_maps[name], GROUPS.unseen)


@pytest.mark.parametrize("name", METHODS)
def test_nobody_and_one_person_can_be_carried(fitted_maps, name):
    fitted = fitted_maps[name]
    assert fitted.transport(GROUPS.unseen[:0]).shape[1:] == (0, 8)
    assert fitted.transport(GROUPS.unseen[:1]).shape[1:] == (1, 8)


@every_map
def test_fitting_leaves_people_as_they_are_and_heeds_the_seed(method):
    source, target = GROUPS.source.copy(), GROUPS.target.copy()
    one, again = (method.fit(source, target, MIXED, seed=5) for _ in range(2))
    assert np.array_equal(source, GROUPS.source)
    assert np.array_equal(target, GROUPS.target)
    assert np.array_equal(one.transport(GROUPS.unseen, 2), again.transport(GROUPS.unseen, 2))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "wgan"])
def test_groups_of_the_same_people_move_hardly_anybody(name):
    """In scaled features, of which people are about 1.4 apart."""
    same = GROUPS.source
    transported = METHODS[name].fit(same, same[::-1].copy(), MIXED).transport(same, 4)
    moved = np.abs(transported - same) / np.maximum(same.std(0), 1e-6)
    # Entropic transport blurs; sliced steps see draws of whatever is not numeric.
    assert moved.mean() < (0.15 if name in ("entropic", "sliced") else 0.02)
    if name in ("quantile", "joint_quantile", "exact"):
        assert moved.max() == 0


@every_map
def test_one_feature_is_enough(method):
    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(2, 300, 1)).astype(np.float32)
    transported = method.fit(source, target + 2, ONE).transport(source)[0]
    assert np.isfinite(transported).all()
    if method.name != "wgan":
        # Means of 300: standard error .08.
        assert abs(transported.mean() - 2) < 4 * 0.082
        assert stats.spearmanr(source[:, 0], transported[:, 0]).statistic > 0.95


@every_map
def test_a_constant_feature_does_no_harm(method):
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 120, 3)).astype(np.float32)
    columns = Columns.numeric(["a", "both", "here"])
    # Constant in both groups alike, and constant in the source only.
    source[:, 1] = target[:, 1] = 5.0
    source[:, 2] = -1.0
    there = method.fit(source, target, columns).transport(source)
    back = method.fit(target, source, columns).transport(target)
    assert np.isfinite(there).all()
    assert np.isfinite(back).all()
    if method.name != "wgan":
        np.testing.assert_allclose(there[:, :, 1], 5.0, atol=1e-4)
        np.testing.assert_allclose(back[:, :, 2], -1.0, atol=1e-4)


@every_map
def test_a_category_of_one_group_only_goes_to_one_that_the_other_has(method):
    rng = np.random.default_rng(3)
    names = tuple(f"town={t}" for t in "abc")
    columns = Columns(
        features=(
            Feature(name="x", kind="numeric"),
            *(Feature(name=name, kind="onehot") for name in names),
        ),
        one_hot_groups=(OneHotGroup(name="town", features=names),),
    )

    def people(chances):
        place = rng.choice(3, 300, p=chances)
        hot = place[:, None] == np.arange(3)
        return np.column_stack([rng.normal(size=300), hot]).astype(np.float32)

    source, target = people([0.5, 0.0, 0.5]), people([0.3, 0.7, 0.0])
    transported = method.fit(source, target, columns).transport(source, 4)
    assert (transported[..., 1:].sum(-1) == 1).all()
    if method.name in ("quantile", "joint_quantile", "exact", "entropic"):
        assert transported[..., 3].max() == 0
    if method.name != "wgan":
        # 8 standard errors of a share of 300; Gaussian maps know no kinds.
        assert abs(transported[..., 2].mean() - 0.7) < 8 * 0.0265
