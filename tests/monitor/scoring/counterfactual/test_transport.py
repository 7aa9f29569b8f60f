"""Transport maps match marginals, preserve kinds, and give the same row the same result."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from monitor import Feature, OneHotGroup, World
from monitor.scoring.counterfactual import (
    TransportMaps,
    fit_transport_maps,
    row_uniforms,
    shifted_uniforms,
)

WORLD = World()


@pytest.fixture(scope="module")
def people():
    return WORLD.people(40_000, seed=21)


@pytest.fixture(scope="module", params=["sex", "ethnicity"])
def attribute(request):
    return next(a for a in WORLD.attributes if a.name == request.param)


@pytest.fixture(scope="module")
def maps(people, attribute):
    return fit_transport_maps(
        people.features,
        people.groups[attribute.name],
        WORLD.features,
        WORLD.one_hot_groups,
        len(attribute.groups),
    )


def transported(maps, features, source, target, shift=0.0):
    uniforms = shifted_uniforms(row_uniforms(features, maps.n_uniforms), shift)
    return maps.apply(features, source, target, uniforms)


def test_a_transported_group_has_the_targets_marginals(maps, attribute):
    fresh = WORLD.people(60_000, seed=22)
    groups = fresh.groups[attribute.name]
    last = len(attribute.groups) - 1
    for source, target in ((0, last), (last, 0)):
        here = torch.from_numpy(fresh.features[groups == source])
        there = fresh.features[groups == target]
        moved = transported(maps, here, source, target).numpy()
        for column in range(25):
            # Two-sample KS at 5σ, plus the grid of 513 points and the fit's own sampling error.
            bound = 2.5 * np.sqrt(1 / len(here) + 1 / len(there)) + 0.02
            assert stats.ks_2samp(moved[:, column], there[:, column]).statistic < bound, column


def test_every_feature_keeps_its_kind(maps, people):
    moved = transported(maps, torch.from_numpy(people.features[:5000]), 0, 1).numpy()
    names = [feature.name for feature in WORLD.features]
    for feature, column in zip(WORLD.features, moved.T, strict=True):
        if feature.kind == "integer":
            assert np.array_equal(column, np.round(column))
        if feature.kind in ("binary", "onehot"):
            assert set(np.unique(column)) <= {0, 1}
    for group in WORLD.one_hot_groups:
        assert (moved[:, [names.index(n) for n in group.features]].sum(1) == 1).all()


def test_features_that_do_not_differ_are_not_changed(maps, people):
    features = torch.from_numpy(people.features[:5000])
    moved = transported(maps, features, 0, 1)
    unaffected = torch.from_numpy(WORLD.legitimate)
    # The tests have a level of 1%.
    assert (moved == features)[:, unaffected].all(0).float().mean() > 0.8
    assert (moved != features)[:, ~unaffected].any()


def test_a_numeric_proxy_is_transported_to_its_true_counterfactual(people):
    maps = fit_transport_maps(
        people.features, people.groups["ethnicity"], WORLD.features, WORLD.one_hot_groups, 4
    )
    column = [f.name for f in WORLD.features].index("commute_minutes")
    fresh = WORLD.people(20_000, seed=23)
    mine = fresh.groups["ethnicity"] == 0
    truth = fresh.counterfactual("ethnicity", "dovar")[mine, column]
    result = transported(maps, torch.from_numpy(fresh.features[mine]), 0, 3)[:, column].numpy()
    assert np.median(np.abs(result / truth - 1)) < 0.02


def test_a_row_gets_the_same_result_alone_and_in_any_batch(maps, people):
    features = torch.from_numpy(people.features[:300])
    whole = transported(maps, features, 1, 0, shift=0.4)
    alone = torch.cat([transported(maps, row[None], 1, 0, shift=0.4) for row in features])
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole, alone)
    assert torch.equal(whole[order], transported(maps, features[order], 1, 0, shift=0.4))


def test_the_input_is_not_modified(maps, people):
    features = torch.from_numpy(people.features[:100].copy())
    transported(maps, features, 0, 1)
    assert torch.equal(features, torch.from_numpy(people.features[:100]))


def test_stored_maps_give_the_same_results(maps, people):
    again = TransportMaps.from_arrays(maps.to_arrays())
    features = torch.from_numpy(people.features[:200])
    assert torch.equal(transported(again, features, 0, 1), transported(maps, features, 0, 1))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ordered", lambda a: a * 0),
        ("ordered", lambda a: a + 900),
        ("ordered", lambda a: a[:-1]),
        ("ordered", lambda a: -a),
        ("continuous", lambda a: a[:-1]),
        ("continuous", lambda a: a.astype(float)),
        ("quantiles", lambda a: a.astype(float)),
        ("quantiles", lambda a: a * np.nan),
        ("quantiles", lambda a: -a),
        ("quantiles", lambda a: a[:, :, :-1]),
        ("ordered_moves", lambda a: a[1:]),
        ("category_moves", lambda a: a.astype(np.float32)),
        ("categories_0", lambda a: a + 1),
        ("shares_0", lambda a: a[:, :-1]),
        ("shares_0", lambda a: a - 2),
        ("shares_1", lambda a: a * np.nan),
    ],
)
def test_inconsistent_stored_maps_are_rejected(maps, name, change):
    arrays = maps.to_arrays()
    with pytest.raises((ValueError, KeyError)):
        TransportMaps.from_arrays(arrays | {name: change(arrays[name])})


def test_uniforms_of_rows_are_uniform_and_independent():
    features = torch.from_numpy(WORLD.people(20_000, seed=24).features)
    uniforms = row_uniforms(features, 6).numpy()
    for column in uniforms.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-4
    correlation = np.corrcoef(uniforms.T) - np.eye(6)
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)
    assert ((uniforms >= 0) & (uniforms < 1)).all()


def test_zero_and_negative_zero_have_the_same_uniforms():
    zeros = torch.zeros(1, 3)
    assert torch.equal(row_uniforms(zeros, 4), row_uniforms(-zeros, 4))


def test_shifted_uniforms_wrap_around():
    first = row_uniforms(torch.arange(150.0).reshape(50, 3), 2)
    draws = torch.stack([shifted_uniforms(first, shift) for shift in (0, 1 / 3, 2 / 3)])
    assert ((draws >= 0) & (draws < 1)).all()
    assert torch.allclose(draws.sort(0).values.diff(dim=0), torch.tensor(1 / 3), atol=1e-5)


KINDS = (
    Feature(name="n", kind="numeric"),
    Feature(name="i", kind="integer"),
    Feature(name="b", kind="binary"),
    Feature(name="c=1", kind="onehot"),
    Feature(name="c=2", kind="onehot"),
)
DROPPED = (OneHotGroup(name="c", features=("c=1", "c=2"), dropped="other"),)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), shift=st.floats(-3, 3), share=st.floats(0.02, 0.98))
def test_kinds_are_preserved_for_any_data(seed, shift, share):
    rng = np.random.default_rng(seed)
    groups = (rng.random(400) < 0.4).astype(np.int8)
    groups[:2] = [0, 1]
    n = rng.standard_t(2, 400) * 10.0 ** rng.integers(-3, 4) + shift * groups
    n[rng.random(400) < 0.3] = 0  # a peak at zero
    category = rng.choice(3, 400, p=[share / 2, share / 2, 1 - share])
    category = np.where(groups == 1, 2 - category, category)
    rows = np.column_stack(
        [
            n,
            rng.poisson(3 + shift**2 * groups),
            rng.random(400) < share,
            category == 0,
            category == 1,
        ]
    ).astype(np.float32)
    maps = fit_transport_maps(rows, groups, KINDS, DROPPED, 2)
    # Rows far outside the data, too.
    rows[:20, 0] *= 100
    features = torch.from_numpy(rows)
    for source in (0, 1):
        moved = transported(maps, features, source, 1 - source).numpy()
        assert np.isfinite(moved).all()
        assert np.array_equal(moved[:, 1], np.round(moved[:, 1]))
        assert set(np.unique(moved[:, 2:])) <= {0, 1}
        assert (moved[:, 3:].sum(1) <= 1).all()
        assert set(moved[:, 1]) <= set(rows[:, 1])
