"""Pseudonyms of request ids, and treatments of features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.traffic.columns import FeatureColumn, TrafficColumns, Treatment
from monitor.traffic.privacy import FeatureGuard, Pseudonyms, treatments
from monitor.traffic.settings import FeatureTreatment
from tests.serving import SPEC as FITTED

# The same fields as the manifest of a bundle.
SPEC: Any = FITTED
KEY, OTHER = b"0123456789abcdef", b"another key of some length"
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def guard(treatment: Treatment, names: Pseudonyms, width: float | None = None) -> FeatureGuard:
    column = FeatureColumn(name="x", feature="x", index=0, kind="numeric", treatment=treatment)
    configured = {"x": FeatureTreatment(treatment=treatment, width=width)}
    return FeatureGuard(TrafficColumns(features=(column,), attributes=()), configured, names)


def test_without_a_key_request_ids_are_not_changed():
    names = Pseudonyms.read(None)
    assert not names.enabled
    assert names.fingerprint is None
    assert names.of("r-1") == "r-1"


@given(st.text(max_size=20), st.text(max_size=20))
def test_pseudonyms_are_unique_per_request_and_key(one, other):
    names = Pseudonyms(KEY)
    assert names.of(one) == Pseudonyms(KEY).of(one) != Pseudonyms(OTHER).of(one)
    assert (names.of(one) == names.of(other)) == (one == other)
    assert len(names.of(one)) == 32


def test_fingerprints_of_keys_differ_from_each_other_and_from_pseudonyms():
    assert Pseudonyms(KEY).fingerprint == Pseudonyms(KEY).fingerprint
    assert Pseudonyms(KEY).fingerprint != Pseudonyms(OTHER).fingerprint
    assert str(Pseudonyms(KEY).fingerprint) not in Pseudonyms(KEY).of("fingerprint of the key")


def test_a_key_is_read_from_a_file_with_or_without_an_end_of_line(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    assert Pseudonyms.read(file).of("r") == Pseudonyms(KEY).of("r")


def test_an_unreadable_or_short_key_is_rejected_with_its_path(tmp_path):
    with pytest.raises(ConfigError, match=r"traffic\.key_path: .*missing: No such file"):
        Pseudonyms.read(tmp_path / "missing")
    (tmp_path / "short").write_text("too short")
    with pytest.raises(ConfigError, match=r"short has 9 bytes; at least 16") as error:
        Pseudonyms.read(tmp_path / "short")
    assert "too short" not in str(error.value)


@given(floats, floats)
@example(0.0, -0.0)
@example(-0.0, 0.0)
def test_hashes_are_equal_only_for_equal_values(one, other):
    """Also for values with two representations, such as zero."""
    result = guard("hash", Pseudonyms(KEY)).hashed(np.array([[one], [other], [one]], np.float32))
    assert (result[0] == result[1]) == (one == other)
    assert result[0] == result[2]
    # Independent of earlier calls and of the process.
    (again,) = guard("hash", Pseudonyms(KEY)).hashed(np.array([[other]], np.float32))
    assert again == result[1]


def test_a_hash_depends_on_the_feature_and_the_key():
    names = Pseudonyms(KEY)
    hashes = {names.of_value("a", 1), names.of_value("b", 1), Pseudonyms(OTHER).of_value("a", 1)}
    assert len(hashes) == 3


def test_the_cache_of_hashes_is_bounded():
    hasher = guard("hash", Pseudonyms(KEY))
    rows = np.arange(70_000, dtype=np.float32).reshape(-1, 1)
    assert len(np.unique(hasher.hashed(rows))) == 70_000
    assert len(hasher._known) <= 65_536
    assert hasher.hashed(rows[:1])[0, 0] == Pseudonyms(KEY).of_value("x", 0.0)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1), st.sampled_from([0.1, 0.5, 1, 3, 10]))
@example([7812.9921875], 0.5)
@example([0.1, 0.2, 0.3, 0.6, 0.7, 0.9], 0.1)
def test_a_bucketed_value_is_the_lower_end_of_its_bucket(values, width):
    rows = np.array(values, np.float32).reshape(-1, 1)
    before = rows.copy()
    result = guard("bucket", Pseudonyms(None), width).treated(rows)
    assert np.array_equal(rows, before)
    assert np.allclose(result / width, np.round(result / width), atol=1e-3)
    # A quotient just below an integer may be rounded up to it.
    slack = 4 * np.spacing(np.abs(rows) + np.float32(width))
    assert np.all(result <= rows + slack)
    assert np.all(rows < result + width + slack)


def test_a_treatment_of_a_one_hot_group_applies_to_all_its_columns():
    group = SPEC.one_hot_groups[0]
    drop = FeatureTreatment(treatment="drop")
    assert treatments(SPEC, {group.name: drop}) == dict.fromkeys(group.features, drop)


def test_a_treatment_of_an_unknown_feature_is_rejected_by_name():
    with pytest.raises(ConfigError, match=r"traffic\.features\.shoe_size: the bundle has no such"):
        treatments(SPEC, {"shoe_size": FeatureTreatment(treatment="drop")})


def test_the_closest_feature_name_is_suggested():
    name = SPEC.features[0].name
    with pytest.raises(ConfigError, match=f"did you mean {name}"):
        treatments(SPEC, {f"{name}x": FeatureTreatment(treatment="drop")})


def test_only_numeric_features_can_be_bucketed():
    configured = FeatureTreatment(treatment="bucket", width=1)
    with pytest.raises(ConfigError, match="only numeric features can be bucketed"):
        treatments(SPEC, {SPEC.one_hot_groups[0].name: configured})


def with_range(low: float | None, high: float | None):
    """The spec, with another range of its first feature."""
    feature = SPEC.features[0].model_copy(update={"low": low, "high": high})
    return SPEC.model_copy(update={"features": (feature, *SPEC.features[1:])}), feature.name


def test_the_default_bucket_width_is_a_twentieth_of_the_range():
    spec, name = with_range(10, 70)
    result = treatments(spec, {name: FeatureTreatment(treatment="bucket")})
    assert result == {name: FeatureTreatment(treatment="bucket", width=3)}
    configured = FeatureTreatment(treatment="bucket", width=5)
    assert treatments(spec, {name: configured}) == {name: configured}


@pytest.mark.parametrize(("low", "high"), [(None, None), (5, 5)])
def test_a_bucket_without_width_and_range_is_rejected(low, high):
    spec, name = with_range(low, high)
    with pytest.raises(ConfigError, match="set a width"):
        treatments(spec, {name: FeatureTreatment(treatment="bucket")})
