"""The number of draws follows the measured gain and cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.dependence_models import THREE_GROUPS
from monitor import Decision, Feature, ProtectedAttribute
from monitor.fitting import draws as module
from monitor.fitting.draws import choose_draws, with_chosen_draws
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.sensitivity import Sensitivity
from tests.bundles import small_spec

THREE = THREE_GROUPS.people(12_000, seed=5)
ATTRIBUTE = THREE_GROUPS.attribute
# The mechanism of the label, from features that have many ties.
WEIGHTS = torch.tensor([0.0, -1.2, 1.5, 0.0, 0.3, -0.5, 0.0, 0.9, -0.9, 0.6])


def joint_pass(features, groups, kinds, one_hot, attribute, weights) -> Sensitivity:
    """A linear classifier, and a status model that knows the shares of the groups only."""
    k = len(attribute.groups)
    x = torch.from_numpy(features)
    middle = float((x @ weights).median())
    shares = torch.bincount(torch.from_numpy(groups).long(), minlength=k) / len(groups)
    return Sensitivity(
        logit=lambda rows: rows @ weights - middle,
        status=lambda rows: shares.log().expand(len(rows), k) + 0 * rows[:, :1],
        maps={attribute.name: fit_transport_maps(features, groups, kinds, one_hot, k)},
        spec=small_spec(
            features=kinds,
            one_hot_groups=one_hot,
            protected_attributes=(attribute,),
            decision=Decision(),
        ),
        logit_spread=float((x @ weights).std()),
    )


@pytest.fixture(scope="module")
def tied() -> Sensitivity:
    return joint_pass(
        THREE.features,
        THREE.groups[ATTRIBUTE.name],
        THREE_GROUPS.features,
        THREE_GROUPS.one_hot_groups,
        ATTRIBUTE,
        WEIGHTS,
    )


def numbers(values: int, n: int = 6_000) -> tuple[Sensitivity, np.ndarray, np.ndarray]:
    """Two groups and one feature that differs: continuous, or with a number of values."""
    rng = np.random.default_rng(2)
    groups = (rng.random(n) < 0.4).astype(np.int8)
    shifted = rng.normal(0.8 * groups, 1)
    if values:
        shifted = np.floor(shifted * values)
    features = np.column_stack([shifted, rng.normal(size=n)]).astype(np.float32)
    kinds = tuple(
        Feature(name=name, kind="integer" if values and name == "a" else "numeric") for name in "ab"
    )
    attribute = ProtectedAttribute(name="group", groups=("one", "other"))
    weights = torch.tensor([1.0, 1.0])
    return joint_pass(features, groups, kinds, (), attribute, weights), features, groups


def test_deterministic_maps_have_one_draw_and_the_same_scores():
    sensitivity, features, groups = numbers(0)
    choice = choose_draws(sensitivity, features, groups, "group", seed=0)
    assert (choice.draws, choice.cost) == (1, {1: 2})
    x = torch.from_numpy(features[:300])
    one, many = (sensitivity.flip_probability(x, "group", d) for d in (1, 16))
    assert one.max() > 0.1
    assert torch.allclose(one, many, atol=1e-6)


def test_maps_with_little_chance_keep_the_fewest_draws():
    sensitivity, features, groups = numbers(20)
    assert not sensitivity.maps["group"].deterministic
    choice = choose_draws(sensitivity, features, groups, "group", seed=0)
    assert choice.draws == 3
    assert choice.loss[3] < 0.002


def test_many_ties_in_three_groups_have_more_draws(tied):
    chosen = with_chosen_draws(tied, THREE.features, THREE.groups, seed=0)
    choice = choose_draws(tied, THREE.features, THREE.groups[ATTRIBUTE.name], "origin", seed=0)
    assert chosen.maps["origin"].draws == choice.draws > 3
    assert choice.cost == {3: 10, 4: 12, 8: 20, 16: 36}
    assert choice.loss[3] > choice.loss[8] >= choice.loss[16] == 0
    assert choice.loss[3] - 2 * choice.standard_error[3] > 0.002


def test_a_bound_on_the_cost_is_kept(tied, monkeypatch):
    monkeypatch.setattr(module, "_MOST_COST", 1.2)
    monkeypatch.setattr(module, "_TOLERANCE", -1.0)
    choice = choose_draws(tied, THREE.features, THREE.groups[ATTRIBUTE.name], "origin", seed=0)
    assert choice.draws == 4


def test_too_few_rows_keep_the_fewest_draws(tied):
    rows, groups = THREE.features[:40], THREE.groups[ATTRIBUTE.name][:40]
    choice = choose_draws(tied, rows, groups, "origin", seed=0)
    assert (choice.draws, choice.loss) == (3, {})


def test_auc_equals_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    flips, scores = rng.random(200) < 0.3, rng.integers(5, size=(2, 200)).astype(float)
    expected = [roc_auc_score(flips, row) for row in scores]
    assert module._auc(scores, flips) == pytest.approx(expected)
