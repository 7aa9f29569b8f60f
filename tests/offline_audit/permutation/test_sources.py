"""Which groups are compared; rows, counts and histograms give the same results."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import AuditInputError, ScoreCounts, TableCounts, permutation_test
from offline_audit.permutation import Comparisons
from offline_audit.permutation.permutations import Exchange

N = 200
DECISIONS = np.array([0, 0, 1, 1] * (N // 4))
LABELS = np.array([0, 1, 1, 1, 0] * (N // 5))


def sample(n: int, seed: int, *, decimals: int | None = None, share: float = 0.3):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.4).astype(int)
    scores = np.clip(0.25 * labels + 0.6 * rng.beta(2, 3, n), 0, 1)
    if decimals is not None:
        scores = np.round(scores, decimals)
    groups = np.where(rng.random(n) < share, "a", "b")
    return groups, labels, scores


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 900
    labels = rng.integers(0, 2, n)
    scores = np.clip(0.3 * labels + 0.6 * rng.random(n), 0, 1)
    return {
        "groups": {
            "sex": rng.choice(["female", "male"], n),
            "race": rng.choice(
                np.array(["Asian", "Black", "White", None]), n, p=[0.2, 0.3, 0.45, 0.05]
            ),
        },
        "labels": labels,
        "scores": scores,
        "decisions": (scores > 0.5).astype(int),
    }


def versus(results: Comparisons) -> list[str]:
    return [comparison.versus for comparison in results]


def test_each_group_is_compared_with_the_rest_and_two_with_each_other(rows):
    results = permutation_test(
        metrics="selection_rate", groups=rows["groups"], decisions=rows["decisions"]
    )
    assert versus(results) == [
        "female against male",
        "Asian against not Asian",
        "Black against not Black",
        "White against not White",
    ]
    others = [c.other.rows for c in results if c.other]
    known = sum(group is not None for group in rows["groups"]["race"])
    assert [c.group.rows + rest for c, rest in zip(results, others, strict=True)] == [
        900,
        known,
        known,
        known,
    ]


def test_all_other_groups_are_compared_with_the_reference(rows):
    results = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        reference="White",
    )
    assert versus(results) == [
        "female against male",
        "Asian against White",
        "Black against White",
    ]
    by_attribute = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        reference={"sex": "female"},
    )
    assert versus(by_attribute)[0] == "male against female"
    assert by_attribute[0].effect == pytest.approx(-results[0].effect)  # type: ignore[operator]


def test_a_tuple_crosses_attributes(rows):
    results = permutation_test(
        metrics="selection_rate",
        groups=rows["groups"],
        decisions=rows["decisions"],
        by=["sex", "race", ("sex", "race")],
    )
    crossed = [c.group.name for c in results if c.attribute == "sex × race"]
    assert crossed == [
        f"{sex} × {race}" for sex in ("female", "male") for race in ("Asian", "Black", "White")
    ]
    both = (rows["groups"]["sex"] == "male") & (rows["groups"]["race"] == "White")
    assert results.of("selection_rate", "male × White").group.rows == both.sum()


def test_units_with_different_labels_cannot_be_permuted_within_an_outcome():
    units = np.repeat(np.arange(N // 4), 4)
    groups = np.array(["a", "b"])[units % 2]
    with pytest.raises(AuditInputError, match="different labels"):
        permutation_test(
            metrics="selection_rate",
            groups=groups,
            decisions=DECISIONS,
            labels=LABELS,
            units=units,
            exchange="within outcome",
        )


def test_arrays_and_counts_give_the_same_result():
    rng = np.random.default_rng(3)
    labels, decisions = rng.integers(0, 2, 500), rng.integers(0, 2, 500)
    groups = rng.choice(["a", "b"], 500, p=[0.3, 0.7])
    cells = {
        g: {
            (y, d): int(((groups == g) & (labels == y) & (decisions == d)).sum())
            for y in (0, 1)
            for d in (0, 1)
        }
        for g in ("a", "b")
    }
    metrics = ["selection_rate", "tpr", "npv"]
    by_rows = permutation_test(metrics=metrics, groups=groups, labels=labels, decisions=decisions)
    by_counts = permutation_test(metrics=metrics, counts=TableCounts.from_mapping(cells))
    assert by_rows.to_dict() == by_counts.to_dict()


def test_within_outcome_keeps_the_labels_of_each_group_and_all_does_not():
    rng = np.random.default_rng(0)
    labels = np.concatenate([rng.random(300) < 0.8, rng.random(300) < 0.2]).astype(int)
    decisions = np.where(rng.random(600) < 0.9, labels, 1 - labels)
    groups = np.repeat(["a", "b"], 300)
    exchanges: tuple[Exchange, Exchange] = ("all", "within outcome")
    p_values = {
        exchange: permutation_test(
            metrics="selection_rate",
            groups=groups,
            labels=labels,
            decisions=decisions,
            exchange=exchange,
        )[0].p_value
        or 0.0
        for exchange in exchanges
    }
    # Selection differs because labels do; among people with the same label it hardly does.
    assert p_values["all"] < 1e-10
    assert p_values["within outcome"] > 0.01


def test_duplicates_of_every_row_do_not_change_results_of_units():
    groups, labels, scores = sample(400, 6, share=0.5)
    decisions = (scores > 0.45).astype(int)
    metrics = ["selection_rate", "mean_score", "auc"]
    rows = np.repeat(np.arange(400), 3)
    columns = {"groups": groups, "labels": labels, "scores": scores, "decisions": decisions}
    copied = {name: values[rows] for name, values in columns.items()}
    once = permutation_test(metrics=metrics, **columns, units=np.arange(400), n_resamples=999)
    thrice = permutation_test(metrics=metrics, **copied, units=rows, n_resamples=999)
    for one, three in zip(once, thrice, strict=True):
        assert three.effect == pytest.approx(one.effect)
        assert three.group.units == one.group.units
        # One success and one failure added weigh less among three times as many rows.
        assert three.statistic == pytest.approx(one.statistic, abs=0.05)
        assert three.p_value == pytest.approx(one.p_value, abs=0.06)
        assert three.interval == pytest.approx(one.interval, abs=0.01)


def test_bins_change_effects_by_at_most_the_binning_error():
    groups, labels, scores = sample(2_000, 7)
    metrics = ["auc", "mean_score", "calibration_gap"]
    exact = permutation_test(
        metrics=metrics, groups=groups, labels=labels, scores=scores, n_resamples=99
    )
    for bins in (8, 64):
        counts = ScoreCounts.from_arrays(groups=groups, labels=labels, scores=scores, bins=bins)
        binned = permutation_test(metrics=metrics, counts=counts, n_resamples=99)
        for one, other in zip(exact, binned, strict=True):
            assert 0 < other.binning_error < 3 / bins
            assert one.effect == pytest.approx(other.effect, abs=other.binning_error)
