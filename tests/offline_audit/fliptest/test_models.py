"""Models of every kind: functions, scores, pipelines, bundles; with and without labels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from monitor import Bundle, write_bundle
from offline_audit import AuditedModel, AuditInputError, Columns, flip_test
from tests.bundles import exported_classifier, small_spec

QUICK: dict[str, Any] = {"n_resamples": 9, "n_bootstrap": 2, "explain": False, "progress": False}
N = 200
RNG = np.random.default_rng(0)
GROUP = np.repeat(["a", "b"], N)
X = RNG.normal(size=(2 * N, 2)) + np.outer(GROUP == "b", [1.0, 0.0])
NAMES = ("a → b", "b → a")


def quick_flip_test(model, features, groups, **options):
    """A quick test with some options changed."""
    return flip_test(model, features, groups, **{**QUICK, **options})


def decide(rows):
    return rows[:, 0] > 0.5


def shares(result):
    return [(d.advantaged.value, d.disadvantaged.value) for d in result]


@pytest.fixture(scope="module")
def plain():
    return quick_flip_test(decide, X, GROUP)


def test_both_directions_are_reported(plain):
    assert [d.name for d in plain] == list(NAMES)
    assert plain.attribute == "group"
    one, other = plain
    assert one.rows == other.rows == (N, N)
    assert one.rates == (decide(X[:N]).mean(), decide(X[N:]).mean())
    assert one.rates == other.rates[::-1]
    assert one.disadvantaged.value > 0.2 > 0.01 >= one.advantaged.value
    assert other.advantaged.value > 0.2 > 0.01 >= other.disadvantaged.value
    assert plain.direction("b", "a") is other
    with pytest.raises(KeyError):
        plain.direction("a", "c")


def test_scores_need_a_threshold(plain):
    scored = quick_flip_test(lambda rows: rows[:, 0], X, GROUP, threshold=np.nextafter(0.5, 1))
    assert shares(scored) == shares(plain)
    with pytest.raises(AuditInputError, match="threshold"):
        quick_flip_test(lambda rows: rows[:, 0], X, GROUP)


def test_the_favourable_decision_may_be_0(plain):
    reversed_result = quick_flip_test(decide, X, GROUP, favourable=0)
    assert shares(reversed_result) == [pair[::-1] for pair in shares(plain)]
    assert [d.net.value for d in reversed_result] == [-d.net.value for d in plain]
    assert reversed_result.directions[0].rates[0] == pytest.approx(1 - plain.directions[0].rates[0])


def test_groups_may_be_named_by_their_attribute(plain):
    named = quick_flip_test(decide, X, {"sex": GROUP})
    assert named.attribute == "sex"
    assert shares(named) == shares(plain)
    with pytest.raises(AuditInputError, match="pass one protected attribute"):
        quick_flip_test(decide, X, {"sex": GROUP, "age": GROUP})


def test_a_pipeline_gets_text_columns():
    pd: Any = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    town = np.where(RNG.random(2 * N) < np.where(GROUP == "b", 0.7, 0.3), "hill", "dale")
    frame = pd.DataFrame({"town": town, "income": X[:, 1], "age": RNG.integers(20, 60, 2 * N)})
    encoder = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression(max_iter=500))
    model.fit(frame, (town == "hill") ^ (X[:, 1] > 1.5))
    groups = pd.Series(GROUP, name="sex")
    result = quick_flip_test(model.predict, frame, groups, explain=True)
    assert result.attribute == "sex"
    (disadvantaged,) = (d.transparency["disadvantaged"] for d in result if d.source == "a")
    assert disadvantaged.features[0].name == "town"
    assert disadvantaged.features[0].undone > 0.9
    assert result.direction("a", "b").disadvantaged.value > 0.2


@pytest.fixture
def encoded(tmp_path):
    """A bundle, rows that it takes, and the same rows as a data frame."""
    pd: Any = pytest.importorskip("pandas")
    write_bundle(tmp_path / "b", small_spec(), {"classifier.pt2": exported_classifier()})
    bundle = Bundle.read(tmp_path / "b")
    home = RNG.integers(0, 2, 2 * N)
    table = np.column_stack(
        [X[:, 0], RNG.integers(0, 9, 2 * N), RNG.integers(0, 2, 2 * N), home, 1 - home]
    )
    return bundle, table, pd.DataFrame(table, columns=[f.name for f in bundle.manifest.features])


@pytest.mark.parametrize("audited", [False, True])
def test_a_frame_is_ordered_by_the_names_of_the_bundle(encoded, audited):
    bundle, table, frame = encoded
    model = AuditedModel.of(bundle) if audited else bundle
    expected = quick_flip_test(bundle, table, GROUP)
    shuffled = frame[frame.columns[::-1]].assign(sex=GROUP, age=0, paid=1)
    result = quick_flip_test(model, shuffled, shuffled["sex"], labels=shuffled["paid"])
    assert shares(result) == shares(expected)


@pytest.mark.parametrize("audited", [False, True])
def test_a_frame_with_other_columns_than_the_bundle_is_refused_by_name(encoded, audited):
    bundle, _, frame = encoded
    model = AuditedModel.of(bundle) if audited else bundle
    with pytest.raises(AuditInputError, match="no feature customer_id; the features are income"):
        quick_flip_test(model, frame.assign(customer_id=1), GROUP)
    with pytest.raises(AuditInputError, match="no column years; the model has no feature Years"):
        quick_flip_test(model, frame.rename(columns={"years": "Years"}), GROUP)
    with pytest.raises(AuditInputError, match="columns: must name the features of the model"):
        quick_flip_test(model, frame, GROUP, columns=list(frame.columns[::-1]))


def test_columns_and_decision_are_read_from_a_bundle(tmp_path):
    write_bundle(tmp_path / "b", small_spec(), {"classifier.pt2": exported_classifier()})
    rng = np.random.default_rng(1)
    purpose = np.eye(3)[rng.integers(0, 3, 2 * N)][:, :2]
    years = np.minimum(rng.poisson(np.where(GROUP == "b", 20, 5)), 40)
    table = np.column_stack([rng.normal(size=2 * N), years, rng.integers(0, 2, 2 * N), purpose])
    by_path = quick_flip_test(str(tmp_path / "b"), table, GROUP)
    bundle = Bundle.read(tmp_path / "b")
    model = AuditedModel.from_bundle(bundle)
    by_manifest = quick_flip_test(model, table, GROUP, columns=bundle.manifest)
    assert by_path.to_dict() == by_manifest.to_dict()
    assert [fit.name for fit in by_path.directions[0].validation.variables][-1] == "purpose"
    decisions = model.decide(table)
    assert by_path.directions[0].rates[0] == pytest.approx((decisions[:N] == 1).mean())
    with pytest.raises(AuditInputError, match="only for a function"):
        quick_flip_test(bundle, table, GROUP, threshold=0.5)
    with pytest.raises(AuditInputError, match="only for a function"):
        quick_flip_test(model, table, GROUP, favourable=0)


def test_a_model_of_encoded_columns_rejects_text():
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame({"town": np.where(X[:, 0] > 0, "hill", "dale"), "income": X[:, 1]})
    with pytest.raises(AuditInputError, match="encoded columns, not text"):
        quick_flip_test(AuditedModel.from_function(decide), frame, GROUP)
    numbers = frame.assign(town=X[:, 0])
    result = quick_flip_test(AuditedModel.from_function(decide), numbers, GROUP)
    assert result.direction("a", "b").disadvantaged.value > 0.2


def test_rows_have_several_counterparts_where_the_map_splits():
    columns = Columns.numeric(["score", "coin"])
    coin = (RNG.random(2 * N) < np.where(GROUP == "b", 0.8, 0.2)).astype(float)
    table = np.column_stack([X[:, 1], coin])
    result = quick_flip_test(
        lambda r: r[:, 1] > 0.5, table, GROUP, columns=columns, n_counterparts=5
    )
    for direction in result:
        assert len(direction.flipset.counterparts) == 5
        parts = direction.flipset.parts("advantaged") + direction.flipset.parts("disadvantaged")
        assert len(np.unique(parts.round(6))) > 2
    assert result.n_counterparts == 5


def test_the_model_is_not_called_for_rows_that_are_not_moved():
    row_counts: list[int] = []

    def counting(rows):
        row_counts.append(len(rows))
        return decide(rows)

    quick_flip_test(counting, np.tile(X[:N], (2, 1)), GROUP, n_resamples=0)
    assert sum(row_counts) == 2 * N


def test_a_model_that_modifies_its_rows_does_not_change_features():
    features, original = X.copy(), X.copy()

    def overwriting(rows):
        decisions = decide(rows)
        rows[:] = 0
        return decisions

    quick_flip_test(overwriting, features, GROUP)
    assert np.array_equal(features, original)


LABELS = (RNG.random(2 * N) < 0.6).astype(float)


@pytest.mark.parametrize(
    ("criterion", "labels"),
    [("equal_opportunity", [1]), ("predictive_equality", [0]), ("equalized_odds", [1, 0])],
)
def test_rows_are_transported_within_labels(criterion, labels):
    result = quick_flip_test(
        decide, X, GROUP, labels=LABELS, criterion=criterion, smallest_group=50
    )
    assert [d.label for d in result] == [label for label in labels for _ in range(2)]
    assert result.warnings == ()
    for direction in result:
        members = (direction.source == GROUP) & (direction.label == LABELS)
        others = (direction.target == GROUP) & (direction.label == LABELS)
        assert direction.rows == (members.sum(), others.sum())
        assert np.array_equal(direction.flipset.features, X[members])
        assert f"label {direction.label}" in direction.name
    assert result.direction("b", "a", labels[-1]).label == labels[-1]


def test_rows_without_a_label_are_excluded_and_counted():
    labels = LABELS.copy()
    labels[::8] = np.nan
    result = quick_flip_test(
        decide, X, GROUP, labels=labels, criterion="equal_opportunity", smallest_group=50
    )
    assert result.warnings == ("50 rows without a label are excluded.",)
    assert result.direction("a", "b").rows[0] == ((GROUP == "a") & (labels == 1)).sum()
    assert result.direction("a", "b").p_value is not None


@pytest.mark.parametrize("known", [True, False])
def test_labels_of_one_decision_only_have_a_reason(known):
    """Rejected loans have no outcome: every row with a label has the favourable decision."""
    selective = np.where(decide(X) == known, LABELS, np.nan)
    steps: list[tuple[int, int]] = []
    result = quick_flip_test(
        decide,
        X,
        GROUP,
        labels=selective,
        criterion="equalized_odds",
        progress=lambda _, done, total: steps.append((done, total)),
    )
    word = "favourable" if known else "unfavourable"
    for direction in result:
        assert direction.p_value is None
        assert direction.gross is None
        assert f"only for rows of a with the {word} decision" in direction.reason
    assert steps[-1][0] == steps[-1][1]
    json.dumps(result.to_dict())


def test_labels_of_one_group_may_be_selective():
    selective = np.where((GROUP == "a") & ~decide(X), np.nan, LABELS)
    result = quick_flip_test(
        decide, X, GROUP, labels=selective, criterion="equal_opportunity", smallest_group=50
    )
    assert all("exist only for rows of a with the fav" in direction.reason for direction in result)
    selective[np.flatnonzero((GROUP == "a") & ~decide(X))[0]] = 1
    result = quick_flip_test(
        decide, X, GROUP, labels=selective, criterion="equal_opportunity", smallest_group=50
    )
    assert all("and for 1 of the" in direction.reason for direction in result)


def test_labels_missing_by_decision_in_one_group_have_a_reason():
    rng = np.random.default_rng(1)
    labels = LABELS.astype(float)
    labels[(GROUP == "a") & ~decide(X) & (rng.random(len(labels)) < 0.4)] = np.nan
    result = quick_flip_test(
        decide, X, GROUP, labels=labels, criterion="equal_opportunity", smallest_group=50
    )
    for direction in result:
        assert direction.p_value is None
        assert "of the rows of a with decision 0" in direction.reason
        assert any("labels are not missing alike" in warning for warning in direction.warnings)


def test_rows_sampled_by_label_have_their_coverage_counted_elsewhere():
    """Without counts, rows of a window that were sampled by label seem to lack labels."""
    rng = np.random.default_rng(1)
    labels = LABELS.astype(float)
    labels[(GROUP == "a") & ~decide(X) & (rng.random(len(labels)) < 0.4)] = np.nan
    equal = np.array([[40, 20, 0], [20, 40, 0], [30, 30, 0]])
    arguments = {"labels": labels, "criterion": "equal_opportunity", "smallest_group": 50}
    counted = quick_flip_test(
        decide, X, GROUP, label_counts=dict.fromkeys("ab", equal), **arguments
    )
    assert all(direction.p_value is not None for direction in counted)
    for wrong in ({"a": equal}, {"a": equal, "b": equal / 2}, {"a": equal, "b": equal[:2]}):
        with pytest.raises(AuditInputError, match="label_counts: every group needs"):
            quick_flip_test(decide, X, GROUP, label_counts=wrong, **arguments)


def test_missing_labels_have_a_reason():
    missing = np.full(2 * N, np.nan)
    result = quick_flip_test(decide, X, GROUP, labels=missing, criterion="equal_opportunity")
    assert all(direction.reason == "no label of a is known." for direction in result)
    with pytest.raises(AuditInputError, match="labels: required for every criterion except"):
        quick_flip_test(decide, X, GROUP, criterion="equal_opportunity")
    with pytest.raises(AuditInputError, match="neither 0 nor 1"):
        quick_flip_test(decide, X, GROUP, labels=LABELS + 1, criterion="equal_opportunity")


def test_large_groups_are_sampled_within_labels():
    result = quick_flip_test(
        decide, X, GROUP, labels=LABELS, criterion="equalized_odds", max_rows=60, smallest_group=50
    )
    assert {direction.rows for direction in result} == {(60, 60)}
    assert result.warnings == (
        "240 rows are a sample of 400: at most 60 per group and label (`max_rows`).",
    )
