"""Cost curves hold the nearest rows; rows that never change are counted."""

from __future__ import annotations

import math

import numpy as np

from offline_audit.projection.partition import partition
from offline_audit.projection.sample import Sample
from tests.offline_audit.projection.projected import projected

RNG = np.random.default_rng(0)
N = 400
DECISIONS = RNG.integers(0, 2, N)
DISTANCES = RNG.exponential(size=N)
GROUPS = RNG.choice(["a", "b"], N)


def test_only_the_nearest_rows_are_sorted():
    rng = np.random.default_rng(5)
    n = 50_000
    sample = Sample.read(
        groups={"group": rng.integers(0, 2, n)},
        decisions=rng.integers(0, 2, n),
        distances=rng.exponential(size=n),
    )
    nearest = partition(sample, "statistical_parity", smallest_expected=5, all_distances=False)
    whole = partition(sample, "statistical_parity", smallest_expected=5, all_distances=True)
    for cell, full in zip(nearest.strata[0].cells, whole.strata[0].cells, strict=True):
        assert len(cell.rise.nearest) < 0.1 * len(full.rise.nearest)
        np.testing.assert_array_equal(
            cell.rise.nearest, full.rise.nearest[: len(cell.rise.nearest)]
        )


def test_rows_at_an_infinite_distance_never_change_and_give_a_warning():
    distances = np.where(RNG.random(N) < 0.3, math.inf, DISTANCES)
    result = projected(DECISIONS, distances, GROUPS, smallest_cell=1)
    assert math.isfinite(result.statistic)
    assert any(
        "at an infinite distance: their decisions never change" in warning
        for warning in result.warnings
    )
