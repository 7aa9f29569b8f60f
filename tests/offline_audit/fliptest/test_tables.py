"""Features, groups and labels are read from files and windows, also with invalid values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from monitor import Feature, OneHotGroup, ProtectedAttribute
from offline_audit import AuditInputError, Window
from offline_audit.errors import UnknownColumnError
from offline_audit.fliptest.tables import rows_of_file, rows_of_window
from tests.bundles import small_spec
from tests.traffic_logs import (
    outcome_rows,
    traffic_columns,
    traffic_rows,
    write_outcomes,
    write_traffic,
)

N = 6
PLAIN: dict[str, list[Any]] = {
    "income": [1.5, 2.0, 0.5, 3.0, 1.0, 2.5],
    "years": [1, 2, 3, 4, 5, 6],
    "purpose=car": [1, 0, 0, 1, 0, 0],
    "purpose=home": [0, 1, 0, 0, 1, 0],
    "sex": ["man", "woman", "man", "woman", "man", "woman"],
    "age": ["young", "old", "old", "young", "old", "young"],
    "label": [1, 0, None, 1, 0, 1],
}


def read(values, attribute="sex", spec=None, favourable=1):
    return rows_of_file(pa.table(values), spec or small_spec(), attribute, favourable=favourable)


def spec_with_sex_feature(feature="sex", name="sex"):
    """A manifest in which a binary feature is a protected attribute."""
    features = [Feature(name="income", kind="numeric"), Feature(name=feature, kind="binary")]
    attribute = ProtectedAttribute(name=name, groups=("man", "woman"), feature=feature)
    return small_spec(features=features, one_hot_groups=(), protected_attributes=(attribute,))


TOWNS = ("north", "south", "west")


def spec_with_town_feature(dropped=None):
    """A manifest in which one-hot columns are a protected attribute."""
    names = tuple(f"town={town}" for town in TOWNS if town != dropped)
    return small_spec(
        features=[Feature(name="income", kind="numeric")]
        + [Feature(name=name, kind="onehot") for name in names],
        one_hot_groups=(OneHotGroup(name="town", features=names, dropped=dropped),),
        protected_attributes=(ProtectedAttribute(name="town", groups=TOWNS, feature="town"),),
    )


def test_features_groups_and_labels_are_read_in_the_manifests_order():
    rows = read({name: PLAIN[name] for name in reversed(PLAIN)})
    assert rows.groups.tolist() == PLAIN["sex"]
    # The manifest maps the feature owner to the attribute age.
    owner = [float(word == "old") for word in PLAIN["age"]]
    columns = [PLAIN["income"], PLAIN["years"], owner, PLAIN["purpose=car"], PLAIN["purpose=home"]]
    assert np.array_equal(rows.features, np.array(columns, np.float32).T)
    np.testing.assert_array_equal(rows.labels, [1, 0, np.nan, 1, 0, 1])
    assert rows.warnings == ()


def test_labels_are_of_the_favourable_outcome():
    rows = read(PLAIN, favourable=0)
    np.testing.assert_array_equal(rows.labels, [0, 1, np.nan, 0, 1, 0])
    assert np.isnan(read({k: v for k, v in PLAIN.items() if k != "label"}).labels).all()


def test_a_group_column_with_the_name_of_the_log_has_precedence():
    values = {**PLAIN, "group_sex": PLAIN["sex"][::-1]}
    assert read(values).groups.tolist() == PLAIN["sex"][::-1]


@pytest.mark.parametrize(
    "sex",
    [
        pa.array(PLAIN["sex"]),
        pa.array(PLAIN["sex"]).dictionary_encode(),
        pa.array([int(word == "woman") for word in PLAIN["sex"]]),
        pa.array([word == "woman" for word in PLAIN["sex"]]),
        pa.array([float(word == "woman") for word in PLAIN["sex"]]),
    ],
    ids=["words", "dictionary", "numbers", "flags", "floats"],
)
def test_an_attribute_that_is_a_feature_of_its_name_is_read_as_both(sex):
    rows = read({"income": PLAIN["income"], "sex": sex}, spec=spec_with_sex_feature())
    assert rows.groups.tolist() == PLAIN["sex"]
    assert rows.features[:, 1].tolist() == [0, 1, 0, 1, 0, 1]


def test_a_feature_column_is_used_if_the_group_is_there_too():
    values = {"income": PLAIN["income"], "female": [0, 1, 0, 1, 0, 1], "sex": PLAIN["sex"]}
    rows = read(values, spec=spec_with_sex_feature("female"))
    assert rows.groups.tolist() == PLAIN["sex"]
    assert rows.features[:, 1].tolist() == [0, 1, 0, 1, 0, 1]
    without = read(
        {k: v for k, v in values.items() if k != "female"}, spec=spec_with_sex_feature("female")
    )
    assert np.array_equal(rows.features, without.features)


@pytest.mark.parametrize("dropped", [None, "west"])
def test_one_hot_columns_of_an_attribute_follow_from_its_groups(dropped):
    town = ["north", "west", "south", "south", "north", "west"]
    rows = read({"income": PLAIN["income"], "town": town}, "town", spec_with_town_feature(dropped))
    one_hot = [
        [float(word == category) for category in TOWNS if category != dropped] for word in town
    ]
    assert rows.features[:, 1:].tolist() == one_hot
    assert rows.groups.tolist() == town


def test_a_group_that_is_not_in_the_manifest_is_rejected():
    values = {"income": PLAIN["income"], "sex": ["man", "female"] * 3}
    with pytest.raises(AuditInputError, match=r"groups of sex: female not in the manifest"):
        read(values, spec=spec_with_sex_feature("female_sex"))


def test_incomplete_rows_are_excluded_and_counted():
    values = {**PLAIN, "income": [None, 2.0, float("inf"), float("nan"), 1.0, 1e200]}
    rows = read(values)
    assert rows.warnings == ("4 rows with missing features are excluded.",)
    assert rows.groups.tolist() == ["woman", "man"]
    unknown = read({**PLAIN, "sex": ["man", None, "", "  ", "man", "woman"]})
    assert unknown.groups.tolist() == ["man", "man", "woman"]
    assert unknown.warnings == ()


def test_rows_with_invalid_values_are_excluded_and_counted():
    """A log holds every request; rows with invalid values cannot be transported."""
    values = {**PLAIN, "years": [1, 2.5, 3, 4, 5, 6], "purpose=home": [1, 1, 0, 0, 1, 0]}
    rows = read(values)
    assert rows.warnings == (
        "2 rows with a value that the feature's kind does not allow are excluded.",
    )
    assert len(rows.features) == 4


def test_blanks_of_a_csv_are_missing_values(tmp_path):
    path = tmp_path / "PEOPLE.CSV"
    csv.write_csv(pa.table({**PLAIN, "sex": ["man", None, "man", "woman", "man", "woman"]}), path)
    rows = rows_of_file(path, small_spec(), "sex", favourable=1)
    assert rows.groups.tolist() == ["man", "man", "woman", "man", "woman"]
    np.testing.assert_array_equal(rows.labels, [1, np.nan, 1, 0, 1])


def test_a_column_that_is_not_numeric_is_named():
    with pytest.raises(AuditInputError, match="years: must be a column of numbers") as error:
        read({**PLAIN, "years": ["a few"] * N})
    assert "a few" not in str(error.value)
    with pytest.raises(AuditInputError, match="label: must be a column of numbers"):
        read({**PLAIN, "label": ["repaid"] * N})


def test_a_missing_protected_feature_is_named():
    values = {k: v for k, v in PLAIN.items() if k != "age"}
    with pytest.raises(AuditInputError, match="feature 'owner' is missing; add its column"):
        read(values)
    with pytest.raises(UnknownColumnError, match="no protected attribute 'height'"):
        read(PLAIN, "height")


def test_an_empty_table_has_no_rows():
    empty = pa.table({name: pa.array(values)[:0] for name, values in PLAIN.items()})
    rows = rows_of_file(empty, small_spec(), "sex", favourable=1)
    assert rows.features.shape == (0, 5)
    assert len(rows.groups) == 0


def logged(**features):
    return small_spec(
        features=[Feature(name=name, kind="numeric") for name in ("age", "income")],
        one_hot_groups=(),
        protected_attributes=(ProtectedAttribute(name="sex", groups=("female", "male")),),
        **features,
    )


def window_rows(window, manifest, attribute="sex", *, rows=10_000, by_label=False):
    return rows_of_window(
        window, manifest, attribute, by_label=by_label, rows=rows, favourable=1, seed=0
    )


def test_rows_of_a_window_match_the_log(known, window):
    rows = window_rows(window, logged())
    logged_rows = {
        (row["age"], row["income"]): (row["group_sex"], row["label"])
        for row in known.rows
        if row["group_sex"] is not None
    }
    assert len(rows.groups) == len(logged_rows)
    for person, group, label in zip(rows.features, rows.groups, rows.labels, strict=True):
        expected = logged_rows[tuple(person.tolist())]
        assert expected == (group, None if np.isnan(label) else label)
    assert rows.warnings == ()


def test_an_attribute_that_is_only_in_the_log_is_read(window):
    rows = window_rows(window, logged(), "ethnicity")
    assert set(rows.groups) == {"a", "b", "c"}


def test_every_group_and_label_is_sampled(window):
    rows = window_rows(window, logged(), rows=40, by_label=True)
    for group in ("female", "male"):
        for label in (0, 1):
            assert ((rows.groups == group) & (rows.labels == label)).sum() == 40
    assert rows.warnings == ("Rows are a sample of the window: at most 40 per group.",)


def test_hashed_features_are_rejected_by_name(tmp_path):
    columns = traffic_columns("age", "income", hashed=("income",))
    traffic = traffic_rows(50, columns=columns)
    write_traffic(tmp_path / "log", traffic, columns=columns)
    write_outcomes(tmp_path / "outcomes", outcome_rows(traffic))
    with (
        Window.read(tmp_path / "log", tmp_path / "outcomes") as window,
        pytest.raises(AuditInputError, match=r"dropped, hashed or bucketed\): income;"),
    ):
        window_rows(window, logged())
