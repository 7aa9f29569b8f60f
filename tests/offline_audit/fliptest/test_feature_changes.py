"""Intervals over flips treat the person as the unit, and undone flips follow the model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from offline_audit import AuditInputError
from offline_audit.fliptest.feature_changes import WeightedFlips
from offline_audit.fliptest.flipset import Flipset
from tests.offline_audit.fliptest.synthetic_flips import drawn, model, report_of


def flips_of(values, owner):
    """Flips with one feature, and the people they belong to."""
    values = np.asarray(values, np.float32)[:, None]
    _, people, weights = np.unique(owner, return_inverse=True, return_counts=True)
    return WeightedFlips(own=values, other=0 * values, owner=people, weights=weights.astype(float))


def test_flips_belong_to_the_people_who_have_them():
    flipset = drawn(300, 4)
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
    """Student's where nothing is skewed, and Wilson's but for the people it counts."""
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
    once, again = flips_of(values, owner), flips_of(np.repeat(values, 5), np.repeat(owner, 5))
    for name, given in (
        ("mean_interval", values),
        ("share_interval", values > 0),
        ("net_interval", np.sign(values).astype(np.int8)),
    ):
        expected = getattr(once, name)(given, 0.95)
        assert getattr(again, name)(np.repeat(given, 5), 0.95) == pytest.approx(expected)


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_equal_signs_have_an_interval_that_ends_at_them(sign):
    flips = flips_of(np.ones(30), np.arange(30))
    low, high = flips.net_interval(np.full(30, sign, np.int8), 0.95)
    assert -1 <= low <= sign <= high <= 1
    assert 0 < high - low < 0.3
    if sign:
        assert sign in (low, high)


def covered(draws, truth, seeds, *, split=False):
    """How often each interval holds the truth; `split` forgets which flips are one person's."""
    hits: Counter[str] = Counter()
    for seed in seeds:
        flipset = drawn(120, draws, seed)
        if split:
            flipset = Flipset(
                features=np.tile(flipset.features, (draws, 1)),
                counterparts=flipset.counterparts.reshape(1, -1, 9),
                decisions=np.tile(flipset.decisions, draws),
                counterpart_decisions=flipset.counterpart_decisions.reshape(1, -1),
            )
        found = report_of(flipset, smallest_cell=1)
        for each in found.features:
            true = truth.of(each.name)
            pairs = [
                ("magnitude", each.magnitude_interval, true.magnitude),
                ("undone", each.undone_interval, true.undone),
            ]
            if each.shifts:
                of = {shift.name: shift.difference for shift in true.shifts}
                pairs += [(s.name, s.interval, of[s.name]) for s in each.shifts]
            else:
                pairs.append(("consistency", each.consistency_interval, true.consistency))
            for what, (low, high), value in pairs:
                hits[f"{each.name} {what}"] += low - 1e-9 <= value <= high + 1e-9
    return hits


@pytest.mark.parametrize("draws", [1, 8])
def test_intervals_cover(draws):
    """At least as often as 95% would, but for chance once in 10,000; far fewer if people split."""
    truth = report_of(drawn(200_000, draws, seed=10**6))
    runs = 400
    hits = covered(draws, truth, range(runs))
    least = stats.binom.ppf(1e-4, runs, 0.95)
    assert {name: count for name, count in hits.items() if count < least} == {}
    # Not by being endless: a share of half the flips is covered about as often as it says.
    assert hits["income undone"] <= stats.binom.ppf(0.999, runs, 0.98 if draws == 1 else 0.985)
    if draws > 1:
        split = covered(draws, truth, range(runs), split=True)
        assert min(split.values()) < stats.binom.ppf(1e-6, runs, 0.95)


def test_the_model_is_not_called_for_variables_that_do_not_differ():
    asked = []

    def listening(rows):
        asked.append(len(rows))
        return model(rows)

    report = report_of(drawn(400, 2), decide=listening)
    fixed = report.of("fixed")
    assert (fixed.magnitude, fixed.magnitude_interval, fixed.consistency) == (0.0, (0.0, 0.0), 0.0)
    assert (fixed.changed, fixed.undone) == (0.0, 0.0)
    assert "Equal in all flips: fixed." in str(report)
    assert len(asked) == 5
    changed = [round(each.changed * report.asked) for each in report.features if each.changed]
    assert sorted(asked) == sorted(changed)


def test_the_model_decides_on_a_sample_of_many_flips():
    flipset = drawn(3_000, 4)
    whole, part = report_of(flipset), report_of(flipset, max_rows=500, seed=1)
    assert whole.asked > 2_000
    assert part.asked == 500
    one, other = whole.of("income").undone, part.of("income").undone
    assert one != other
    assert abs(one - other) < 4 * np.sqrt(one * (1 - one) / 500)
    assert part == report_of(flipset, max_rows=500, seed=1)
    assert part.of("income").magnitude == whole.of("income").magnitude


def test_rows_without_a_decision_are_excluded_and_counted():
    def half_silent(rows):
        return np.where(rows[:, 3] > 2, -1, model(rows)).astype(np.int8)

    flipset = drawn(2_000, 1)
    report = report_of(flipset, decide=half_silent)
    silent = flipset.flips("advantaged")[0] & (flipset.counterparts[0, :, 3] > 2)
    income = report.of("income")
    assert income.unanswered == silent.sum() > 0
    loud = Flipset(
        features=flipset.features[~silent],
        counterparts=flipset.counterparts[:, ~silent],
        decisions=flipset.decisions[~silent],
        counterpart_decisions=flipset.counterpart_decisions[:, ~silent],
    )
    assert income.undone == pytest.approx(report_of(loud).of("income").undone)
    assert "that the model did not return" in str(report)
    mute = report_of(flipset, decide=lambda rows: np.full(len(rows), -1, np.int8))
    assert mute.of("income").undone is None
    assert {each.name for each in mute.features} == {each.name for each in report.features}
    assert [each.name for each in mute.by_undoing] == ["fixed"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda rows: np.zeros(len(rows) + 1, np.int8),
        lambda rows: np.full(len(rows), 2, np.int8),
        lambda rows: np.full(len(rows), 0.5),
    ],
)
def test_invalid_decisions_are_rejected(answer):
    with pytest.raises(AuditInputError, match="decide: must return"):
        report_of(drawn(400, 1), decide=answer)
