"""Features on one scale and back: moments, kinds, and rounding that keeps means."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.maps.columns import Scaling, category_codes
from offline_audit.maps.draws import draw_uniforms
from tests.offline_audit.maps.two_groups import MIXED, mixed


def test_both_groups_have_the_same_say_however_many_they_are():
    rng = np.random.default_rng(0)
    few, many = rng.normal(0, 1, (50, 2)), rng.normal(4, 2, (5_000, 2))
    columns = Columns.numeric(["a", "b"])
    scaling = Scaling.of(few.astype(np.float32), many.astype(np.float32), columns)
    weights = np.repeat([1 / 50, 1 / 5_000], [50, 5_000])[:, None] / 2
    both = np.concatenate([few, many])
    mean = (weights * both).sum(0)
    np.testing.assert_allclose(scaling.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(scaling.scale**2, (weights * (both - mean) ** 2).sum(0), rtol=1e-5)


def test_a_category_weighs_as_much_as_a_number():
    g = mixed(2_000)
    scaling = Scaling.of(g.source, g.target, MIXED)
    scaled = scaling.scaled(np.concatenate([g.source, g.target]))
    for variable in MIXED.variables:
        columns = list(variable.columns)
        assert scaled[:, columns].var(0).sum() == pytest.approx(1)
        assert len(set(scaling.scale[columns])) == 1


def test_a_constant_is_left_at_its_own_scale():
    people = np.full((10, 1), 1e6, np.float32)
    scaling = Scaling.of(people, people, Columns.numeric(["a"]))
    assert scaling.scale.tolist() == [1.0]
    assert scaling.scaled(people).tolist() == [[0.0]] * 10


def test_people_who_come_back_as_they_went_are_the_same():
    g = mixed(500)
    scaling = Scaling.of(g.source, g.target, MIXED)
    # Nothing is rounded up where nothing is left over; a hair less than whole may be.
    uniforms = draw_uniforms(g.target, len(MIXED.variables), 0, 1) * 0.99 + 0.005
    back = scaling.unscaled(scaling.scaled(g.target), uniforms)
    np.testing.assert_allclose(back, g.target, rtol=1e-6)


def test_rounding_keeps_means_and_stays_within_the_target():
    columns = Columns(
        features=(Feature(name="i", kind="integer"), Feature(name="b", kind="binary"))
    )
    target = np.array([[2, 0], [3, 1], [4, 1]], np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 1_000
    uniforms = np.column_stack([(np.arange(n) + 0.5) / n] * 2)
    asked = np.tile([2.3, 0.25], (n, 1))
    settled = scaling.unscaled((asked - scaling.mean) / scaling.scale, uniforms)
    np.testing.assert_allclose(settled.mean(0), asked[0], atol=1 / n)
    beyond = np.tile([9.0, -3.0], (n, 1))
    settled = scaling.unscaled((beyond - scaling.mean) / scaling.scale, uniforms)
    assert np.unique(settled, axis=0).tolist() == [[4.0, 0.0]]


@pytest.mark.parametrize(
    ("values", "shares"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([-1.0, 0.4, 0.4], [0, 0.5, 0.5]),
        ([-1.0, -2.0, -3.0], [1 / 3] * 3),
        ([2.0, 0.0, 0.0], [1, 0, 0]),
    ],
)
def test_a_category_is_drawn_in_the_shares_that_its_columns_hold(values, shares):
    columns = Columns(features=MIXED.features[3:6], one_hot_groups=MIXED.one_hot_groups[:1])
    target = np.eye(3, dtype=np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 900
    asked = (np.tile(values, (n, 1)) - scaling.mean) / scaling.scale
    settled = scaling.unscaled(asked, ((np.arange(n) + 0.5) / n)[:, None])
    assert (settled.sum(1) == 1).all()
    np.testing.assert_allclose(settled.mean(0), shares, atol=1 / n)


def test_a_dropped_category_takes_what_the_others_leave():
    columns = Columns(features=MIXED.features[6:8], one_hot_groups=MIXED.one_hot_groups[1:])
    target = np.array([[1, 0], [0, 1], [0, 0]], np.float32)
    scaling = Scaling.of(target, target, columns)
    n = 1_000
    asked = (np.tile([0.1, 0.2], (n, 1)) - scaling.mean) / scaling.scale
    settled = scaling.unscaled(asked, ((np.arange(n) + 0.5) / n)[:, None])
    np.testing.assert_allclose(settled.mean(0), [0.1, 0.2], atol=1 / n)
    assert set(settled.sum(1)) == {0.0, 1.0}


def test_the_dropped_category_is_the_last_place():
    columns = Columns(
        features=(Feature(name="j=x", kind="onehot"), Feature(name="j=y", kind="onehot")),
        one_hot_groups=(OneHotGroup(name="j", features=("j=x", "j=y"), dropped="z"),),
    )
    (variable,) = columns.variables
    assert variable.categories == ("x", "y", "z")
    rows = np.array([[0, 1], [0, 0], [1, 0]], np.float32)
    assert category_codes(rows, variable).tolist() == [1, 2, 0]
