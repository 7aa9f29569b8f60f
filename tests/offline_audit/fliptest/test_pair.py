"""Validation by rates, detectable shares, and rows that figures count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offline_audit import Columns, flip_test, map_method
from offline_audit.fliptest.flipset import DecidedRows, Flipset, gross_share
from offline_audit.fliptest.resampling import bootstrap, rate_mismatch, unseen_share

FEW: dict[str, Any] = {"n_resamples": 0, "n_bootstrap": 0, "explain": False, "progress": False}


def test_many_small_differences_fail_validation():
    rng = np.random.default_rng(0)
    # Each of 60 features differs by 0.05 standard deviations, too little for the map to move it.
    people = [rng.normal(shift, 1, (2_000, 60)).astype(np.float32) for shift in (0.0, 0.05)]
    groups = np.repeat(["a", "b"], 2_000)
    result: Any = flip_test(
        lambda rows: rows.sum(1) > 0,
        np.concatenate(people),
        groups,
        **{**FEW, "n_resamples": 9},
    )
    for direction in result:
        assert abs(direction.rates[0] - direction.rates[1]) > 0.1
        assert direction.p_value is None
        assert "fails validation" in direction.reason


def flipset(rate: float, n: int = 1_000) -> Flipset:
    decided = np.arange(n) < rate * n
    features = np.zeros((n, 1), np.float32)
    return Flipset(
        features=features,
        counterparts=features[None],
        decisions=decided,
        counterpart_decisions=decided[None],
    )


@pytest.mark.parametrize(("rate", "contradicts"), [(0.5, False), (0.57, False), (0.65, True)])
def test_the_rate_of_transported_rows_is_compared_with_the_target(rate, contradicts):
    half = np.arange(1_000) < 500
    target = DecidedRows(features=np.zeros((1_000, 1), np.float32), decisions=half)
    assert (rate_mismatch(flipset(rate), target) is not None) == contradicts


def test_the_detectable_share_depends_on_group_size_and_features():
    assert unseen_share(10_000, 10_000, 5) < unseen_share(1_000, 1_000, 5)
    assert unseen_share(1_000, 1_000, 5) < unseen_share(1_000, 1_000, 50)
    assert unseen_share(2, 2, 5) <= 1


class ShiftMap:
    """A map that adds one to every value."""

    splits = False

    def transport(self, features: np.ndarray, n_counterparts: int = 1) -> np.ndarray:
        return (features + 1)[None]


class HalfAbstaining:
    """Decides 1 for even values and gives no decision (-1) for odd ones."""

    def decide(self, features: np.ndarray) -> np.ndarray:
        return np.where(features[:, 0] % 2 == 0, 1, -1).astype(np.int8)


def test_rows_without_a_decision_do_not_count_in_the_gross_share():
    people = DecidedRows(
        features=np.arange(100, dtype=np.float32)[:, None], decisions=np.zeros(100, bool)
    )
    assert gross_share(people, ShiftMap(), HalfAbstaining(), 1) == 1.0


def test_a_small_target_makes_the_error_of_a_large_source_large():
    """The bootstrap error matches the standard deviation over new samples of both groups."""
    columns, method = Columns.numeric(["x"]), map_method("quantile")

    class Above:
        def decide(self, features: np.ndarray) -> np.ndarray:
            return (features[:, 0] > 0).astype(np.int8)

    def draw_groups(seed: int) -> tuple[DecidedRows, DecidedRows]:
        rng = np.random.default_rng(seed)
        groups = [
            rng.normal(shift, 1, (n, 1)).astype(np.float32) for n, shift in ((8_000, 0), (150, 1))
        ]
        one, other = (DecidedRows(features=g, decisions=g[:, 0] > 0) for g in groups)
        return one, other

    shares = []
    for seed in range(60):
        one, other = draw_groups(seed)
        fitted = method.fit(one.features, other.features, columns)
        shares.append(gross_share(one, fitted, Above(), 1))
    first, second = draw_groups(100)
    maps = tuple(
        method.fit(a.features, b.features, columns) for a, b in ((first, second), (second, first))
    )
    error, _ = bootstrap(
        first,
        second,
        (maps[0], maps[1]),
        method,
        columns,
        Above(),
        n_bootstrap=60,
        seed=0,
        tick=lambda: None,
    )
    truth = float(np.std(shares, ddof=1))
    # Both are standard deviations of 60 draws: relative error 9% each, at 4 standard errors.
    assert error.gross == pytest.approx(truth, rel=0.55)
    assert error.gross > 0.6 * truth
