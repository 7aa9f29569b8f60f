"""Invalid input is rejected, failed rows are excluded, and later failures give partial results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from offline_audit import AuditedModel, AuditInputError, Columns, flip_test, map_method
from offline_audit.errors import ModelFailedError, ModelUnreachableError

QUICK: dict[str, Any] = {"n_resamples": 9, "n_bootstrap": 2, "explain": False, "progress": False}
N = 150
RNG = np.random.default_rng(0)
GROUP = np.repeat(["a", "b", "c"], N)
X = RNG.normal(size=(3 * N, 2)) + np.outer(np.repeat([0, 1, 2], N), [1.0, 0.0])
TWO = slice(0, 2 * N)


def quick_flip_test(model, features, groups, **options):
    """A quick test with some options changed."""
    return flip_test(model, features, groups, **{**QUICK, **options})


def decide(rows):
    return rows[:, 0] > 0.5


def flip_test_of_two_groups(**options):
    return quick_flip_test(decide, X[TWO], GROUP[TWO], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "teleport"}, "map: must be one of joint_quantile"),
        ({"map": 3}, "map: must be a name or a method"),
        ({"map": "exact", "cost": "l7"}, "cost: must be one of squared_l2"),
        ({"cost": "l2"}, "joint_quantile supports only squared_l2"),
        ({"map": map_method("exact"), "cost": "l2"}, "set the cost on the map method itself"),
        ({"map": "exact", "cost": lambda a, b: np.zeros(3)}, "must return shape"),
        ({"map": "exact", "cost": lambda a, b: -np.ones((len(a), len(b)))}, "not negative"),
        (
            {"criterion": "parity"},
            "unknown criterion 'parity'; use one of statistical_parity",
        ),
        ({"criterion": ["parity"]}, "criterion"),
        ({"reference": "z"}, "reference: no group 'z' of group; there are: a, b"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha": "5%"}, "alpha"),
        ({"n_counterparts": 0}, "n_counterparts: must be a whole number of at least 1"),
        ({"n_counterparts": 2.5}, "n_counterparts"),
        ({"n_resamples": -1}, "n_resamples"),
        ({"n_resamples": True}, "n_resamples"),
        ({"n_bootstrap": "many"}, "n_bootstrap"),
        ({"max_rows": 0}, "max_rows"),
        ({"max_rows": None}, "max_rows"),
        ({"smallest_group": 5}, "smallest_group: must be a whole number of at least 10"),
        ({"smallest_cell": 0}, "smallest_cell"),
        ({"seed": -1}, "seed"),
        ({"favourable": 2}, "favourable"),
        ({"threshold": float("nan")}, "threshold"),
        ({"columns": ["a"]}, "columns: 1 are described"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_invalid_options_are_rejected_by_name(options, message):
    with pytest.raises(AuditInputError, match=message):
        flip_test_of_two_groups(**options)


def test_seeds_of_any_size_are_accepted():
    assert flip_test_of_two_groups(seed=2**60 + 1).seed == 2**60 + 1
    assert flip_test_of_two_groups(seed=np.int64(7), n_resamples=9.0).seed == 7


@pytest.mark.parametrize(
    ("features", "groups", "message"),
    [
        (X[TWO], GROUP[: 2 * N - 1], "different lengths: features 300, groups of group 299"),
        (X[TWO], np.repeat("a", 2 * N), "At least two groups of group are needed; only a is known"),
        (X[TWO], [None] * (2 * N), "At least two groups of group are needed; none is known"),
        (X[TWO], np.arange(2 * N), "300 distinct values"),
        (X[TWO], np.where(GROUP[TWO] == "a", "Man", "man "), "differ only in case or spaces"),
        (X[TWO], np.zeros((2 * N, 2)), "one value per row"),
        (X[TWO], None, "groups of group"),
        (X[:0], GROUP[:0], "At least two groups of group are needed"),
        (np.where(np.arange(2) == 1, np.nan, X[TWO]), GROUP[TWO], "in column 1, row 0"),
        (X[TWO, 0], GROUP[TWO], "table of numbers"),
    ],
    ids=["length", "one group", "none known", "ids", "names", "axes", "None", "rows", "NaN", "1-d"],
)
def test_invalid_features_and_groups_are_rejected(features, groups, message):
    with pytest.raises(AuditInputError, match=message):
        quick_flip_test(decide, features, groups)


def test_labels_of_another_length_are_rejected():
    with pytest.raises(AuditInputError, match="labels 299"):
        flip_test_of_two_groups(labels=np.ones(2 * N - 1), criterion="equal_opportunity")


def test_rows_without_a_group_are_excluded_and_counted():
    groups = GROUP[TWO].astype(object)
    groups[::10] = None
    result = quick_flip_test(decide, X[TWO], groups)
    assert result.warnings == ("30 rows without a group are excluded.",)
    assert result.direction("a", "b").rows == (135, 135)


def test_a_small_group_has_a_reason_and_other_pairs_are_tested():
    few = np.r_[: 2 * N, 2 * N : 2 * N + 40]
    result = quick_flip_test(decide, X[few], GROUP[few])
    assert len(result.directions) == 6
    for direction in result:
        if "c" in (direction.source, direction.target):
            assert direction.p_value is None
            assert (
                direction.reason == "c has 40 rows; at least 100 are required (`smallest_group`)."
            )
            assert direction.gross is None
            assert direction.rates[0] is not None
        else:
            assert direction.p_value is not None
    assert result.complete
    json.dumps(result.to_dict(), allow_nan=False)
    assert "c has 40 rows" in str(result)
    result.plot()


def test_equal_groups_have_no_flips():
    same = np.tile(X[:N], (2, 1))
    result = quick_flip_test(decide, same, GROUP[TWO], explain=True)
    for direction in result:
        assert direction.gross.value == 0
        assert direction.p_value == 1
        assert direction.gross.interval[0] == 0
        assert 0 < direction.gross.interval[1] < 0.05
        assert np.array_equal(direction.flipset.counterparts[0], direction.flipset.features)
    assert str(result)
    assert all(str(direction) for direction in result)
    assert result.rejected == ()


def test_a_constant_model_has_no_flips():
    result = quick_flip_test(lambda rows: np.ones(len(rows)), X[TWO], GROUP[TWO])
    for direction in result:
        assert direction.rates == (1.0, 1.0)
        assert direction.gross.value == 0
        assert direction.p_value == 1


def test_a_feature_constant_in_one_group_gives_a_warning():
    table = X[TWO].copy()
    table[:N, 1] = 3.0
    result = quick_flip_test(decide, table, GROUP[TWO])
    assert any("x1 is constant in a" in w for w in result.direction("a", "b").warnings)
    reverse = result.direction("b", "a")
    assert (reverse.flipset.counterparts[:, :, 1] == 3.0).all()


def test_rows_of_categories_in_one_group_only_are_counted():
    pd: Any = pytest.importorskip("pandas")
    town = np.where(RNG.random(2 * N) < 0.5, "hill", "dale")
    town[:20] = "isle"
    frame = pd.DataFrame({"x": X[TWO, 0], "town": town})
    result = quick_flip_test(lambda f: (f["x"] > 0.5).to_numpy(), frame, GROUP[TWO])
    warning = result.direction("a", "b").warnings[0]
    assert warning.startswith("a: 20 rows with a category of town that does not occur in b")
    assert not any("does not occur" in w for w in result.direction("b", "a").warnings)
    transported = result.direction("a", "b").flipset.counterparts
    # The columns are x, town=dale, town=hill, town=isle.
    assert transported[:, :20, 3].max() == 0


def refuses_some_rows(rows):
    if (rows[:, 1] > 2).any():
        raise ValueError("someone has 2.71828")
    return decide(rows)


def test_rows_on_which_the_model_fails_are_excluded_and_counted():
    result = quick_flip_test(refuses_some_rows, X[TWO], GROUP[TWO])
    failed = [(X[TWO, 1] > 2)[part].sum() for part in (slice(0, N), slice(N, 2 * N))]
    assert sum(failed) > 2
    assert result.direction("a", "b").rows == (N - failed[0], N - failed[1])
    (warning,) = result.warnings
    assert warning.endswith("rows got no decision: the model failed on them (ValueError)")
    assert "2.71828" not in str(result)
    assert all(direction.p_value is not None for direction in result)


def test_rows_whose_counterparts_get_no_decision_are_excluded_and_counted():
    """The model fails on rows that occur only as counterparts: on some of them, or on all."""
    known = {row.tobytes() for row in X[TWO]}

    def refuses_counterparts(rows, share):
        unseen = [row.tobytes() not in known and row[0] % 1 < share for row in rows]
        if any(unseen):
            raise KeyError("unknown row")
        return decide(rows)

    some = quick_flip_test(lambda r: refuses_counterparts(r, 0.1), X[TWO], GROUP[TWO])
    direction = some.direction("a", "b")
    n_excluded = N - len(direction.flipset)
    assert (
        f"Excluded: {n_excluded} rows, as the model did not decide on a counterpart."
        in direction.warnings
    )
    assert direction.p_value is not None
    assert 0.7 * N < len(direction.flipset) < N
    none = quick_flip_test(lambda r: refuses_counterparts(r, 1.1), X[TWO], GROUP[TWO])
    for direction in none:
        assert direction.reason == "the model did not decide on any counterpart."
        assert direction.p_value is None
        assert direction.gross is None
        assert direction.null is None
    json.dumps(none.to_dict(), allow_nan=False)
    assert "the model did not decide on any counterpart" in str(none)


def test_a_model_without_any_decision_is_an_error():
    with pytest.raises(ModelFailedError, match="ZeroDivisionError"):
        quick_flip_test(lambda rows: 1 / 0, X[TWO], GROUP[TWO])
    with pytest.raises(ModelFailedError, match="not numbers"):
        quick_flip_test(lambda rows: np.full(len(rows), np.nan), X[TWO], GROUP[TWO])
    with pytest.raises(AuditInputError, match="shape"):
        quick_flip_test(lambda rows: np.ones(3), X[TWO], GROUP[TWO])
    with pytest.raises(AuditInputError, match="model: must be a function"):
        quick_flip_test(3, X[TWO], GROUP[TWO])


class Failing:
    """A model that raises an error after a number of calls."""

    width = None

    def __init__(self, calls, error):
        self.calls, self.error, self.n_calls = calls, error, 0

    def batch_rows(self, width):
        return 65_536

    def decide(self, rows):
        self.n_calls += 1
        if self.n_calls > self.calls:
            raise self.error("the endpoint is unavailable")
        return decide(rows).astype(np.int8)

    def close(self):
        pass


def failing_after(calls, error=ModelUnreachableError, **options):
    source = Failing(calls, error)
    model = AuditedModel(source, name="remote")
    return source, quick_flip_test(model, X, GROUP, **options)


def test_an_unreachable_model_is_an_error():
    with pytest.raises(ModelUnreachableError):
        failing_after(0)


@pytest.mark.parametrize("error", [ModelUnreachableError, ModelFailedError])
def test_results_before_a_failure_of_the_model_are_returned(error):
    source, whole = failing_after(10**9, error)
    assert whole.complete
    first = quick_flip_test(AuditedModel(Failing(10**9, error), name="remote"), X[TWO], GROUP[TWO])
    first_pair = [(d.p_value, d.gross) for d in first]
    for calls in (1, 2, 3, source.n_calls // 2, source.n_calls - 1):
        _, partial = failing_after(calls, error)
        assert not partial.complete
        assert any(w.startswith("Not complete: ") for w in partial.warnings)
        assert "Incomplete: see the warnings" in " ".join(str(partial).split())
        for direction, expected in zip(partial, whole, strict=True):
            if direction.p_value is None:
                assert direction.reason == "the model failed during the test; see the warnings."
            else:
                assert (direction.p_value, direction.gross) == (expected.p_value, expected.gross)
        json.dumps(partial.to_dict(), allow_nan=False)
        done = [direction.p_value is not None for direction in partial]
        assert done == sorted(done, reverse=True)
        assert not all(done)
        if calls == source.n_calls // 2:
            assert [(d.p_value, d.gross) for d in partial.directions[:2]] == first_pair


def test_flipsets_are_returned_if_the_permutations_fail():
    # One call for all rows, then one for the counterparts of each direction.
    _, result = failing_after(3)
    first = result.direction("a", "b")
    assert first.gross is not None
    assert first.null is None
    assert first.p_value is None
    assert any("it was not refitted" in warning for warning in first.warnings)
    assert result.direction("b", "c").gross is None


def test_p_values_are_returned_if_the_explanation_fails():
    """The model fails after the permutation test of the first pair, before its explanation."""
    results = (failing_after(calls, explain=True, n_resamples=3)[1] for calls in range(4, 400))
    result = next(result for result in results if result.direction("a", "b").p_value is not None)
    assert result.direction("a", "b").transparency == {}
    assert not result.complete
    assert result.direction("a", "c").p_value is None


def test_wrong_columns_are_rejected_before_the_model_is_called():
    called: list[Any] = []
    columns = Columns(features=Columns.numeric(["a", "b", "c"]).features)
    with pytest.raises(AuditInputError, match="3 are described"):
        quick_flip_test(called.append, X, GROUP, columns=columns)
    assert called == []
