"""Arrays and data frames become encoded features, and are decoded for the model."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

from monitor import Feature, OneHotGroup
from offline_audit import AuditInputError, Columns
from offline_audit.fliptest.test import read_features
from tests.bundles import small_spec

pd: Any = pytest.importorskip("pandas")

N = 60
DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RNG = np.random.default_rng(0)
INCOME = RNG.normal(size=N)
JOB = RNG.choice(["baker", "smith", "clerk"], N)
ENCODED = np.column_stack(
    [
        INCOME,
        RNG.integers(0, 9, N),
        RNG.integers(0, 2, N),
        *np.eye(3)[RNG.integers(0, 3, N)][:, :2].T,
    ]
)


def frame(**more):
    return pd.DataFrame({"income": INCOME, "job": JOB, **more})


def decoded(table):
    people = read_features(table)
    return people.decode(people.features)


def test_kinds_are_inferred_from_values():
    table = np.column_stack([INCOME, RNG.integers(-3, 9, N), RNG.integers(0, 2, N)])
    columns = read_features(table).columns
    assert columns.names == ("x0", "x1", "x2")
    assert [v.kind for v in columns.variables] == ["numeric", "integer", "binary"]
    assert read_features(table, ["a", "b", "c"]).columns.names == ("a", "b", "c")


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.uint16, bool])
def test_arrays_of_any_numeric_type_are_accepted_and_not_modified(dtype):
    table = np.array([[0, 1], [1, 0], [1, 1]], dtype)
    original = table.copy()
    people = read_features(table)
    assert people.features.dtype == (np.float64 if dtype == np.float64 else np.float32)
    assert np.array_equal(people.features, table)
    assert np.array_equal(table, original)
    decoded_rows = people.decode(people.features)
    assert decoded_rows.dtype == dtype
    assert np.array_equal(decoded_rows, table)
    assert read_features(table.tolist()).features.shape == (3, 2)


def test_a_manifest_describes_columns():
    people = read_features(ENCODED, small_spec())
    assert [v.name for v in people.columns.variables] == ["income", "years", "owner", "purpose"]
    assert people.columns.variables[-1].categories == ("car", "home", "other")


def test_text_is_encoded_and_decoded_for_the_model():
    people = read_features(frame())
    assert people.columns.names == ("income", "job=baker", "job=clerk", "job=smith")
    assert [v.kind for v in people.columns.variables] == ["numeric", "category"]
    assert (people.features[:, 1:].sum(1) == 1).all()
    restored = people.decode(people.features[::-1])
    assert restored["job"].tolist() == JOB[::-1].tolist()
    assert list(restored.columns) == ["income", "job"]
    np.testing.assert_allclose(restored["income"], INCOME[::-1], rtol=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(RNG.integers(0, 9, N), dtype="int8"),
        pd.Series(RNG.integers(0, 9, N), dtype="Int64"),
        pd.Series(RNG.integers(0, 2, N) == 1),
        pd.Series(RNG.integers(0, 2, N) == 1, dtype="boolean"),
        pd.Series(RNG.integers(0, 9, N)).astype(object),
        pd.Series(RNG.integers(0, 2, N) == 1).astype(object),
        pd.Series(pd.Categorical(RNG.integers(3, 6, N))),
        pd.Series(pd.Categorical(RNG.choice(["low", "high"], N), ["low", "high"], ordered=True)),
        pd.Series(RNG.choice(["u", "v"], N), dtype="string"),
        pd.Series([DAY + dt.timedelta(int(days)) for days in RNG.integers(0, 5, N)]),
        pd.Series(RNG.normal(size=N), dtype="float32"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_columns_are_decoded_to_their_values_and_types(values):
    table = frame(more=values)
    restored = decoded(table)
    pd.testing.assert_series_equal(restored["more"], table["more"])
    assert [type(v) for v in restored["more"]] == [type(v) for v in table["more"]]


def test_columns_of_a_frame_may_have_any_names_and_order():
    table = pd.DataFrame({5: INCOME, ("a", 1): JOB})
    people = read_features(table)
    assert people.columns.names[0] == "5"
    assert list(people.decode(people.features).columns) == [5, ("a", 1)]


def test_names_select_columns_of_a_frame():
    people = read_features(frame(age=np.arange(N)), ["job", "income"])
    assert [v.name for v in people.columns.variables] == ["job", "income"]
    assert list(people.decode(people.features).columns) == ["job", "income"]


def test_a_described_frame_is_read_as_an_encoded_array():
    """Boolean columns, such as those of pandas.get_dummies, count as numbers."""
    names = [feature.name for feature in small_spec().features]
    table = pd.DataFrame(ENCODED, columns=names)
    table["owner"] = table["owner"] == 1
    people = read_features(table[names[::-1]], small_spec())
    np.testing.assert_allclose(people.features, ENCODED, rtol=1e-6)
    assert isinstance(people.decode(people.features), np.ndarray)
    with pytest.raises(AuditInputError, match="no column years"):
        read_features(table.drop(columns="years"), small_spec())
    with pytest.raises(AuditInputError, match="without a description"):
        read_features(table.assign(years="many"), small_spec())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e35])
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (None, "column 1"),
        (["a", "b", "c", "d", "e"], "b"),
        (small_spec(), "years"),
        (
            Columns(features=small_spec().features, one_hot_groups=small_spec().one_hot_groups),
            "years",
        ),
    ],
    ids=["none", "names", "manifest", "columns"],
)
def test_missing_values_are_reported_by_column_and_row_only(bad, columns, name):
    table = ENCODED.copy()
    table[[7, 11], 1] = bad
    with pytest.raises(AuditInputError, match=rf"2 values missing.* in {name}, row 7;") as error:
        read_features(table, columns)
    assert "1e+35" not in str(error.value)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("income", np.where(np.arange(N) == 3, np.nan, INCOME)),
        ("job", np.array([*JOB[:3], None, *JOB[4:]], object)),
        ("job", pd.Series(np.array([*JOB[:3], None, *JOB[4:]], object), dtype="string")),
        ("since", pd.Series([DAY] * N).where(pd.Series(np.arange(N) != 3))),
        ("years", pd.Series([1] * N, dtype="Int64").where(pd.Series(np.arange(N) != 3))),
    ],
    ids=["number", "word", "string", "date", "nullable"],
)
def test_missing_values_of_a_frame_are_reported_by_column_and_row(column, values):
    with pytest.raises(AuditInputError, match=rf"{column}.*row 3;"):
        read_features(frame().assign(**{column: values}))


def described(*kinds, groups=()):
    features = tuple(Feature(name=f"f{i}", kind=kind) for i, kind in enumerate(kinds))
    return Columns(features=features, one_hot_groups=groups)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (described("binary", "numeric"), "row not binary in f0, the first is row 1"),
        (described("integer", "numeric"), "row not integer in f0, the first is row 1"),
        (
            described("onehot", "onehot", groups=(OneHotGroup(name="g", features=("f0", "f1")),)),
            "2 rows not one-hot in g, the first is row 1",
        ),
        (described("onehot", "numeric"), "exactly one one-hot group"),
        (
            described("numeric", "numeric", groups=(OneHotGroup(name="g", features=("z",)),)),
            "exactly one one-hot group",
        ),
        (
            described(
                *("onehot", "onehot"),
                groups=(
                    OneHotGroup(name="g", features=("f0", "f1")),
                    OneHotGroup(name="h", features=("f1",)),
                ),
            ),
            "exactly one one-hot group",
        ),
        (described("numeric"), "1 are described, but the table has 2"),
        (["a", "a"], "same name"),
        (["a", ""], "a name or a category is empty"),
    ],
)
def test_columns_that_contradict_their_description_are_rejected(columns, message):
    table = np.array([[0, 1], [0.5, 1], [1, 1], [1, 0]])
    with pytest.raises(AuditInputError, match=message):
        read_features(table, columns)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros(5), "1 axes"),
        (np.zeros((2, 2, 2)), "3 axes"),
        (np.array([["a", "b"]]), "data frame"),
        (np.zeros((3, 0)), "no columns"),
        ([[1, 2], [3]], "table of numbers"),
        (np.array([[1 + 2j]]), "table of numbers"),
        (pd.DataFrame(index=range(3)), "no columns"),
        (frame()[:0], "no rows"),
        (pd.concat([frame(), frame()], axis=1), "same name"),
        (frame(id=[f"person {i}" for i in range(N)]).loc[np.arange(6 * N) % N], None),
        ("income", "table of numbers"),
        (None, "table of numbers"),
    ],
)
def test_invalid_tables_are_rejected(table, message):
    if message is None:
        assert len(read_features(table).columns) == 1 + 3 + N
        return
    with pytest.raises(AuditInputError, match=message):
        read_features(table)


def test_ids_are_rejected_and_not_quoted():
    table = pd.DataFrame({"id": [f"Anna {i}" for i in range(300)]})
    with pytest.raises(AuditInputError, match="id has too many distinct values") as error:
        read_features(table)
    assert "Anna" not in str(error.value)


def test_an_invalid_category_is_not_quoted():
    with pytest.raises(AuditInputError, match="longer than 200") as error:
        read_features(frame(note=["secret " * 50] * N))
    assert "secret" not in str(error.value)
