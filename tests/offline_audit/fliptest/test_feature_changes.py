"""Intervals over flips treat the person as the unit, and undone flips follow the model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from offline_audit import AuditInputError
from offline_audit.fliptest.feature_changes import WeightedFlips
from offline_audit.fliptest.flipset import Flipset
from tests.offline_audit.fliptest.synthetic_flips import draw_flipset, model, report_of


def flips_of(values, owner):
    """Flips with one feature, and the people they belong to."""
    values = np.asarray(values, np.float32)[:, None]
    _, people, weights = np.unique(owner, return_inverse=True, return_counts=True)
    return WeightedFlips(own=values, other=0 * values, owner=people, weights=weights.astype(float))


def test_flips_belong_to_the_people_who_have_them():
    flipset = draw_flipset(300, 4)
    flips = WeightedFlips.of(flipset, "advantaged")
    flipped = flipset.flips("advantaged")
    assert len(flips.owner) == flipped.sum()
    assert flips.weights.tolist() == [count for count in flipped.sum(0) if count]
    people = flipset.features[flipped.any(0)]
    assert (flips.own == people[flips.owner]).all()
    once = np.unique(flips.owner, return_index=True)[1]
    assert (flips.take(once).weights == 1).all()
    assert (flips.take(flips.owner == 2).own == people[2]).all()


def test_intervals_of_one_flip_per_person_are_those_of_independent_people():
    """Student's interval for symmetric values, and Wilson's for shares."""
    values = np.random.default_rng(0).normal(size=80)
    values = np.concatenate([values, -values]) + 0.3
    flips = flips_of(values, np.arange(160))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert flips.mean_interval(values, 0.9) == pytest.approx(tuple(expected))
    hits = values > 0
    wilson = stats.binomtest(int(hits.sum()), 160).proportion_ci(0.9, method="wilson")
    assert flips.share_interval(hits, 0.9) == pytest.approx(tuple(wilson))


def test_repeated_flips_do_not_narrow_intervals():
    rng = np.random.default_rng(1)
    values, owner = rng.gamma(2.0, size=60) - 1, rng.choice(40, 60)
    once, repeated = flips_of(values, owner), flips_of(np.repeat(values, 5), np.repeat(owner, 5))
    for name, argument in (
        ("mean_interval", values),
        ("share_interval", values > 0),
        ("net_interval", np.sign(values).astype(np.int8)),
    ):
        expected = getattr(once, name)(argument, 0.95)
        assert getattr(repeated, name)(np.repeat(argument, 5), 0.95) == pytest.approx(expected)


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_the_interval_of_equal_signs_ends_at_the_sign(sign):
    flips = flips_of(np.ones(30), np.arange(30))
    low, high = flips.net_interval(np.full(30, sign, np.int8), 0.95)
    assert -1 <= low <= sign <= high <= 1
    assert 0 < high - low < 0.3
    if sign:
        assert sign in (low, high)


def coverage_counts(draws, truth, seeds, *, split=False):
    """Number of covering intervals per figure; `split` treats flips as independent rows."""
    hits: Counter[str] = Counter()
    for seed in seeds:
        flipset = draw_flipset(120, draws, seed)
        if split:
            flipset = Flipset(
                features=np.tile(flipset.features, (draws, 1)),
                counterparts=flipset.counterparts.reshape(1, -1, 9),
                decisions=np.tile(flipset.decisions, draws),
                counterpart_decisions=flipset.counterpart_decisions.reshape(1, -1),
            )
        report = report_of(flipset, smallest_cell=1)
        for feature in report.features:
            true_feature = truth.of(feature.name)
            pairs = [
                ("magnitude", feature.magnitude_interval, true_feature.magnitude),
                ("undone", feature.undone_interval, true_feature.undone),
            ]
            if feature.shifts:
                differences = {shift.name: shift.difference for shift in true_feature.shifts}
                pairs += [(s.name, s.interval, differences[s.name]) for s in feature.shifts]
            else:
                pairs.append(
                    ("consistency", feature.consistency_interval, true_feature.consistency)
                )
            for figure, (low, high), value in pairs:
                hits[f"{feature.name} {figure}"] += low - 1e-9 <= value <= high + 1e-9
    return hits


@pytest.mark.parametrize("draws", [1, 8])
def test_intervals_reach_their_nominal_coverage(draws):
    """At least 95%, at a false alarm rate of 1e-4; far less if flips count as independent."""
    truth = report_of(draw_flipset(200_000, draws, seed=10**6))
    runs = 400
    hits = coverage_counts(draws, truth, range(runs))
    lowest = stats.binom.ppf(1e-4, runs, 0.95)
    assert {name: count for name, count in hits.items() if count < lowest} == {}
    # Not by being too wide: coverage of a share near 0.5 is close to the nominal level.
    assert hits["income undone"] <= stats.binom.ppf(0.999, runs, 0.98 if draws == 1 else 0.985)
    if draws > 1:
        split = coverage_counts(draws, truth, range(runs), split=True)
        assert min(split.values()) < stats.binom.ppf(1e-6, runs, 0.95)


def test_the_model_is_not_called_for_variables_that_do_not_differ():
    row_counts = []

    def counting(rows):
        row_counts.append(len(rows))
        return model(rows)

    report = report_of(draw_flipset(400, 2), decide=counting)
    fixed = report.of("fixed")
    assert (fixed.magnitude, fixed.magnitude_interval, fixed.consistency) == (0.0, (0.0, 0.0), 0.0)
    assert (fixed.changed, fixed.undone) == (0.0, 0.0)
    assert "Equal in all flips: fixed." in str(report)
    assert len(row_counts) == 5
    changed = [
        round(feature.changed * report.asked) for feature in report.features if feature.changed
    ]
    assert sorted(row_counts) == sorted(changed)


def test_the_model_decides_on_a_sample_of_many_flips():
    flipset = draw_flipset(3_000, 4)
    whole, part = report_of(flipset), report_of(flipset, max_rows=500, seed=1)
    assert whole.asked > 2_000
    assert part.asked == 500
    one, other = whole.of("income").undone, part.of("income").undone
    assert one != other
    assert abs(one - other) < 4 * np.sqrt(one * (1 - one) / 500)
    assert part == report_of(flipset, max_rows=500, seed=1)
    assert part.of("income").magnitude == whole.of("income").magnitude


def test_rows_without_a_decision_are_excluded_and_counted():
    def partly_abstaining(rows):
        return np.where(rows[:, 3] > 2, -1, model(rows)).astype(np.int8)

    flipset = draw_flipset(2_000, 1)
    report = report_of(flipset, decide=partly_abstaining)
    undecided = flipset.flips("advantaged")[0] & (flipset.counterparts[0, :, 3] > 2)
    income = report.of("income")
    assert income.unanswered == undecided.sum() > 0
    decided = Flipset(
        features=flipset.features[~undecided],
        counterparts=flipset.counterparts[:, ~undecided],
        decisions=flipset.decisions[~undecided],
        counterpart_decisions=flipset.counterpart_decisions[:, ~undecided],
    )
    assert income.undone == pytest.approx(report_of(decided).of("income").undone)
    assert "that the model did not return" in str(report)
    never_decided = report_of(flipset, decide=lambda rows: np.full(len(rows), -1, np.int8))
    assert never_decided.of("income").undone is None
    assert {feature.name for feature in never_decided.features} == {
        feature.name for feature in report.features
    }
    assert [feature.name for feature in never_decided.by_undoing] == ["fixed"]


@pytest.mark.parametrize(
    "decide",
    [
        lambda rows: np.zeros(len(rows) + 1, np.int8),
        lambda rows: np.full(len(rows), 2, np.int8),
        lambda rows: np.full(len(rows), 0.5),
    ],
)
def test_invalid_decisions_are_rejected(decide):
    with pytest.raises(AuditInputError, match="decide: must return"):
        report_of(draw_flipset(400, 1), decide=decide)
