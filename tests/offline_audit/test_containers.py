"""The same values have the same meaning in every container: list, array, Series or Arrow array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline_audit import AuditInputError, flip_test, permutation_test, projection_test
from offline_audit.groups import require_names, to_codes
from offline_audit.validation import UNKNOWN, binary, unit_codes

pd: Any = pytest.importorskip("pandas")

Values = list[str | None]


def masked(values: Values) -> np.ma.MaskedArray[Any, Any]:
    return np.ma.masked_array(
        np.array(["a" if value is None else value for value in values]),
        mask=[value is None for value in values],
    )


# Containers that can hold a missing value.
CONTAINERS: dict[str, Callable[[Values], Any]] = {
    "list": lambda v: v,
    "list with NaN": lambda v: [float("nan") if x is None else x for x in v],
    "tuple": tuple,
    "objects": lambda v: np.array(v, object),
    "objects with NaN": lambda v: np.array([float("nan") if x is None else x for x in v], object),
    "objects with NA": lambda v: np.array([pd.NA if x is None else x for x in v], object),
    "objects with NaT": lambda v: np.array([pd.NaT if x is None else x for x in v], object),
    "masked": masked,
    "variable width": lambda v: np.array(v, np.dtypes.StringDType(na_object=None)),
    "series of objects": lambda v: pd.Series(v, dtype=object),
    "series of text": lambda v: pd.Series(v, dtype="str"),
    "series of nullable text": lambda v: pd.Series(v, dtype="string"),
    "series of Arrow text": lambda v: pd.Series(v, dtype="string[pyarrow]"),
    "categorical": lambda v: pd.Series(v, dtype="category"),
    "Arrow": lambda v: pa.array(v, pa.string()),
    "large Arrow": lambda v: pa.array(v, pa.large_string()),
    "Arrow dictionary": lambda v: pa.array(v, pa.string()).dictionary_encode(),
    "Arrow chunks": lambda v: pa.chunked_array([v[:1], v[1:]], pa.string()),
}
# Containers of text only.
OF_TEXT: dict[str, Callable[[Values], Any]] = {
    "text": np.array,
    "bytes": lambda v: np.array([str(x).encode() for x in v]),
    "text of fixed width": lambda v: np.array(v, "<U9"),
}
ALL: dict[str, Callable[[Values], Any]] = {**CONTAINERS, **OF_TEXT}
names = st.sampled_from(["nan", "NaN", "None", "<NA>", "a", "b"])


@pytest.mark.parametrize("container", CONTAINERS)
@given(values=st.lists(st.one_of(names, st.none(), st.just("")), min_size=1, max_size=8))
def test_groups_depend_on_the_values_only(container, values):
    """Text is a name, whatever it says; None, NaN, NaT, NA, a mask and "" are unknown."""
    known, codes = to_codes(CONTAINERS[container](values), "sex")
    assert known == tuple(sorted({value for value in values if value}))
    assert [None if code == UNKNOWN else known[code] for code in codes] == [
        value or None for value in values
    ]


@pytest.mark.parametrize("container", OF_TEXT)
@given(values=st.lists(st.one_of(names, st.just("")), min_size=1, max_size=8))
def test_groups_in_arrays_of_text_are_those_of_a_list(container, values):
    known, codes = to_codes(OF_TEXT[container](values), "sex")
    expected = to_codes(values, "sex")
    assert (known, codes.tolist()) == (expected[0], expected[1].tolist())


@given(st.lists(st.sampled_from([0, 1, 2.5, None]), min_size=1, max_size=8))
def test_numbers_as_groups_depend_on_the_values_only(values):
    with_nan = [np.nan if value is None else value for value in values]
    expected = to_codes(values, "age")
    for container in (
        np.array(with_nan),
        np.array(with_nan, np.float32),
        np.array([np.float32(value) for value in with_nan], object),
        pd.Series(values, dtype="Float64"),
        pa.array([None if value is None else float(value) for value in values], pa.float64()),
    ):
        names_of, codes = to_codes(container, "age")
        assert (names_of, codes.tolist()) == (expected[0], expected[1].tolist())


@pytest.mark.parametrize("container", ALL)
def test_text_is_no_decision_and_nan_as_text_is_no_unit(container):
    make = ALL[container]
    texts: tuple[Values, ...] = (["nan", "nan"], ["0", "1"], ["nan", "1"])
    for values in texts:
        with pytest.raises(AuditInputError, match="decisions: not all values are numbers"):
            binary(make(values), "decisions")
    if container != "bytes":
        with pytest.raises(AuditInputError, match="units: 1 row without a unit, the first is row"):
            unit_codes(make(["p1", "nan"]))


def test_a_name_that_may_be_a_missing_value_gives_a_warning():
    for name in ("nan", "None", "<NA>"):
        (warning,) = require_names(["female", name], None, "sex")
        assert warning.startswith(f"A group of sex is called {name!r}")
        assert "pass None" in warning
    assert require_names(["female", "None"], ["female", "None"], "sex") == []


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pa.array])
def test_every_audit_keeps_a_group_called_nan_and_warns(make):
    n = 300
    groups = make(["a", "b", "nan"] * (n // 3))
    decisions = np.arange(n) % 2
    features = np.random.default_rng(0).normal(size=(n, 1))
    tested = permutation_test(groups, decisions, metrics="selection_rate")
    projected = projection_test(groups=groups, decisions=decisions, distances=np.ones(n))
    flips = flip_test(
        lambda rows: rows[:, 0] > 0, features, groups, n_resamples=0, n_bootstrap=0, explain=False
    )
    assert {comparison.group.name for comparison in tested} == {"a", "b", "nan"}
    assert {count.group for count in projected.counts} == {"a", "b", "nan"}
    assert {direction.source for direction in flips} == {"a", "b", "nan"}
    for result in (tested, projected, flips):
        assert any("called 'nan'" in warning for warning in result.warnings)
