"""The contract of all map methods: kinds, batches, seeds, unusual data and valid options."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monitor import Feature, OneHotGroup
from offline_audit import AuditInputError, Columns, map_method
from offline_audit.maps.entropic import EntropicMethod
from offline_audit.maps.exact import ExactMethod
from offline_audit.maps.sliced import SlicedMethod
from offline_audit.maps.transport_map import MAPS, SparseMethod
from offline_audit.maps.wgan import WganMethod
from tests.offline_audit.maps.two_groups import MIXED, gaussians, mixed, mixed_people

METHODS = {
    **{name: map_method(name) for name in MAPS},
    "entropic_barycentric": EntropicMethod(epsilon=0.05, barycentric=True),
    # A few steps: the quality of the map does not matter here.
    "wgan": WganMethod(steps=20),
}
# Methods with few rows or steps, for many small fits.
SMALL_METHODS = {
    **METHODS,
    "sliced": SlicedMethod(steps=4),
    "exact": ExactMethod(rows=15),
    "entropic": EntropicMethod(rows=15, epsilon=0.05),
    "wgan": WganMethod(steps=2),
}
# Methods whose maps do not approximate the target in this test.
UNTRAINED = ("wgan",)
# Methods whose counterparts are values of the target in every column.
VALUES_OF_TARGET = ("quantile", "joint_quantile", "exact", "entropic")
DATA = {"numeric": gaussians(250, unseen=300), "mixed": mixed(250, unseen=300)}

every_map = pytest.mark.parametrize("name", METHODS)


@pytest.fixture(scope="module")
def fitted_maps():
    return {
        (name, kind): method.fit(groups.source, groups.target, groups.columns)
        for name, method in METHODS.items()
        for kind, groups in DATA.items()
    }


def assert_kinds(transported, bounds):
    """Finite; integers within the range of `bounds`, binaries, and one category at most."""
    assert np.isfinite(transported).all()
    children, owns, town, job = (
        transported[..., columns] for columns in (1, 2, slice(3, 6), slice(6, 8))
    )
    assert np.array_equal(children, np.round(children))
    assert children.min() >= bounds[:, 1].min()
    assert children.max() <= bounds[:, 1].max()
    assert set(np.unique(owns)) <= {0, 1}
    assert set(np.unique(town)) <= {0, 1}
    assert (town.sum(-1) == 1).all()
    assert set(np.unique(job)) <= {0, 1}
    assert (job.sum(-1) <= 1).all()


@pytest.mark.parametrize("kind", DATA)
@every_map
def test_transported_rows_have_their_shape_and_kinds(fitted_maps, name, kind):
    fitted, groups = fitted_maps[name, kind], DATA[kind]
    transported = fitted.transport(groups.unseen, 3)
    assert transported.shape == (3 if fitted.splits else 1, *groups.unseen.shape)
    assert transported.dtype == np.float32
    assert np.isfinite(transported).all()
    if kind == "mixed":
        assert_kinds(transported, groups.target)
        # The contract must cover the repair, too.
        assert name != "joint_quantile" or fitted.repair is not None


@pytest.mark.parametrize("kind", DATA)
@every_map
def test_a_row_gets_the_same_counterparts_in_any_batch(fitted_maps, name, kind):
    """Alone, in a batch, in another order and in another call; rows are not modified."""
    fitted, rows = fitted_maps[name, kind], DATA[kind].unseen[:200]
    original = rows.copy()
    together = fitted.transport(rows, 3)
    assert np.array_equal(rows, original)
    order = np.random.default_rng(7).permutation(len(rows))
    assert np.array_equal(fitted.transport(rows[order], 3), together[:, order])
    for index in range(0, len(rows), 23):
        alone = fitted.transport(rows[index : index + 1], 3)
        assert np.array_equal(alone[:, 0], together[:, index])


@every_map
def test_zero_rows_and_one_row_can_be_transported(fitted_maps, name):
    fitted, rows = fitted_maps[name, "mixed"], DATA["mixed"].unseen
    assert fitted.transport(rows[:0]).shape[1:] == (0, 8)
    assert fitted.transport(rows[:1]).shape[1:] == (1, 8)


@every_map
def test_a_fit_does_not_modify_rows_and_depends_on_the_seed_only(name):
    groups = DATA["mixed"]
    source, target = groups.source.copy(), groups.target.copy()
    first, second = (METHODS[name].fit(source, target, MIXED, seed=5) for _ in range(2))
    assert np.array_equal(source, groups.source)
    assert np.array_equal(target, groups.target)
    assert np.array_equal(first.transport(groups.unseen, 2), second.transport(groups.unseen, 2))


@pytest.mark.parametrize("name", SMALL_METHODS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n_source=st.integers(2, 40), n_target=st.integers(2, 40))
def test_kinds_are_preserved_for_any_data(name, seed, n_source, n_target):
    rng = np.random.default_rng(seed)
    source, target = mixed_people(n_source, 0, rng), mixed_people(n_target, 1, rng)
    unseen = mixed_people(30, 0, rng)
    fitted = SMALL_METHODS[name].fit(source, target, MIXED, seed=seed % 1_000)
    # Sparse methods do not move features whose difference is not significant.
    sparse = isinstance(SMALL_METHODS[name], SparseMethod)
    bounds = np.concatenate([target, unseen]) if sparse else target
    assert_kinds(fitted.transport(unseen, 2), bounds)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in UNTRAINED])
def test_equal_groups_hardly_move(name):
    """In standard deviations; two random rows differ by about 1.4."""
    source = DATA["mixed"].source
    fitted = METHODS[name].fit(source, source[::-1].copy(), MIXED)
    moved = np.abs(fitted.transport(source, 4) - source) / np.maximum(source.std(0), 1e-6)
    # Entropic maps are stochastic, and sliced maps jitter values that are not numeric.
    assert moved.mean() < (0.15 if "entropic" in name or name == "sliced" else 0.02)
    if name in ("quantile", "joint_quantile", "exact"):
        assert moved.max() == 0


@every_map
def test_a_single_feature_is_transported(name):
    rng = np.random.default_rng(1)
    source, target = rng.normal(size=(2, 300, 1)).astype(np.float32)
    fitted = METHODS[name].fit(source, target + 2, Columns.numeric(["a"]))
    transported = fitted.transport(source)[0]
    assert np.isfinite(transported).all()
    if name not in UNTRAINED:
        # Standard error of a difference of two means of 300: .082.
        assert abs(transported.mean() - 2) < 4 * 0.082
        assert stats.spearmanr(source[:, 0], transported[:, 0]).statistic > 0.95


@every_map
def test_constant_features_are_transported(name):
    rng = np.random.default_rng(2)
    method = METHODS[name]
    source, target = rng.normal(size=(2, 120, 3)).astype(np.float32)
    columns = Columns.numeric(["a", "both", "source_only"])
    source[:, 1] = target[:, 1] = 5.0
    source[:, 2] = -1.0
    forward = method.fit(source, target, columns).transport(source)
    backward = method.fit(target, source, columns).transport(target)
    assert np.isfinite(forward).all()
    assert np.isfinite(backward).all()
    if name not in UNTRAINED:
        np.testing.assert_allclose(forward[:, :, 1], 5.0, atol=1e-4)
        np.testing.assert_allclose(backward[:, :, 2], -1.0, atol=1e-4)


@every_map
def test_groups_of_identical_rows_are_not_moved(name):
    rows = np.full((5, 2), 2.0, np.float32)
    columns = Columns.numeric(["a", "b"])
    for target in (rows, rows[:2]):
        transported = METHODS[name].fit(rows, target, columns).transport(rows)[0]
        assert np.isfinite(transported).all()
        if name not in UNTRAINED:
            np.testing.assert_allclose(transported, rows, rtol=1e-6)


@every_map
def test_a_category_of_the_source_only_is_mapped_to_categories_of_the_target(name):
    rng = np.random.default_rng(3)
    names = tuple(f"town={town}" for town in "abc")
    columns = Columns(
        features=(
            Feature(name="x", kind="numeric"),
            *(Feature(name=name, kind="onehot") for name in names),
        ),
        one_hot_groups=(OneHotGroup(name="town", features=names),),
    )

    def rows(probabilities):
        one_hot = rng.choice(3, 300, p=probabilities)[:, None] == np.arange(3)
        return np.column_stack([rng.normal(size=300), one_hot]).astype(np.float32)

    source, target = rows([0.5, 0.0, 0.5]), rows([0.3, 0.7, 0.0])
    transported = METHODS[name].fit(source, target, columns).transport(source, 4)
    assert (transported[..., 1:].sum(-1) == 1).all()
    if name in VALUES_OF_TARGET:
        assert transported[..., 3].max() == 0
    if name not in UNTRAINED:
        # 8 standard errors of a share of 300, because Gaussian maps ignore kinds.
        assert abs(transported[..., 2].mean() - 0.7) < 8 * 0.0265


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (ExactMethod, {"rows": 0}),
        (EntropicMethod, {"rows": 0}),
        (EntropicMethod, {"epsilon": 0.0}),
        (EntropicMethod, {"epsilon": float("nan")}),
        (SlicedMethod, {"steps": 0}),
        (WganMethod, {"steps": 0}),
        (WganMethod, {"batch": 0}),
        (WganMethod, {"weight": -1.0}),
        (WganMethod, {"weight": float("nan")}),
    ],
)
def test_invalid_options_are_refused_by_name(method, options):
    with pytest.raises(AuditInputError, match=next(iter(options))):
        method(**options)
