"""Bad input gets an error that says what and where, or a result that says why it has no p-value."""

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
    "no row has a known group": {"groups": np.array([None] * N)},
    "fewer than two groups of group have 5 people": {
        "groups": np.array(["a"] * (N - 4) + ["b"] * 4)
    },
    "no row with label 0 has a known group": {
        "labels": np.ones(N),
        "criterion": "equalized_odds",
    },
    "Labels exist for decision 1 only": {
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
    given = {"decisions": DECISIONS, "distances": DISTANCES, "groups": GROUPS}
    found = projected(**{**given, **WITHOUT_P[reason]})
    assert found.p_value is None
    assert found.rejected is None
    assert reason in (found.reason or "")
    assert reason in str(found).replace("\n  ", " ")
    assert found.to_dict()["p_value"] is None


def unfair(seed=1, groups=3):
    """Rates .2 and .8 apart, and overlapping attributes."""
    rng = np.random.default_rng(seed)
    sex, race = rng.integers(0, 2, N), rng.integers(0, groups, N)
    return (rng.random(N) < 0.2 + 0.5 * sex + 0.1 * (race == 1)).astype(int), sex, race


def test_rows_on_the_boundary_cost_nothing_and_give_a_warning():
    decisions, sex, _ = unfair()
    found = projected(decisions, np.zeros(N), sex)
    assert found.statistic == 0.0
    assert found.p_value < 1e-9
    assert any("400 rows are on the boundary" in warning for warning in found.warnings)


@pytest.mark.parametrize("given", ["sex", "race", "both"])
@pytest.mark.parametrize(
    "options", [{}, {"tolerance": 0.02}, {"criterion": "equalized_odds", "labels": LABELS}]
)
def test_the_standardized_law_does_not_depend_on_the_cost(given, options):
    decisions, sex, race = unfair()
    groups = {"sex": {"sex": sex}, "race": {"race": race}, "both": {"sex": sex, "race": race}}
    refused_at_0 = np.where((sex == 0) & (decisions == 0), 0.0, DISTANCES)
    wanted = projected(decisions, np.full(N, 1e-12), groups[given], **options)
    for distances in (np.zeros(N), refused_at_0):
        found = projected(decisions, distances, groups[given], **options)
        assert found.p_value == pytest.approx(wanted.p_value, rel=1e-9)
    assert wanted.p_value < 0.2


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
        found = projected(decisions, far, groups, law=law)
        assert found.p_value is None
        assert "Closing the gaps costs nothing" in found.reason
        assert "Closing the gaps costs nothing" in str(found)


@pytest.mark.parametrize("law", ["standardized", "curve"])
@pytest.mark.parametrize("distance", [0.0, math.inf])
@pytest.mark.parametrize("others", [0.0, 1.0, math.inf])
def test_equal_rates_have_a_p_value_of_one(law, distance, others):
    distances = np.full(N, distance)
    distances[1:] = others
    found = projected(np.tile([0, 1], 200), distances, np.repeat(["a", "b"], 200), law=law)
    assert found.p_value == 1.0


@pytest.mark.parametrize("near", [0, 1, 2])
def test_the_kernel_law_needs_rows_near_the_boundary(near):
    """Rates are equal; nobody, one or two can turn."""
    distances = np.full(N, math.inf)
    distances[:near] = 0.1
    groups = np.repeat(["a", "b"], 200)
    found = projected(np.tile([0, 1], 200), distances, groups, law="kernel")
    if near:
        assert found.p_value == 1.0
    else:
        assert "No row is near enough to the boundary" in found.reason


def test_the_kernel_law_has_no_p_value_for_a_gap_far_from_the_boundary():
    decisions, sex, _ = unfair()
    found = projected(decisions, 100 + DISTANCES, sex, law="kernel", bandwidth=0.1)
    assert found.p_value is None
    assert "No row is near enough" in found.reason
