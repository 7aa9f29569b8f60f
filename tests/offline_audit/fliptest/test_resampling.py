"""P-values, standard errors and intervals from permutations and bootstrap samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats

from monitor import Feature
from offline_audit import AuditedModel, Columns, map_method
from offline_audit.fliptest.flipset import DecidedRows, counterparts_of, gross_share
from offline_audit.fliptest.resampling import bootstrap, null_and_p_value, share_interval
from offline_audit.maps.transport_map import SQUARED_L2

ONE = Columns.numeric(["x"])


class ThresholdModel:
    """Favourable if the first column exceeds a threshold; counts the rows it decides."""

    def __init__(self, cut=0.0):
        self.cut, self.n_rows_decided = cut, 0

    def decide(self, features):
        self.n_rows_decided += len(features)
        return (features[:, 0] > self.cut).astype(np.int8)


def no_tick():
    """Progress callback that does nothing."""


def group(values, cut=0.0):
    rows = np.asarray(values, np.float32)
    rows = rows[:, None] if rows.ndim == 1 else rows
    return DecidedRows.of(rows, ThresholdModel(cut).decide(rows) == 1)


@dataclass
class Shift:
    """A map method whose fits add the constants in `by`, one after the other."""

    by: list[float]
    fits: list[tuple[Any, Any]] = field(default_factory=list)
    name: str = "shift"
    cost: Any = SQUARED_L2
    quick: bool = True
    splits: bool = False

    def fit(self, source, target, columns, *, seed=0, progress=None):
        self.fits.append((source, target))
        return Shift(by=[self.by[(len(self.fits) - 1) % len(self.by)]])

    def transport(self, features, n_counterparts=1):
        return (features + np.float32(self.by[0]))[None]


def null_sizes_of_shifts(by, observed, n_resamples):
    """Null sizes for 20 values in [-0.5, 0.5] per group: a shift by 1 flips values below 0."""
    first, second = group(np.linspace(-0.5, 0.5, 20)), group(np.linspace(-0.5, 0.5, 20))
    method, ticks = Shift(by=by), []
    result = null_and_p_value(
        first,
        second,
        method,
        ONE,
        ThresholdModel(),
        observed,
        n_resamples=n_resamples,
        seed=0,
        tick=lambda: ticks.append(1),
    )
    assert len(ticks) == n_resamples
    assert len(method.fits) == 2 * n_resamples
    return result, method


def test_the_observed_flipset_counts_as_a_permutation():
    (one, other), _ = null_sizes_of_shifts([0.0], (0.3, 0.0), 19)
    assert one.p_value == 1 / 20
    # No flips observed and none in any permutation: all are ties.
    assert other.p_value == 1
    assert (one.mean, one.bound, one.n_resamples) == (0, 0, 19)


def test_ties_count_as_large():
    (one, other), _ = null_sizes_of_shifts([0.0, 0.0, 1.0, 1.0], (0.5, 1.0), 10)
    p_values = [one.p_value, other.p_value]
    # Half of the permutations flip about half of each group.
    assert one.mean == pytest.approx(0.25, abs=0.06)
    assert p_values[1] == 1 / 11
    assert 1 / 11 < p_values[0] <= 6 / 11


def test_the_p_value_is_exact_for_known_sizes():
    """All rows are below the threshold: a shift by 1 flips all rows of any permutation."""
    first = second = group(np.full(30, -0.5))
    method = Shift(by=[0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    one, other = null_and_p_value(
        first,
        second,
        method,
        ONE,
        ThresholdModel(),
        (1.0, 1.0 + 1e-15),
        n_resamples=12,
        seed=0,
        tick=no_tick,
    )
    # Four of twelve permutations flip all rows; rounding errors of sums count as ties.
    assert one.p_value == other.p_value == 5 / 13
    assert one.mean == pytest.approx(4 / 12)
    assert one.bound == 1.0


def test_permutations_keep_group_sizes_and_rows():
    first, second = group(np.arange(12) - 6), group(np.arange(12, 20))
    method = Shift(by=[0.0])
    null_and_p_value(
        first, second, method, ONE, ThresholdModel(), (0, 0), n_resamples=8, seed=3, tick=no_tick
    )
    sources = set()
    for source, target in method.fits[::2]:
        assert (len(source), len(target)) == (12, 8)
        both = np.sort(np.concatenate([source, target])[:, 0])
        assert np.array_equal(both, np.sort(np.r_[np.arange(12) - 6, np.arange(12, 20)]))
        sources.add(tuple(np.sort(source[:, 0])))
    assert len(sources) == 8
    # The map of the other direction is fitted to the same permutation.
    (forward, backward), repeated = method.fits[:2], Shift(by=[0.0])
    assert np.array_equal(forward[0], backward[1])
    null_and_p_value(
        first, second, repeated, ONE, ThresholdModel(), (0, 0), n_resamples=8, seed=3, tick=no_tick
    )
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(method.fits, repeated.fits, strict=True))


def test_identity_maps_are_not_fitted_and_the_model_is_not_called():
    rng = np.random.default_rng(0)
    first, second = group(rng.normal(size=200)), group(rng.normal(size=200))
    model = ThresholdModel()
    one, _ = null_and_p_value(
        first,
        second,
        map_method("joint_quantile"),
        ONE,
        model,
        (0.1, 0.1),
        n_resamples=60,
        seed=0,
        tick=no_tick,
    )
    # About 1 in 20 permutations moves a row: 12 of 60 has probability 1 in 10,000.
    assert model.n_rows_decided <= 12 * 2 * 2 * 200
    # The map of the observed groups is the identity too, so the observed size is 0.
    assert one.p_value == 1


def test_the_identity_shortcut_does_not_change_the_null_distribution():
    """The same permutations with every map fitted give the same sizes."""

    @dataclass
    class WithoutShortcut:
        method: Any
        name: str = "without_shortcut"
        cost: Any = SQUARED_L2
        quick: bool = True

        def fit(self, *groups, **options):
            return self.method.fit(*groups, **options)

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(160, 4)).astype(np.float32).round(1)
    columns = Columns.numeric(["a", "b", "c", "d"])
    rows[70:, 0] += 1
    first, second = group(rows[:70]), group(rows[70:])
    quick = map_method("joint_quantile")
    result, expected = (
        null_and_p_value(
            first,
            second,
            method,
            columns,
            ThresholdModel(),
            (0.05, 0.1),
            n_resamples=150,
            seed=5,
            tick=no_tick,
        )
        for method in (quick, WithoutShortcut(quick))
    )
    assert result == expected
    assert result[0].mean > 0


def bootstrap_errors(method, n, m, n_bootstrap=40, **options):
    rng = np.random.default_rng(2)
    source, target = rng.normal(0, 1, n), rng.normal(0.6, 1, m)
    first, second = group(source), group(target)
    fit = map_method(method).fit
    maps = fit(first.features, second.features, ONE), fit(second.features, first.features, ONE)
    return bootstrap(
        first,
        second,
        maps,
        map_method(method),
        ONE,
        ThresholdModel(),
        n_bootstrap=n_bootstrap,
        seed=0,
        tick=no_tick,
        **options,
    )


@pytest.mark.parametrize("method", ["joint_quantile", "gaussian"])
def test_standard_errors_match_those_of_a_difference_of_rates(method):
    """One feature with a one-sided shift: flips equal the difference of both groups' rates."""
    forward, backward = bootstrap_errors(method, 900, 600)
    rates = stats.norm.sf([0, -0.6])
    expected = np.sqrt((rates * (1 - rates) / [900, 600]).sum())
    if method == "gaussian":
        # Gaussian rates follow from means and standard deviations, which vary less.
        assert 0.5 * expected < forward.gross < 1.05 * expected
        return
    # The standard deviation of 40 samples has a relative error of 1/9.
    for error in (forward.gross, backward.gross, forward.net, backward.net):
        assert error == pytest.approx(expected, rel=3.5 / 9)


