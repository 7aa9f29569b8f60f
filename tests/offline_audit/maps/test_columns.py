"""Scaling of features and back: moments, kinds, and rounding that preserves means."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.maps.columns import Scaling, category_codes
from offline_audit.maps.transport_map import draw_uniforms
from tests.offline_audit.maps.two_groups import MIXED, mixed


def test_both_groups_have_equal_weight_whatever_their_sizes():
    rng = np.random.default_rng(0)
    few, many = rng.normal(0, 1, (50, 2)), rng.normal(4, 2, (5_000, 2))
    columns = Columns.numeric(["a", "b"])
    scaling = Scaling.of(few.astype(np.float32), many.astype(np.float32), columns)
    weights = np.repeat([1 / 50, 1 / 5_000], [50, 5_000])[:, None] / 2
    both = np.concatenate([few, many])
    mean = (weights * both).sum(0)
    np.testing.assert_allclose(scaling.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(scaling.scale**2, (weights * (both - mean) ** 2).sum(0), rtol=1e-5)


def test_a_category_has_the_variance_of_a_number():
    g = mixed(2_000)
    scaling = Scaling.of(g.source, g.target, MIXED)
    scaled = scaling.scaled(np.concatenate([g.source, g.target]))
    for variable in MIXED.variables:
        columns = list(variable.columns)
        assert scaled[:, columns].var(0).sum() == pytest.approx(1)
        assert len(set(scaling.scale[columns])) == 1


def test_a_constant_has_scale_one():
    people = np.full((10, 1), 1e6, np.float32)
    scaling = Scaling.of(people, people, Columns.numeric(["a"]))
    assert scaling.scale.tolist() == [1.0]
    assert scaling.scaled(people).tolist() == [[0.0]] * 10


def test_scaling_and_back_is_the_identity():
    g = mixed(500)
    scaling = Scaling.of(g.source, g.target, MIXED)
    # Away from 0 and 1, where rounding errors could change an integer.
    uniforms = draw_uniforms(g.target, len(MIXED.variables), 0, 1) * 0.99 + 0.005
    restored = scaling.unscaled(scaling.scaled(g.target), uniforms)
    np.testing.assert_allclose(restored, g.target, rtol=1e-6)


def test_rounding_preserves_means_within_the_targets_range():
    columns = Columns(
        features=(Feature(name="i", kind="integer"), Feature(name="b", kind="binary"))
    )
    target = np.array([[2, 0], [3, 1], [4, 1]], np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 1_000
    uniforms = np.column_stack([(np.arange(n) + 0.5) / n] * 2)
    requested = np.tile([2.3, 0.25], (n, 1))
    features = scaling.unscaled((requested - scaling.mean) / scaling.scale, uniforms)
    np.testing.assert_allclose(features.mean(0), requested[0], atol=1 / n)
    out_of_range = np.tile([9.0, -3.0], (n, 1))
    features = scaling.unscaled((out_of_range - scaling.mean) / scaling.scale, uniforms)
    assert np.unique(features, axis=0).tolist() == [[4.0, 0.0]]


@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([-1.0, 0.4, 0.4], [0, 0.5, 0.5]),
        ([-1.0, -2.0, -3.0], [1 / 3] * 3),
        ([2.0, 0.0, 0.0], [1, 0, 0]),
    ],
)
def test_a_category_is_drawn_in_proportion_to_its_columns(values, shares):
    columns = Columns(features=MIXED.features[3:6], one_hot_groups=MIXED.one_hot_groups[:1])
    target = np.eye(3, dtype=np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 900
    requested = (np.tile(values, (n, 1)) - scaling.mean) / scaling.scale
    features = scaling.unscaled(requested, ((np.arange(n) + 0.5) / n)[:, None])
    assert (features.sum(1) == 1).all()
    np.testing.assert_allclose(features.mean(0), shares, atol=1 / n)


def test_a_dropped_category_gets_the_remaining_probability():
    columns = Columns(features=MIXED.features[6:8], one_hot_groups=MIXED.one_hot_groups[1:])
    target = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 1_000
    requested = (np.tile([0.1, 0.2], (n, 1)) - scaling.mean) / scaling.scale
    features = scaling.unscaled(requested, ((np.arange(n) + 0.5) / n)[:, None])
    np.testing.assert_allclose(features.mean(0), [0.1, 0.2], atol=1 / n)
    assert set(features.sum(1)) == {0.0, 1.0}


def test_the_dropped_category_has_the_last_code():
    columns = Columns(
        features=(Feature(name="j=x", kind="onehot"), Feature(name="j=y", kind="onehot")),
        one_hot_groups=(OneHotGroup(name="j", features=("j=x", "j=y"), dropped="z"),),
    )
    (variable,) = columns.variables
    assert variable.categories == ("x", "y", "z")
    rows = np.array([[0, 1], [0, 0], [1, 0]], np.float32)
    assert category_codes(rows, variable).tolist() == [1, 2, 0]
