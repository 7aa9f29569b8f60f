"""Data and models of the reproductions agree with the papers."""

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
    reason="the papers' data sets are not available",
)


def people(n: int = 300, *, seed: int = 0) -> People:
    """Integer features, so that many rows are duplicates; base rates differ by group."""
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.4, "a", "b")
    features = rng.integers(-2, 3, (n, 4)) + 1.0 * (groups == "a")[:, None] * [1, 0, 1, 0]
    labels = features.sum(axis=1) + rng.normal(0, 2, n) > 0
    return People(name="synthetic", features=features, labels=labels, groups=groups)


@needs_data
@pytest.mark.parametrize(
    ("load", "rows", "columns", "positives", "groups"),
    [
        # The numbers of rows of Adult and of COMPAS by sex are the paper's.
        (adult_by_sex, 48_842, 100, 11_687, {"Female": 16_192, "Male": 32_650}),
        (compas_by_sex, 6_167, 398, 2_809, {"Female": 1_173, "Male": 4_994}),
        (compas_by_race, 5_278, 6, 2_483, {"African-American": 3_175, "Caucasian": 2_103}),
        (drug_by_ethnicity, 1_885, 11, 413, {"not white": 165, "white": 1_720}),
    ],
)
def test_data_sets_have_the_counts_of_the_papers(load, rows, columns, positives, groups):
    data = load(DATA)
    assert data.features.shape == (rows, columns)
    assert data.labels.sum() == positives
    names, counts = np.unique(data.groups, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == groups
    assert np.isfinite(data.features).all()


def test_a_split_has_every_row_once():
    synthetic = people()
    numbered = People(
        name="synthetic",
        features=np.arange(300.0)[:, None],
        labels=synthetic.labels,
        groups=synthetic.groups,
    )
    parts = numbered.split((0.7, 0.15, 0.15), np.random.default_rng(1))
    assert [len(part) for part in parts] == [210, 45, 45]
    order = np.concatenate([part.features[:, 0] for part in parts])
    assert sorted(order) == list(range(300))
    assert np.array_equal(
        np.concatenate([part.labels for part in parts]), synthetic.labels[order.astype(int)]
    )


def test_duplicate_rows_are_fitted_with_weights():
    train = people()
    plain = SVC(kernel="linear", C=1).fit(train.features, train.labels)
    machine = naive_svm(train)
    # Both solve to libsvm's tolerance of .001.
    assert np.allclose(machine.weights, plain.coef_[0], atol=0.01)
    assert machine.bias == pytest.approx(plain.intercept_[0], abs=0.01)


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

    best = fair_svm(train)
    rng = np.random.default_rng(5)
    for _ in range(200):
        step = rng.normal(0, 0.05, 4)
        step -= gap * (gap @ step) / (gap @ gap)
        other = LinearClassifier(weights=best.weights + step, bias=best.bias + rng.normal(0, 0.05))
        # Tolerance of libsvm.
        assert objective(other) > objective(best) - 0.01
    assert objective(naive_svm(train)) < objective(best)


def test_distances_are_to_the_plane():
    machine = LinearClassifier(weights=np.array([3.0, 4.0]), bias=-5.0)
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.6, 0.8]])
    assert np.allclose(machine.distances(rows), [4, 1, 0])
    assert machine.decisions(rows).tolist()[:2] == [True, False]
    flat = LinearClassifier(weights=np.zeros(2), bias=1.0)
    assert np.isinf(flat.distances(rows)).all()


def test_missing_files_are_named_and_other_options_remain(tmp_path, monkeypatch, capsys):
    arguments = ["script", "--data", str(tmp_path), "--quick", "--out", str(tmp_path / "o")]
    monkeypatch.setattr(sys, "argv", arguments)
    assert out_folder() == tmp_path / "o"
    with pytest.raises(SystemExit):
        data_folder(("adult/adult.data",))
    assert "adult/adult.data" in capsys.readouterr().err
    assert sys.argv == ["script", "--quick"]


def test_the_printed_law_is_corollary_1_where_rates_are_equal():
    """Both groups with the same decisions, label by label, so that there is no gap."""
    rng = np.random.default_rng(2)
    half, labels = rng.normal(0.3, 1, 500), rng.random(500) < 0.4
    signed, positive = np.tile(half, 2), np.tile(labels, 2)
    second = np.arange(1000) >= 500
    first_positives, second_positives = positive & ~second, positive & second
    decisions = signed >= 0
    shares = first_positives.mean(), second_positives.mean()
    variance = (
        decisions * (shares[1] * first_positives - shares[0] * second_positives)
        + second_positives * (first_positives & decisions).mean()
        - first_positives * (second_positives & decisions).mean()
    ).var()
    h = 1.06 * signed.std() * 1000**-0.2
    kernel = np.exp(-0.5 * (signed / h) ** 2) / np.sqrt(2 * np.pi) / h
    boundary_density = (
        kernel * (shares[1] ** 2 * first_positives + shares[0] ** 2 * second_positives)
    ).mean()
    assert printed_weight(signed, first_positives, second_positives) == pytest.approx(
        variance / (2 * boundary_density)
    )
    assert printed_p_value(3.841459 * 0.7, [0.7]) == pytest.approx(0.05, abs=1e-6)
    assert printed_p_value(0.0, [0.7]) == 1


def test_shuffling_in_one_pool_agrees_with_a_slow_implementation():
    rng = np.random.default_rng(4)
    x, error = rng.uniform(0.1, 1, 40), rng.normal(size=40)
    observed = abs(np.corrcoef(x, error)[0, 1])
    pool = np.concatenate([x, error])
    slow = [
        abs(np.corrcoef(*rng.permutation(pool).reshape(2, 40))[0, 1]) >= observed
        for _ in range(3_000)
    ]
    p_value = shuffled_p_value(x, error, 3_000, np.random.default_rng(6))
    # Four standard errors of the difference of two shares.
    assert p_value == pytest.approx(np.mean(slow), abs=4 * np.sqrt(2 * 0.25 / 3_000))


def test_a_sweep_tests_the_decisions_of_each_threshold():
    rng = np.random.default_rng(8)
    synthetic = people(600)
    scored = Scored(
        name="synthetic",
        scores=rng.random(600),
        labels=synthetic.labels,
        first=synthetic.groups == "a",
        groups=("a", "b"),
    )
    result = sweep(scored, "tpr", draws=100)
    middle = len(result.differences) // 2
    decisions = scored.scores >= 0.5
    by_rows = permutation_test(
        metrics="tpr", groups=synthetic.groups, decisions=decisions, labels=scored.labels
    )[0]
    assert by_rows.effect is not None
    assert by_rows.p_value is not None
    assert result.differences[middle] == pytest.approx(abs(by_rows.effect))
    assert result.rejected[middle] == (by_rows.p_value <= 0.05)
    # Everyone is accepted, so the rates are equal.
    assert result.differences[0] == 0
    assert result.refused[0]
    table = scored.table(0.5)
    assert table.sum() == 600
    assert table[0, 1, 1] == (scored.first & scored.labels & decisions).sum()
