"""Good maps pass validation, others fail with the right reason; figures agree with scipy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

from monitor import Feature, World
from offline_audit import Columns, map_method
from offline_audit.maps.columns import Scaling
from offline_audit.maps.detectable import Detectable
from offline_audit.maps.transport_map import COSTS, SQUARED_L2
from offline_audit.maps.validation import validate_map
from tests.offline_audit.maps.two_groups import MIXED, TWO, correlated, gaussians, mixed
from tests.oracle.assignment import cheapest_assignment

N = 1_000


@dataclass(frozen=True)
class FunctionMap:
    """A deterministic map from a function of rows."""

    function: Any

    @property
    def splits(self):
        return False

    def transport(self, features, n_counterparts=1):
        return self.function(features)[None].astype(np.float32)


def validated(method, groups, n=N):
    """Fitted to some rows, validated on others."""
    fitted = map_method(method).fit(groups.source, groups.target, groups.columns)
    return validate_map(
        fitted, groups.unseen[:n], groups.unseen_target[:n], groups.columns, SQUARED_L2
    )


@pytest.mark.parametrize("method", ["gaussian", "sliced", "joint_quantile"])
def test_good_maps_of_gaussians_pass(method):
    result = validated(method, gaussians(N))
    assert result.failures == ()
    assert result.passed
    assert result.rows == (N, N)
    assert result.auc < 0.65


def test_the_default_map_passes_on_features_of_all_kinds():
    assert validated("joint_quantile", mixed(2_000)).failures == ()


def test_margins_alone_fail_where_features_are_correlated_differently():
    source, target, _ = correlated(4_000)
    fitted = map_method("quantile").fit(source[:2_000], target[:2_000], TWO)
    result = validate_map(fitted, source[2_000:], target[2_000:], TWO, SQUARED_L2)
    assert not result.passed
    assert "depends on the other features differently" in " ".join(result.failures)
    assert "a classifier separates transported rows" in " ".join(result.failures)
    # Each feature by itself agrees.
    assert max(fit.ks for fit in result.variables) < 0.05
    repaired = map_method("joint_quantile").fit(source[:2_000], target[:2_000], TWO)
    assert validate_map(repaired, source[2_000:], target[2_000:], TWO, SQUARED_L2).passed


def test_the_identity_fails_if_groups_differ():
    g = gaussians(N)
    result = validate_map(
        FunctionMap(lambda x: x), g.unseen[:N], g.unseen_target[:N], g.columns, SQUARED_L2
    )
    failures = " ".join(result.failures)
    assert "a has a different distribution" in failures
    assert "b has a different distribution" in failures
    assert result.auc > 0.9
    assert result.distance == 0


def test_a_constant_map_fails():
    g = gaussians(N)
    mean = g.target.mean(0)
    result = validate_map(
        FunctionMap(lambda x: np.tile(mean, (len(x), 1))),
        g.unseen[:N],
        g.unseen_target[:N],
        g.columns,
        SQUARED_L2,
    )
    assert len([f for f in result.failures if "has a different distribution" in f]) == 3
    assert result.auc > 0.9


def test_a_random_assignment_fails_by_its_distance_only():
    """It has the target's distribution but a high transport cost."""
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(2, N, 2)).astype(np.float32)
    assigned = target[rng.permutation(N)]
    result = validate_map(
        FunctionMap(lambda x: assigned[: len(x)]), source, target, TWO, SQUARED_L2
    )
    (failure,) = result.failures
    assert "times the optimal cost" in failure


def test_a_category_that_depends_on_a_number_differently_is_detected():
    """Regressions exclude the category's other columns, which determine the last one."""
    columns = Columns(
        features=(MIXED.features[0], *MIXED.features[3:6]), one_hot_groups=MIXED.one_hot_groups[:1]
    )
    rng = np.random.default_rng(1)

    def draw_rows(sign):
        number = rng.normal(size=2_000)
        category = np.clip(np.round(1 + sign * number + 0.3 * rng.normal(size=2_000)), 0, 2)
        return np.column_stack([number, category[:, None] == np.arange(3)]).astype(np.float32)

    result = validate_map(
        FunctionMap(lambda x: x), draw_rows(1), draw_rows(-1), columns, SQUARED_L2
    )
    assert any("town depends on the other features" in failure for failure in result.failures)
    equal_groups = validate_map(
        FunctionMap(lambda x: x), draw_rows(1), draw_rows(1), columns, SQUARED_L2
    )
    assert equal_groups.passed