def test_large_groups_use_smaller_scaled_samples():
    forward, _ = bootstrap_errors("quantile", 20_000, 20_000, n_bootstrap=30)
    rates = stats.norm.sf([0, -0.6])
    expected = np.sqrt((rates * (1 - rates)).sum() / 20_000)
    assert forward.gross == pytest.approx(expected, rel=4 / np.sqrt(2 * 30))


def test_standard_errors_with_one_binary_feature_are_those_of_rates():
    """Two draws per distinct row would move all of its duplicates, or half, or none."""
    rng = np.random.default_rng(3)
    columns = Columns(features=(Feature(name="b", kind="binary"),))
    first, second = (group(rng.random(1_000) < share, 0.5) for share in (0.4, 0.55))
    fit = map_method("joint_quantile").fit
    maps = (
        fit(first.features, second.features, columns),
        fit(second.features, first.features, columns),
    )
    (error, _) = bootstrap(
        first,
        second,
        maps,
        map_method("joint_quantile"),
        columns,
        ThresholdModel(0.5),
        n_bootstrap=40,
        seed=0,
        tick=no_tick,
    )
    expected = np.sqrt((0.24 + 0.2475) / 1_000)
    assert error.gross == pytest.approx(expected, rel=3.5 / 9)


@pytest.mark.parametrize(("hits", "rows"), [(0, 50), (1, 50), (13, 40), (49, 50), (50, 50)])
@pytest.mark.parametrize("confidence_level", [0.8, 0.95])
def test_without_bootstrap_the_interval_is_wilsons(hits, rows, confidence_level):
    expected = stats.binomtest(hits, rows).proportion_ci(confidence_level, method="wilson")
    interval = share_interval(hits / rows, None, rows, confidence_level)
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("rows", [40, 400])
def test_an_error_sets_the_effective_number_of_rows(rows):
    share = 13 / 40
    error = np.sqrt(share * (1 - share) / rows)
    expected = stats.binomtest(13 * rows // 40, rows).proportion_ci(method="wilson")
    interval = share_interval(share, error, 77, 0.95)
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_intervals_contain_the_share_and_stay_within_0_and_1():
    for share in (0.0, 0.001, 0.5, 0.999, 1.0):
        for error in (None, 0.0, 1e-9, 0.1, 3.0):
            low, high = share_interval(share, error, 200, 0.95)
            assert 0 <= low <= share <= high <= 1
            assert low < high


def test_shares_count_duplicates():
    """Half of the rows are duplicates, the other half are distinct."""
    rng = np.random.default_rng(4)
    columns = Columns(
        features=(Feature(name="b", kind="binary"), Feature(name="x", kind="numeric"))
    )
    duplicates, distinct = (
        np.zeros((500, 2)),
        np.column_stack([rng.random(500) < 0.3, rng.normal(size=500)]),
    )
    rows = np.concatenate([duplicates, distinct]).astype(np.float32)
    target = np.column_stack([rng.random(1_000) < 0.6, rng.normal(size=1_000)]).astype(np.float32)
    people = group(rows, 0.5)
    assert people.duplicates is not None
    fitted = map_method("quantile").fit(rows, target, columns)
    model = AuditedModel.from_function(lambda r: r[:, 0] > 0.5)
    flipset, n_excluded = counterparts_of(people, fitted, model, 8)
    assert n_excluded == 0
    assert np.array_equal(flipset.features, rows)
    assert len(flipset.counterparts) > 8
    expected = (target[:, 0] == 1).mean() - (rows[:, 0] == 1).mean()
    assert flipset.share("disadvantaged") == pytest.approx(expected, abs=0.01)
    assert gross_share(people, fitted, model, 2) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_rows_without_a_decision_count_neither_in_a_flipset_nor_in_its_null(share):
    """The model gives no decision for a share of the counterparts, or for all of them."""
    source = np.linspace(-1, 1, 200)

    class Abstaining(ThresholdModel):
        def decide(self, features):
            decisions = super().decide(features)
            decisions[features[:, 0] * 1_000 % 1 < share] = -1
            return decisions

    people, fitted = group(source), Shift(by=[0.5])
    flipset, n_excluded = counterparts_of(people, fitted, Abstaining(), 1)
    assert len(flipset) + n_excluded == 200
    assert n_excluded == pytest.approx(200 * share, abs=25)
    gross = gross_share(people, fitted, Abstaining(), 1)
    assert gross == (pytest.approx(flipset.gross) if len(flipset) else 0)
    if share < 1:
        # Half of the rows below the threshold are transported above it.
        assert gross == pytest.approx(0.25, abs=0.07)
