"""The model gets the values and types of the user's table, also in counterparts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor import Bundle, write_bundle
from offline_audit import AuditedModel, AuditInputError, flip_test
from offline_audit.fliptest.tables import rows_of_file
from offline_audit.fliptest.test import read_features
from tests.bundles import exported_classifier, small_spec

pd: Any = pytest.importorskip("pandas")

FEW: dict[str, Any] = {"n_resamples": 9, "n_bootstrap": 2, "progress": False}
N = 300
GROUP = np.repeat(["a", "b"], N)
RNG = np.random.default_rng(0)
GPA = np.clip(RNG.normal(3.1 + 0.3 * (GROUP == "b"), 0.5), 1, 4).round(1)


def cents(value: float) -> float:
    return float(f"{value:.2f}")


class Recording:
    """A rule that stores all rows that it is called with."""

    def __init__(self, rule: Any) -> None:
        self.rule, self.calls = rule, list[Any]()

    def __call__(self, rows: Any) -> Any:
        self.calls.append(rows.copy())
        return np.asarray(self.rule(rows))


def shares(rule: Any, rows: Any) -> dict[str, float]:
    decisions = np.asarray(rule(rows))
    return {name: decisions[name == GROUP].mean() for name in "ab"}


def table_of_all_kinds() -> Any:
    """A frame whose numbers differ between the groups, with many types of columns."""
    shift = GROUP == "b"
    frame = pd.DataFrame(
        {
            "gpa": GPA,
            "price": (RNG.gamma(2 + shift, 20.0) + 0.01).round(2),
            "score": RNG.normal(shift),
            "single": RNG.normal(shift).astype(np.float32),
            "rating": RNG.integers(0, 9, 2 * N).astype(np.int8) + shift.astype(np.int8),
            "limit": 500 * (RNG.poisson(6, 2 * N) + shift),
            "id": 2**60 + 1_000 * np.arange(2 * N),
            "years": pd.array(RNG.poisson(4 + 2 * shift), dtype="Int64"),
            "fee": [Decimal(int(cents)) / 100 for cents in RNG.integers(100, 900, 2 * N)],
            "town": RNG.choice(["dale", "hill"], 2 * N),
            "size": pd.Categorical(RNG.choice(["s", "m", "l"], 2 * N), ["s", "m", "l"]),
            "flag": RNG.random(2 * N) < 0.3 + 0.4 * shift,
        }
    )
    frame.columns.name = "feature"
    return frame


@pytest.mark.parametrize("kind", ["frame", "array"])
def test_shares_are_those_of_the_model_on_the_users_rows(kind):
    """In float32, 2.6 is 2.5999999."""

    def rule(rows: Any) -> Any:
        return (rows["gpa"] if kind == "frame" else rows[:, 0]) >= 2.6

    frame = pd.DataFrame({"gpa": GPA, "age": RNG.integers(20, 60, 2 * N)})
    rows: Any = frame if kind == "frame" else frame.to_numpy()
    result: Any = flip_test(rule, rows, GROUP, **FEW)
    expected = shares(rule, rows)
    assert (GPA == 2.6).any()
    for direction in result:
        assert direction.rates == (expected[direction.source], expected[direction.target])
        # Counterparts of people at the limit decide as the observed people at the limit do.
        counterparts = direction.flipset.counterparts[..., 0]
        assert np.isin(counterparts, [cents(v) for v in np.arange(1, 4.05, 0.1)]).all()
        np.testing.assert_array_equal(
            direction.flipset.counterpart_decisions, np.round(counterparts * 10) >= 26
        )


def test_the_model_gets_frames_with_the_columns_and_types_of_the_users_frame():
    frame = table_of_all_kinds()
    rule = Recording(lambda rows: (rows["score"] + rows["gpa"] >= 3.5).to_numpy())
    result: Any = flip_test(rule, frame, GROUP, **FEW)
    assert all(direction.gross.value > 0.05 for direction in result)
    pd.testing.assert_frame_equal(rule.calls[0], frame, check_exact=True)
    assert len(rule.calls) > 5
    for rows in rule.calls:
        assert rows.columns.equals(frame.columns)
        assert rows.columns.name == "feature"
        assert rows.dtypes.equals(frame.dtypes)
    rows = pd.concat(rule.calls[1:])
    assert (rows["gpa"].map(cents) == rows["gpa"]).all()
    assert (rows["price"].map(cents) == rows["price"]).all()
    assert (rows["limit"] % 500 == 0).all()
    assert {round(100 * fee) == 100 * fee for fee in rows["fee"]} == {True}
    # These do not differ between the groups, so that no counterpart has another value.
    for name in ("id", "fee", "town", "size"):
        assert set(rows[name]) <= set(frame[name])
    # A continuous column has counterparts between the observed values.
    assert not rows["score"].isin(frame["score"]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_the_model_gets_arrays_of_the_users_type(dtype):
    table = np.column_stack([RNG.poisson(4 + 3 * (GROUP == "b")), RNG.integers(0, 50, 2 * N)])
    table = (table + (0.1 if dtype == np.float64 else 0)).astype(dtype)
    rule = Recording(lambda rows: rows[:, 0] >= table[:, 0].mean())
    for model in (rule, AuditedModel.from_function(rule)):
        rule.calls.clear()
        flip_test(model, table, GROUP, **FEW)
        np.testing.assert_array_equal(rule.calls[0], table)
        assert {rows.dtype for rows in rule.calls} == {np.dtype(dtype)}
        rows = np.concatenate(rule.calls)
        assert np.isin(rows[:, 1], table[:, 1]).all()
        assert np.isin(rows[:, 0], np.arange(table[:, 0].min(), 30)).all()


def test_large_whole_numbers_that_only_pass_through_are_kept():
    frame = pd.DataFrame({"id": 2**62 + 1_024 * np.arange(2 * N), "gpa": GPA})
    rule = Recording(lambda rows: (rows["id"] % 2048 == 0) & (rows["gpa"] >= 2.6))
    result = flip_test(rule, frame, GROUP, **FEW)
    assert result.directions[0].rates[0] == shares(rule.rule, frame)["a"]
    assert np.isin(np.concatenate([rows["id"] for rows in rule.calls]), frame["id"]).all()


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"id": 2**60 + np.arange(2 * N), "gpa": GPA}),
        (2**60 + np.arange(2 * N))[:, None] * np.array([0, 1]) + 1,
        pd.DataFrame({"id": [Decimal(f"1.{0:030}{i}1") for i in range(2 * N)]}),
    ],
    ids=["frame", "array", "decimals"],
)
def test_numbers_that_float64_cannot_tell_apart_are_refused(table):
    with pytest.raises(AuditInputError, match=r"(id|column 1) have more digits than float64"):
        flip_test(lambda rows: rows, table, GROUP, **FEW)


def test_categories_of_one_text_and_two_types_stay_apart():
    mixed = np.array([1, "1", "one"], object)[RNG.integers(0, 3, 2 * N)]
    table = read_features(pd.DataFrame({"mixed": mixed}))
    assert set(table.columns.names) == {"mixed=1 (int)", "mixed=1 (str)", "mixed=one"}
    restored = table.decode(table.features)["mixed"].tolist()
    assert [(type(v), v) for v in restored] == [(type(v), v) for v in mixed]


def test_bundles_get_float32_of_the_users_values(tmp_path):
    write_bundle(tmp_path / "b", small_spec(), {"classifier.pt2": exported_classifier()})
    bundle = Bundle.read(tmp_path / "b")
    home = RNG.integers(0, 2, 2 * N)
    table = np.column_stack(
        [GPA, RNG.integers(0, 9, 2 * N), RNG.integers(0, 2, 2 * N), home, 1 - home]
    )
    model = AuditedModel.of(bundle)
    decisions = model.decide(table.astype(np.float32))
    np.testing.assert_array_equal(model.decide(table), decisions)
    result = flip_test(bundle, table, GROUP, **FEW)
    assert result.directions[0].rates[0] == (decisions[GROUP == "a"] == 1).mean()


def test_a_file_keeps_the_precision_of_its_numbers(tmp_path):
    frame = pd.DataFrame(
        {
            "income": GPA,
            "years": 3,
            "owner": 1,
            "purpose=car": 1,
            "purpose=home": 0,
            "sex": np.where(GROUP == "a", "female", "male"),
        }
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        rows = rows_of_file(tmp_path / name, small_spec(), "sex", favourable=1)
        np.testing.assert_array_equal(rows.features[:, 0], GPA)


def test_a_cache_distinguishes_values_that_are_equal_in_float32(tmp_path):
    rows = np.array([[2.6], [np.float64(np.float32(2.6))], [2.6000000001]])
    for _ in range(2):
        model = AuditedModel.from_function(
            lambda rows: rows[:, 0] >= 2.6, identity="gpa", cache=tmp_path / "cache"
        )
        assert model.decide(rows).tolist() == [1, 0, 1]
        assert model.decide(rows.astype(np.float32)).tolist() == [1, 1, 1]


ROWS = 12
WHOLE = st.integers(-(10**4), 10**4)
NUMBERS: dict[str, tuple[Any, dict[str, str]]] = {
    "float64": (st.floats(-1e6, 1e6), {}),
    "float32": (st.floats(-1e6, 1e6, width=32), {}),
    "float16": (st.floats(-100, 100, width=16), {}),
    "Float64": (WHOLE.map(lambda n: n / 100), {}),
    "cents": (WHOLE.map(lambda n: n / 100), {"dtype": "float64"}),
    "quarters": (WHOLE.map(lambda n: n / 4), {"dtype": "float64"}),
    "int8": (st.integers(-128, 127), {}),
    "uint16": (st.integers(0, 65_535), {}),
    "Int64": (WHOLE, {}),
    "ids": (st.integers(0, 10**6).map(lambda n: 2**61 + 512 * n), {"dtype": "int64"}),
    "decimals": (WHOLE.map(lambda n: Decimal(n) / 1_000), {"dtype": "object"}),
    "int64[pyarrow]": (WHOLE, {}),
}
OTHERS: dict[str, tuple[Any, dict[str, str]]] = {
    "bool": (st.booleans(), {}),
    "boolean": (st.booleans(), {}),
    "str": (st.sampled_from(["u", "v", "w"]), {}),
    "object": (st.sampled_from(["u", 1, "1", 1.5, True]), {}),
    "category": (st.sampled_from([3, 5, 8]), {}),
}


@st.composite
def frames(draw: Any) -> Any:
    """Frames of a few columns of mixed types."""
    kinds = NUMBERS | OTHERS
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=5, unique=True))
    columns = {}
    for name in names:
        values, options = kinds[name]
        listed = draw(st.lists(values, min_size=ROWS, max_size=ROWS))
        columns[name] = pd.Series(listed, **{"dtype": name, **options})
    return pd.DataFrame(columns)


def same(one: Any, other: Any) -> bool:
    """Whether two cells have the same type and the same bits."""
    return type(one) is type(other) and (
        one == other and (not isinstance(one, float) or np.signbit(one) == np.signbit(other))
    )


@settings(max_examples=150, deadline=None)
@given(frame=frames(), seed=st.integers(0, 2**32 - 1))
def test_cells_that_a_map_keeps_are_the_users_and_others_are_on_the_grid(frame, seed):
    table = read_features(frame)
    rng = np.random.default_rng(seed)
    transported = np.repeat(table.features[None].astype(np.float32), 3, axis=0)
    moved = np.zeros((3, ROWS, len(frame.columns)), bool)
    for index, name in enumerate(frame.columns):
        variable = next(v for v in table.columns.variables if v.name == name)
        at = list(variable.columns)
        moved[:, :, index] = rng.random((3, ROWS)) < 0.5
        partners = transported[0][rng.integers(ROWS, size=(3, ROWS))][:, :, at]
        weights = rng.choice([0.3, 1.0], (3, ROWS, 1)) if variable.kind == "numeric" else 1.0
        mixture = np.float32(weights * partners + (1 - weights) * transported[:, :, at])
        cells = moved[:, :, index]
        transported[:, :, at] = np.where(cells[:, :, None], mixture, transported[:, :, at])
    counterparts = table.grid.counterparts(transported, table.features)
    pd.testing.assert_frame_equal(table.decode(table.features), frame, check_exact=True)
    for draw in range(3):
        rows = table.decode(counterparts[draw])
        assert rows.dtypes.equals(frame.dtypes)
        for index, name in enumerate(frame.columns):
            own, got = frame[name].tolist(), rows[name].tolist()
            kept = ~moved[draw, :, index]
            assert all(same(own[i], got[i]) for i in np.flatnonzero(kept)), name
            if name in ("cents", "Float64"):
                assert all(value == cents(value) for value in got)
            elif name == "quarters":
                assert all(value * 4 == round(value * 4) for value in got)
            elif name == "decimals":
                assert all(isinstance(v, Decimal) and v == round(v, 3) for v in got)
            elif name not in ("float64", "float32", "float16"):
                assert set(map(str, got)) <= set(map(str, own)), name
