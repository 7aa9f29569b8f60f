"""Distances to past inputs, the alarms that follow from them, and costs over a stream."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from benchmarks.clemont_cost import Cost, Slice
from benchmarks.neighbours import (
    Norm,
    alarm_at,
    best_alarm,
    neighbour_distances,
    standardised,
    tpr_at,
    unit_range,
)

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(90, 3)).astype(np.float32)
DECISIONS = RNG.random(90) < 0.3
FLIPS = RNG.random(90) < 0.4


def slow_distance(row: int, order: float) -> float:
    """Smallest distance to an earlier row with another decision, one pair at a time."""
    earlier = [other for other in range(row) if DECISIONS[other] != DECISIONS[row]]
    gaps = [float(np.linalg.norm(ROWS[row] - ROWS[other], order)) for other in earlier]
    return min(gaps, default=float("inf"))


@pytest.mark.parametrize(("norm", "order"), [("infinity", np.inf), ("l2", 2)])
@pytest.mark.parametrize("start", [0, 37])
def test_only_earlier_rows_with_another_decision_are_neighbours(
    norm: Norm, order: float, start: int
):
    # Blocks of 20 rows, so that most neighbours lie in another block.
    distances = neighbour_distances(ROWS, DECISIONS, start=start, norm=norm, block=20)
    expected = [slow_distance(row, order) for row in range(start, len(ROWS))]
    assert np.allclose(distances, expected, rtol=1e-5)


def test_the_first_row_has_no_past():
    assert neighbour_distances(ROWS, DECISIONS)[0] == np.inf


def test_an_alarm_needs_a_distance_below_epsilon():
    distances = np.array([0.1, 0.2, 0.2, np.inf])
    flips = np.array([True, True, False, False])
    alarm = alarm_at(0.2, distances, flips)
    assert (alarm.share, alarm.true_positive_rate, alarm.false_positive_rate) == (0.25, 0.5, 0)
    assert alarm.auc == pytest.approx(roc_auc_score(flips, distances < 0.2))


def test_no_epsilon_is_better_than_the_best_alarm():
    distances = np.round(RNG.random(90), 1) - 0.15 * FLIPS
    best = best_alarm(distances, FLIPS)
    every = [alarm_at(epsilon, distances, FLIPS).auc for epsilon in (*distances, np.inf)]
    every += [
        alarm_at(np.nextafter(epsilon, np.inf), distances, FLIPS).auc for epsilon in distances
    ]
    assert best.auc == pytest.approx(max(every))
    assert best == alarm_at(best.epsilon, distances, FLIPS)


def test_the_true_positive_rate_at_a_false_positive_rate_follows_the_score():
    score = np.array([4.0, 3.0, 2.0, 1.0])
    flips = np.array([True, False, True, False])
    assert tpr_at(0.0, score, flips) == 0.5
    assert tpr_at(0.5, score, flips) == 1


def test_scalings_use_the_reference_and_keep_constant_columns_finite():
    reference = np.array([[0.0, 7.0], [4.0, 7.0]], np.float32)
    rows = np.array([[2.0, 8.0]], np.float32)
    assert unit_range(rows, reference).tolist() == [[0.5, 1.0]]
    assert standardised(rows, reference).tolist() == [[0.0, 1.0]]


def test_costs_over_a_stream():
    parts = [(2e-3, 100.0, (1,)), (4e-3, 102.0, ()), (6e-3, 104.0, (25,)), (8e-3, 107.0, ())]
    slices = tuple(Slice(seconds=s, mib=m, alarms=a) for s, m, a in parts)
    cost = Cost(size=10, slices=slices)
    assert cost.decisions == 40
    assert cost.microseconds == pytest.approx(500)
    assert cost.last_microseconds == pytest.approx(800)
    assert cost.growth == 7
    assert cost.late_growth == pytest.approx(3 / 4)
    assert np.flatnonzero(cost.alarms).tolist() == [1, 25]


def test_memory_that_does_not_grow_has_no_late_growth():
    still = Cost(size=1, slices=tuple(Slice(seconds=1, mib=100) for _ in range(4)))
    assert still.growth == 0
    assert np.isnan(still.late_growth)
