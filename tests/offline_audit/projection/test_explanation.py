"""The explanation agrees with the smallest fair change, and withholds small numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from offline_audit import BoundaryDistances, linear_distances
from tests.offline_audit.projection.projected import projected

RNG = np.random.default_rng(0)
N = 6_000
GROUPS = RNG.choice(["f", "m"], N, p=[0.3, 0.7])
X = RNG.normal(size=(N, 3)) * [1.0, 10.0, 0.1] - 0.3 * (GROUPS == "f")[:, None] * [1, 0, 0]
W = np.array([1.0, 0.05, 0.0])
SCORE = X @ W
DECISIONS = (SCORE >= 0).astype(int)
LABELS = (SCORE + RNG.normal(size=N) >= 0).astype(int)
BOUNDARY: Any = linear_distances(X, W, 0.0, feature_names=["income", "age", "noise"])


def rates_after(result, groups=GROUPS):
    """Rates of the groups after the changes of the explanation."""
    after = {}
    for group in np.unique(groups):
        positives, rows = DECISIONS[groups == group].sum(), np.sum(groups == group)
        for move in result.explanation.moves:
            if dict(move.groups)["group"] == group:
                positives += move.rows * (1 - 2 * move.from_decision)
        after[group] = positives / rows
    return after


def test_after_the_changes_the_rates_are_equal():
    result = projected(DECISIONS, BOUNDARY, GROUPS)
    after = rates_after(result)
    assert after["f"] == pytest.approx(after["m"], abs=1e-9)
    assert result.explanation.rows_moved == pytest.approx(
        sum(m.rows for m in result.explanation.moves)
    )
    assert {(dict(m.groups)["group"], m.from_decision) for m in result.explanation.moves} == {
        ("f", 0),
        ("m", 1),
    }


def test_after_the_changes_the_rates_differ_by_the_tolerance():
    after = rates_after(projected(DECISIONS, BOUNDARY, GROUPS, tolerance=0.03))
    assert after["m"] - after["f"] == pytest.approx(0.03, abs=1e-9)


def test_shares_and_distances_are_those_of_the_nearest_rows():
    result = projected(DECISIONS, BOUNDARY, GROUPS)
    for move in result.explanation.moves:
        group = dict(move.groups)["group"]
        members = np.equal(GROUPS, group)
        nearest = np.sort(BOUNDARY.distances[members & np.equal(DECISIONS, move.from_decision)])
        whole = int(np.ceil(move.rows))
        assert move.share == pytest.approx(move.rows / members.sum())
        assert move.median_distance == pytest.approx(np.median(nearest[:whole]), rel=0.05)
        assert move.median_distance <= move.distance_90 <= nearest[whole - 1]


def test_features_change_toward_the_boundary_in_standard_deviations():
    result = projected(DECISIONS, BOUNDARY, GROUPS)
    change = {(f.feature, f.from_decision): f for f in result.explanation.features}
    assert result.explanation.in_standard_deviations
    assert change["income", 0].mean > 0 > change["income", 1].mean
    assert change["noise", 0].mean_absolute == 0.0
    # Changes are proportional to w, here in standard deviations; that of age is 10 times larger.
    ratio = change["age", 0].mean / change["income", 0].mean
    assert ratio == pytest.approx(0.05 / 10 * X[:, 0].std() / (X[:, 1].std() / 10), rel=1e-6)
    assert result.explanation.features[0].feature == "income"


def test_precomputed_feature_changes_are_used():
    precomputed = BoundaryDistances.from_arrays(
        BOUNDARY.distances, changes=BOUNDARY.changes(np.arange(N)), scales=X.std(axis=0)
    )
    one = projected(DECISIONS, precomputed, GROUPS).explanation.features
    other = projected(DECISIONS, BOUNDARY, GROUPS).explanation.features
    assert [f.mean for f in one] == pytest.approx([f.mean for f in other])
    assert one[0].feature == "feature 0"


def test_rows_at_the_same_distance_share_the_change():
    tied = np.ceil(BOUNDARY.distances)
    result = projected(DECISIONS, tied, GROUPS)
    order = RNG.permutation(N)
    again = projected(DECISIONS[order], tied[order], GROUPS[order])
    assert result.explanation == again.explanation
    assert {m.median_distance for m in result.explanation.moves} == {1.0}


def test_a_change_that_is_not_unique_is_reported():
    """Groups of equal size and equal distances: any split of the gap costs the same."""
    groups = np.repeat(["a", "b"], 200)
    decisions = np.concatenate([np.repeat([1, 0], [120, 80]), np.repeat([1, 0], [80, 120])])
    result = projected(decisions, np.ones(400), groups)
    assert result.explanation.unique is False
    assert "Other changes have the same cost" in str(result)
    assert result.statistic == pytest.approx(40.0)
    assert [m.rows for m in result.explanation.moves] == pytest.approx([20.0, 20.0])
    unique = projected(DECISIONS, BOUNDARY, GROUPS)
    assert unique.explanation.unique is True


def test_figures_of_few_rows_are_withheld():
    result = projected(DECISIONS[:400], BOUNDARY.distances[:400], GROUPS[:400], smallest_cell=200)
    assert result.explanation.moves
    for move in result.explanation.moves:
        assert (move.rows, move.share, move.median_distance, move.distance_90) == (None,) * 4
    assert "fewer than 200 rows" in str(result)


def few(high, low, smallest_cell=10):
    """100 rows of a and 30 of b, of which `high` and `low` have decision 1; distances differ."""
    groups = np.repeat(["a", "b"], [100, 30])
    decisions = np.concatenate([np.arange(100) < high, np.arange(30) < low]).astype(int)
    distances = np.random.default_rng(3).permutation(np.linspace(0.1, 0.9, 130))
    distances[100:] *= 5
    return projected(decisions, distances, groups, smallest_cell=smallest_cell)


def test_a_withheld_figure_cannot_be_recovered_by_subtraction():
    exact = few(80, 18, smallest_cell=1).explanation
    rows = {dict(m.groups)["group"]: m.rows for m in exact.moves}
    assert rows["a"] >= 10 > rows["b"] > 0
    result = few(80, 18)
    moves = {dict(m.groups)["group"]: m for m in result.explanation.moves}
    assert moves["b"].rows is None
    assert moves["a"].rows % 10 == result.explanation.rows_moved % 10 == 0
    assert moves["a"].share == moves["a"].rows / 100
    assert moves["a"].median_distance is not None
    assert result.explanation.rounded
    assert not exact.rounded
    assert "about 20 of 130 decisions change" in str(result)
    assert f"{exact.rows_moved:.1f}" not in str(result)


def test_the_distance_of_a_few_people_is_withheld_and_their_gaps_are_not():
    exact = few(65, 18, smallest_cell=1)
    assert 0 < exact.explanation.rows_moved < 10
    result = few(65, 18)
    assert result.p_value == exact.p_value
    assert result.effects == exact.effects
    assert result.statistic is result.cost_per_row is result.explanation.rows_moved is None
    assert "fewer than 10 of 130 decisions change (distances" in str(result)
    for hidden in (f"{exact.statistic:.3g}", "total distance", "median"):
        assert hidden not in str(result)
    text = json.dumps(result.to_dict())
    assert str(exact.statistic)[:6] not in text
    assert json.loads(text)["statistic"] is None


def test_changes_are_listed_by_label_and_crossing():
    race = RNG.choice(["x", "y"], N)
    result = projected(
        DECISIONS,
        BOUNDARY,
        {"sex": GROUPS, "race": race},
        criterion="equalized_odds",
        labels=LABELS,
        smallest_cell=1,
    )
    moved = {(m.groups, m.label) for m in result.explanation.moves}
    assert (("sex", "f"), ("race", "x")) in {groups for groups, _ in moved}
    assert {label for _, label in moved} == {0, 1}
