"""Data that cannot be tested give a reason and no p-value; the laws differ as documented."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.offline_audit.projection.projected import projected

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 400
DECISIONS = RNG.integers(0, 2, N)
DISTANCES = RNG.exponential(size=N)
GROUPS = RNG.choice(["a", "b"], N)
LABELS = RNG.integers(0, 2, N)


WITHOUT_P: dict[str, dict[str, Any]] = {
    "All decisions are 1": {"decisions": np.ones(N, dtype=int)},
    "group has only one group, a": {"groups": np.array(["a"] * N)},
    "No row has a known group": {"groups": np.array([None] * N)},
    "Fewer than two groups of group have an expected count of at least 5": {
        "groups": np.array(["a"] * (N - 4) + ["b"] * 4)
    },
    "No row with label 0 has a known group": {
        "labels": np.ones(N),
        "criterion": "equalized_odds",
    },
    "Labels exist only for rows with decision 1": {
        "labels": np.where(DECISIONS == 1, LABELS, math.nan),
        "criterion": "equal_opportunity",
    },
    "Too few rows have a finite distance": {
        "distances": np.full(N, math.inf),
        "decisions": (GROUPS == "a") ^ (RNG.random(N) < 0.2),
    },
}


@pytest.mark.parametrize("reason", WITHOUT_P)
def test_untestable_data_have_a_reason_and_no_p_value(reason):
    arguments = {"decisions": DECISIONS, "distances": DISTANCES, "groups": GROUPS}
    result = projected(**{**arguments, **WITHOUT_P[reason]})
    assert result.p_value is None
    assert result.rejected is None
    assert reason in (result.reason or "")
    assert reason in str(result).replace("\n  ", " ")
    assert result.to_dict()["p_value"] is None


def unfair(seed=1, groups=3):
    """Decisions whose rates differ by .5 between sexes, with two overlapping attributes."""
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, N), rng.integers(0, groups, N)
    return (rng.random(N) < 0.2 + 0.5 * sex + 0.1 * (race == 1)).astype(int), sex, race


def test_rows_on_the_boundary_cost_nothing_and_give_a_warning():
    decisions, sex, _ = unfair()
    result = projected(decisions, np.zeros(N), sex)
    assert result.statistic == 0.0
    assert result.p_value < 1e-9
    assert any("400 rows are on the boundary" in warning for warning in result.warnings)


@pytest.mark.parametrize("attributes", ["sex", "race", "both"])
@pytest.mark.parametrize(
    "options", [{}, {"tolerance": 0.02}, {"criterion": "equalized_odds", "labels": LABELS}]
)
def test_the_standardized_law_does_not_depend_on_the_cost(attributes, options):
    decisions, sex, race = unfair()
    groups = {"sex": {"sex": sex}, "race": {"race": race}, "both": {"sex": sex, "race": race}}
    negative_at_boundary = np.where((sex == 0) & (decisions == 0), 0.0, DISTANCES)
    expected = projected(decisions, np.full(N, 1e-12), groups[attributes], **options)
    for distances in (np.zeros(N), negative_at_boundary):
        result = projected(decisions, distances, groups[attributes], **options)
        assert result.p_value == pytest.approx(expected.p_value, rel=1e-9)
    assert expected.p_value < 0.2


def test_several_gaps_that_cost_nothing_have_no_p_value():
    decisions, sex, race = unfair()
    one = projected(decisions, np.zeros(N), sex, law="curve")
    assert one.p_value == projected(decisions, np.full(N, 1e-12), sex).p_value
    half = np.where(np.arange(N) % 2, 0.0, DISTANCES)
    for law, groups, far in [
        ("curve", race, np.zeros(N)),
        ("curve", race, half),
        ("kernel", sex, np.zeros(N)),
        ("curve", {"sex": sex, "race": race}, np.zeros(N)),
    ]:
        result = projected(decisions, far, groups, law=law)
        assert result.p_value is None
        assert "Closing the gaps costs nothing" in result.reason
        assert "Closing the gaps costs nothing" in " ".join(str(result).split())


@pytest.mark.parametrize("law", ["standardized", "curve"])
@pytest.mark.parametrize("distance", [0.0, math.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, math.inf])
def test_equal_rates_have_a_p_value_of_one(law, distance, others):
    distances = np.full(N, distance)
    distances[1:] = others
    result = projected(np.tile([0, 1], 200), distances, np.repeat(["a", "b"], 200), law=law)
    assert result.p_value == 1.0


@pytest.mark.parametrize("n_near", [0, 1, 2])
def test_the_kernel_law_needs_rows_near_the_boundary(n_near):
    """Rates are equal; no row, one row or two rows have a finite distance."""
    distances = np.full(N, math.inf)
    distances[:n_near] = 0.1
    groups = np.repeat(["a", "b"], 200)
    result = projected(np.tile([0, 1], 200), distances, groups, law="kernel")
    if n_near:
        assert result.p_value == 1.0
    else:
        assert "No row is near enough to the boundary" in result.reason


def test_the_kernel_law_has_no_p_value_for_a_gap_far_from_the_boundary():
    decisions, sex, _ = unfair()
    result = projected(decisions, 100 + DISTANCES, sex, law="kernel", bandwidth=0.1)
    assert result.p_value is None
    assert "No row is near enough" in result.reason


def test_changes_are_counted_among_the_rows_that_are_compared():
    groups = np.array([*GROUPS[:100], *[None] * (N - 100)], object)
    result = projected(DECISIONS, DISTANCES, groups)
    assert (result.rows, result.rows_compared) == (N, 100)
    assert "of 100 decisions" in str(result)
    result = projected(DECISIONS, DISTANCES, groups, labels=LABELS, criterion="equal_opportunity")
    assert result.rows_compared == int((LABELS[:100] == 1).sum())
