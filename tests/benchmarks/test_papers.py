"""What the reproductions of papers stand on: data as the papers have them, models as they say."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.svm import SVC

from benchmarks.papers.audited_people import (
    PERMUTATION_FILES,
    PROJECTION_FILES,
    People,
    adult_by_sex,
    compas_by_race,
    compas_by_sex,
    drug_by_ethnicity,
)
from benchmarks.papers.fair_svm import LinearClassifier, fair_svm, naive_svm, opportunity_gap
from benchmarks.papers.options import DATA, data_folder, out_folder
from benchmarks.papers.permutation_simulations import shuffled_p_value
from benchmarks.papers.permutation_thresholds import Scored, sweep
from benchmarks.papers.printed_projection import printed_p_value, printed_weight
from offline_audit import permutation_test

needs_data = pytest.mark.skipif(
    not all((DATA / name).is_file() for name in {*PERMUTATION_FILES, *PROJECTION_FILES}),
    reason="the papers' data sets are not here",
)


def people(n: int = 300, *, seed: int = 0) -> People:
    """Features in whole numbers, so that many rows are alike; positives differ by group."""
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.4, "a", "b")
    features = rng.integers(-2, 3, (n, 4)) + 1.0 * (groups == "a")[:, None] * [1, 0, 1, 0]
    labels = features.sum(axis=1) + rng.normal(0, 2, n) > 0
    return People(name="made up", features=features, labels=labels, groups=groups)


@needs_data
@pytest.mark.parametrize(
    ("load", "rows", "columns", "positives", "groups"),
    [
        # Rows of Adult and of COMPAS by sex are as the paper counts them.
        (adult_by_sex, 48_842, 100, 11_687, {"Female": 16_192, "Male": 32_650}),
        (compas_by_sex, 6_167, 398, 2_809, {"Female": 1_173, "Male": 4_994}),
        (compas_by_race, 5_278, 6, 2_483, {"African-American": 3_175, "Caucasian": 2_103}),
        (drug_by_ethnicity, 1_885, 11, 413, {"not white": 165, "white": 1_720}),
    ],
)
def test_people_are_those_of_the_papers(load, rows, columns, positives, groups):
    found = load(DATA)
    assert found.features.shape == (rows, columns)
    assert found.labels.sum() == positives
    names, counts = np.unique(found.groups, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == groups
    assert np.isfinite(found.features).all()


def test_a_split_has_every_row_once():
    made_up = people()
    numbered = People(
        name="made up",
        features=np.arange(300.0)[:, None],
        labels=made_up.labels,
        groups=made_up.groups,
    )
    parts = numbered.split((0.7, 0.15, 0.15), np.random.default_rng(1))
    assert [len(part) for part in parts] == [210, 45, 45]
    order = np.concatenate([part.features[:, 0] for part in parts])
    assert sorted(order) == list(range(300))
    assert np.array_equal(
        np.concatenate([part.labels for part in parts]), made_up.labels[order.astype(int)]
    )


def test_duplicate_rows_are_fitted_with_weights():
    train = people()
    plain = SVC(kernel="linear", C=1).fit(train.features, train.labels)
    found = naive_svm(train)
    # Both solve to libsvm's tolerance of .001.
    assert np.allclose(found.weights, plain.coef_[0], atol=0.01)
    assert found.bias == pytest.approx(plain.intercept_[0], abs=0.01)


def test_the_fair_machine_has_the_same_mean_margin_of_positives_in_both_groups():
    train = people()
    of_positives = [
        fair_svm(train).margin(train.features[train.labels & (train.groups == group)]).mean()
        for group in ("a", "b")
    ]
    assert of_positives[0] == pytest.approx(of_positives[1], abs=1e-9)
    assert abs(naive_svm(train).weights @ opportunity_gap(train)) > 0.1


def test_no_other_machine_under_the_constraint_has_a_lower_objective():
    """Hinge loss and ridge, against small steps along the constraint and in the bias."""
    train = people(200, seed=3)
    gap = opportunity_gap(train)
    sign = np.where(train.labels, 1.0, -1.0)

    def objective(machine):
        loss = np.maximum(0, 1 - sign * machine.margin(train.features)).sum()
        return loss + machine.weights @ machine.weights / 2

    found = fair_svm(train)
    rng = np.random.default_rng(5)
    for _ in range(200):
        step = rng.normal(0, 0.05, 4)
        step -= gap * (gap @ step) / (gap @ gap)
        other = LinearClassifier(
            weights=found.weights + step, bias=found.bias + rng.normal(0, 0.05)
        )
        # What libsvm leaves to be found.
        assert objective(other) > objective(found) - 0.01
    assert objective(naive_svm(train)) < objective(found)


def test_distances_are_to_the_plane():
    machine = LinearClassifier(weights=np.array([3.0, 4.0]), bias=-5.0)
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.6, 0.8]])
    assert np.allclose(machine.distances(rows), [4, 1, 0])
    assert machine.decisions(rows).tolist()[:2] == [True, False]
    flat = LinearClassifier(weights=np.zeros(2), bias=1.0)
    assert np.isinf(flat.distances(rows)).all()


def test_missing_files_are_named_and_other_options_are_kept(tmp_path, monkeypatch, capsys):
    given = ["script", "--data", str(tmp_path), "--quick", "--out", str(tmp_path / "o")]
    monkeypatch.setattr(sys, "argv", given)
    assert out_folder() == tmp_path / "o"
    with pytest.raises(SystemExit):
        data_folder(("adult/adult.data",))
    assert "adult/adult.data" in capsys.readouterr().err
    assert sys.argv == ["script", "--quick"]


def test_the_printed_law_is_corollary_1_where_rates_are_equal():
    """Both groups with the same decisions, label by label, so that no gap is left."""
    rng = np.random.default_rng(2)
    half, labels = rng.normal(0.3, 1, 500), rng.random(500) < 0.4
    signed, positive = np.tile(half, 2), np.tile(labels, 2)
    second = np.arange(1000) >= 500
    one, two = positive & ~second, positive & second
    decided = signed >= 0
    shares = one.mean(), two.mean()
    spread = (
        decided * (shares[1] * one - shares[0] * two)
        + two * (one & decided).mean()
        - one * (two & decided).mean()
    ).var()
    h = 1.06 * signed.std() * 1000**-0.2
    kernel = np.exp(-0.5 * (signed / h) ** 2) / np.sqrt(2 * np.pi) / h
    crowd = (kernel * (shares[1] ** 2 * one + shares[0] ** 2 * two)).mean()
    assert printed_weight(signed, one, two) == pytest.approx(spread / (2 * crowd))
    assert printed_p_value(3.841459 * 0.7, [0.7]) == pytest.approx(0.05, abs=1e-6)
    assert printed_p_value(0.0, [0.7]) == 1


def test_shuffling_in_one_pool_agrees_with_a_slow_implementation():
    rng = np.random.default_rng(4)
    x, error = rng.uniform(0.1, 1, 40), rng.normal(size=40)
    seen = abs(np.corrcoef(x, error)[0, 1])
    pool = np.concatenate([x, error])
    slow = [
        abs(np.corrcoef(*rng.permutation(pool).reshape(2, 40))[0, 1]) >= seen for _ in range(3_000)
    ]
    found = shuffled_p_value(x, error, 3_000, np.random.default_rng(6))
    # Four standard errors of the difference of two shares.
    assert found == pytest.approx(np.mean(slow), abs=4 * np.sqrt(2 * 0.25 / 3_000))


def test_a_sweep_tests_the_decisions_of_each_threshold():
    rng = np.random.default_rng(8)
    made_up = people(600)
    found = Scored(
        name="made up",
        scores=rng.random(600),
        labels=made_up.labels,
        first=made_up.groups == "a",
        groups=("a", "b"),
    )
    swept = sweep(found, "tpr", draws=100)
    middle = len(swept.differences) // 2
    decisions = found.scores >= 0.5
    by_rows = permutation_test(
        metrics="tpr", groups=made_up.groups, decisions=decisions, labels=found.labels
    )[0]
    assert by_rows.effect is not None
    assert by_rows.p_value is not None
    assert swept.differences[middle] == pytest.approx(abs(by_rows.effect))
    assert swept.rejected[middle] == (by_rows.p_value <= 0.05)
    # Everyone is accepted, so nobody differs.
    assert swept.differences[0] == 0
    assert swept.refused[0]
    table = found.table(0.5)
    assert table.sum() == 600
    assert table[0, 1, 1] == (found.first & found.labels & decisions).sum()