def test_figures_agree_with_scipy_and_sklearn():
    g = mixed(600, unseen=500)
    fitted = map_method("quantile").fit(g.source, g.target, MIXED)
    cost = COSTS["squared_l1"]
    result = validate_map(fitted, g.unseen, g.unseen_target, MIXED, cost, seed=3)
    transported = fitted.transport(g.unseen)[0]
    by_name = {fit.name: fit for fit in result.variables}
    for column, name in enumerate(("income", "children", "owns")):
        gap = stats.ks_2samp(
            transported[:, column], g.unseen_target[:, column], method="asymp"
        ).statistic
        assert by_name[name].ks == pytest.approx(gap)
    town = np.abs(transported[:, 3:6].mean(0) - g.unseen_target[:, 3:6].mean(0)).max()
    assert by_name["town"].ks == pytest.approx(town, abs=1e-6)
    job = np.abs(transported[:, 6:8].mean(0) - g.unseen_target[:, 6:8].mean(0))
    dropped = abs(transported[:, 6:8].sum(1).mean() - g.unseen_target[:, 6:8].sum(1).mean())
    assert by_name["job"].ks == pytest.approx(max(*job, dropped), abs=1e-6)

    scaling = Scaling.of(g.unseen, g.unseen_target, MIXED)
    target, source = scaling.scaled(g.unseen_target), scaling.scaled(g.unseen)
    transported_scaled = scaling.scaled(transported)
    assert result.distance == pytest.approx(cost.matched(source, transported_scaled).mean())
    assert result.exact_distance == pytest.approx(
        cheapest_assignment(cost.pairwise(source, target))
    )

    low, high = np.quantile(target, [0.005, 0.995], axis=0)
    transported_scaled, target = np.clip(transported_scaled, low, high), np.clip(target, low, high)
    halves = np.array_split(np.random.default_rng(3).permutation(len(target)), 2)
    for variable in MIXED.variables:
        columns = list(variable.columns)
        rest = [c for c in range(8) if c not in columns]
        errors = []
        for learn, test in (halves, halves[::-1]):
            model = LinearRegression().fit(target[learn][:, rest], target[learn][:, columns])
            errors.append(
                [
                    ((rows[:, columns] - model.predict(rows[:, rest])) ** 2).mean(0)
                    for rows in (transported_scaled, target[test])
                ]
            )
        mean_errors = np.mean(errors, 0)
        differences = (mean_errors[0] - mean_errors[1]) / target[:, columns].var(0)
        largest = differences[np.argmax(np.abs(differences))]
        assert by_name[variable.name].regression == pytest.approx(largest, abs=1e-4)


@pytest.mark.parametrize("rows", [50, 100])
def test_the_identity_passes_for_small_equal_groups_with_many_features(rows):
    """The 25 columns of the world, and 50 or 100 rows per group."""
    world = World()
    columns = Columns(features=world.features, one_hot_groups=world.one_hot_groups)
    rejections = 0
    for seed in range(12):
        people = world.people(2 * rows, seed=seed).features
        result = validate_map(
            FunctionMap(lambda x: x), people[:rows], people[rows:], columns, SQUARED_L2
        )
        rejections += not result.passed
    # At most 1% each; more than two of twelve has probability 1 in 5,000.
    assert rejections <= 2


def test_a_map_of_few_distinct_rows_passes():
    columns = Columns(features=tuple(Feature(name=n, kind="binary") for n in "ab"))
    rng = np.random.default_rng(2)
    source, target = ((rng.random((N, 2)) < share).astype(np.float32) for share in (0.5, 0.65))
    fitted = map_method("joint_quantile").fit(source, target, columns)
    result = validate_map(fitted, source, target, columns, SQUARED_L2)
    assert result.passed
    assert max(fit.ks for fit in result.variables) < 0.02


