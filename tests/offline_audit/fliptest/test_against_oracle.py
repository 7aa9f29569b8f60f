"""On one feature, FlipTest reports the same flips as a slow reference implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor import Feature
from offline_audit import Columns, flip_test
from tests.oracle import fliptest as oracle

QUICK: dict[str, Any] = {"n_resamples": 0, "n_bootstrap": 0, "explain": False, "progress": False}
SIDES = ("advantaged", "disadvantaged")


def result_and_oracle(source, target, decide, kind):
    """The result, the flips of the oracle and both groups' values, for each direction."""
    people = np.concatenate([source, target])[:, None].astype(np.float32)
    groups = np.repeat(["a", "b"], [len(source), len(target)])
    columns = Columns(features=(Feature(name="x", kind=kind),))
    result = flip_test(lambda rows: decide(rows[:, 0]), people, groups, columns=columns, **QUICK)
    parts = people[groups == "a", 0].tolist(), people[groups == "b", 0].tolist()
    for (source_values, target_values), direction in zip((parts, parts[::-1]), result, strict=True):
        yield (
            direction,
            oracle.flips(source_values, target_values, decide),
            (source_values, target_values),
        )


@pytest.mark.parametrize("sizes", [(300, 300), (250, 350)])
def test_numeric_feature_matches_the_oracle(sizes):
    rng = np.random.default_rng(sizes[0])
    source, target = rng.normal(0, 1, sizes[0]), rng.normal(0.8, 1.5, sizes[1])

    def decide(x):
        return x > 0.7

    for direction, expected, (source_values, target_values) in result_and_oracle(
        source, target, decide, "numeric"
    ):
        # Ranks are rounded to a grid, up to 16 of 512, and to one row of the smaller group.
        tolerance = 16 / 512 + 1 / min(sizes)
        cut = np.mean(np.array(target_values) <= 0.7)
        near_threshold = (
            np.abs([np.mean(np.array(source_values) <= x) - cut for x in source_values]) < tolerance
        )
        for side, parts in zip(SIDES, expected, strict=True):
            members = direction.flipset.members(side)
            assert np.array_equal(
                members[~near_threshold], (np.array(parts) >= 0.5)[~near_threshold]
            )
            assert getattr(direction, side).value == pytest.approx(np.mean(parts), abs=0.02)
        assert sum(map(sum, expected)) > 20


@pytest.mark.parametrize("share", [0.38, 0.5, 0.77])
def test_binary_feature_matches_the_oracle(share):
    rng = np.random.default_rng(1)
    source, target = rng.random(400) < 0.2, rng.random(500) < share
    for direction, expected, _ in result_and_oracle(source, target, lambda x: x > 0.5, "binary"):
        for side, parts in zip(SIDES, expected, strict=True):
            # The map resolves shares to 1/512, and so do 256 counterparts per row.
            np.testing.assert_allclose(direction.flipset.parts(side), parts, atol=0.012)
            assert getattr(direction, side).value == pytest.approx(np.mean(parts), abs=0.006)


def test_integer_feature_with_ties_matches_the_oracle():
    rng = np.random.default_rng(2)
    source, target = rng.poisson(1.0, 400), rng.poisson(2.5, 400)
    for direction, expected, _ in result_and_oracle(source, target, lambda x: x >= 2, "integer"):
        for side, parts in zip(SIDES, expected, strict=True):
            actual = direction.flipset.parts(side)
            # 1/512 of the whole group may be 1/20 of the rows with a rare count.
            np.testing.assert_allclose(actual, parts, atol=0.1)
            assert getattr(direction, side).value == pytest.approx(np.mean(parts), abs=0.008)


def test_the_oracle_matches_a_case_computed_by_hand():
    """Three values transported to four."""
    parts = oracle.counterparts(2.0, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0])
    assert parts == pytest.approx({2.0: 0.5, 3.0: 0.5})
    advantaged, disadvantaged = oracle.flips([1, 2, 3], [1, 2, 3, 4], lambda x: x > 2)
    assert advantaged == [0.0, 0.0, 0.0]
    assert disadvantaged == pytest.approx([0.0, 0.5, 0.0])