def test_single_and_constant_features_are_validated():
    rng = np.random.default_rng(3)
    source = rng.normal(size=(200, 1)).astype(np.float32)
    single = Columns.numeric(["a"])
    fitted = map_method("joint_quantile").fit(source, source + 1, single)
    assert validate_map(fitted, source, source + 1, single, SQUARED_L2).passed
    constant = np.full((50, 2), 3.0, np.float32)
    result = validate_map(FunctionMap(lambda x: x), constant, constant, TWO, SQUARED_L2)
    assert result.passed
    assert result.exact_distance == 0
    moved = validate_map(FunctionMap(lambda x: x + 1), constant, constant, TWO, SQUARED_L2)
    assert not moved.passed


@pytest.mark.parametrize("rows", [5, 12])
def test_few_rows_give_finite_figures(rows):
    g = gaussians(40, unseen=rows)
    result = validated("gaussian", g, rows)
    assert np.isfinite(
        [result.auc, result.distance, *(f.regression for f in result.variables)]
    ).all()


def test_validation_is_reproducible_and_modifies_nothing():
    g = mixed(300, unseen=300)
    originals = g.unseen.copy(), g.unseen_target.copy()
    first, second = (validated("joint_quantile", g) for _ in range(2))
    assert first == second
    assert np.array_equal(g.unseen, originals[0])
    assert np.array_equal(g.unseen_target, originals[1])


def test_a_map_is_validated_only_if_the_rows_could_show_a_bad_one():
    few, many = (validated("joint_quantile", gaussians(n, unseen=n), n) for n in (150, 3_000))
    assert (few.state, few.passed) == ("not shown", True)
    assert few.detectable.ks > 0.3
    assert "no check failed on 150 held-out people, but they are too few" in few.statement
    assert f"KS {few.detectable.ks:.3f} (required: 0.15)" in few.statement
    assert "required" not in many.statement
    assert many.state == "validated"
    assert many.statement.startswith("Map validated on 3,000 held-out people.")
    for result in (few, many):
        assert f"Found in 80% of such samples: KS {result.detectable.ks:.3f}" in result.statement


def test_a_failed_map_says_so_on_any_number_of_rows():
    for n in (150, 3_000):
        g = gaussians(n, unseen=n)
        result = validate_map(
            FunctionMap(lambda x: x), g.unseen[:n], g.unseen_target[:n], g.columns, SQUARED_L2
        )
        assert result.state == "failed"
        assert result.statement.startswith(f"Map failed validation on {n:,} held-out people.")


def test_detectable_deviations_are_solutions_of_their_equations():
    rng = np.random.default_rng(0)
    errors, costs = rng.normal(size=(400, 2)) ** 2, rng.exponential(size=300)
    power: Any = Detectable.of(
        ks_limit=0.2, rows=(500, 400), errors=errors, test_rows=200, costs=costs
    )
    assert power.ks == pytest.approx(0.2 + 0.842 * 0.5 * np.sqrt(1 / 500 + 1 / 400))
    error = np.sqrt(power.auc * (1 - power.auc) / 200)
    assert power.auc == pytest.approx(0.6 + (2.33 + 0.842) * error)
    s, t = (errors.std(0) / np.sqrt(n) for n in (500, 400))
    noise = np.sqrt((s * (1 + power.regression / errors.mean(0))) ** 2 + t**2)
    assert power.regression == pytest.approx(max(0.2 + 4.842 * noise), rel=0.05)
    assert (power.regression >= 0.2 + 4.842 * noise - 1e-9).all()
    spread = power.distance * costs.std() / costs.mean() / np.sqrt(300)
    assert power.distance - 0.842 * spread == pytest.approx(3.0)


def test_too_few_rows_detect_no_change_of_dependence():
    errors = np.random.default_rng(0).normal(size=(20, 1)) ** 2
    power = Detectable.of(
        ks_limit=0.4, rows=(20, 20), errors=errors, test_rows=5, costs=np.zeros(20)
    )
    assert power.regression is None
    assert not power.sufficient
    assert "squared error none (required: 1.2)" in str(power)


def test_rare_columns_do_not_limit_the_power():
    """A flag of 1% of the rows: its dependence concerns no more rows than the KS check allows."""
    rng = np.random.default_rng(1)
    columns = Columns(
        features=(Feature(name="a", kind="numeric"), Feature(name="rare", kind="binary"))
    )
    rows = np.column_stack([rng.normal(size=6_000), rng.random(6_000) < 0.01]).astype(np.float32)
    result = validate_map(FunctionMap(lambda x: x), rows[:3_000], rows[3_000:], columns, SQUARED_L2)
    assert result.state == "validated"
