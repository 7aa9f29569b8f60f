"""A manifest with inconsistent fields is rejected."""

import pytest
from pydantic import ValidationError

from monitor import Feature, OneHotGroup, ProtectedAttribute
from tests.bundles import small_spec

AGE = ProtectedAttribute(name="age", groups=("young", "old"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": (Feature(name="a", kind="binary"),) * 2, "one_hot_groups": ()},
            "'a' appears twice",
        ),
        ({"one_hot_groups": ()}, "'purpose=car' is of kind onehot, but in no one-hot group"),
        (
            {"one_hot_groups": (OneHotGroup(name="purpose", features=("income",)),)},
            "'income', which is not a feature of kind onehot",
        ),
        ({"protected_attributes": (AGE, AGE)}, "'age' appears twice"),
        (
            {"protected_attributes": (AGE.model_copy(update={"feature": "income"}),)},
            "'income', which is neither a binary feature nor a one-hot group",
        ),
        (
            {
                "protected_attributes": (
                    ProtectedAttribute(name="age", groups=("a", "b", "c"), feature="owner"),
                )
            },
            "has 3 groups, but feature 'owner' has 2 values",
        ),
        ({"protected_attributes": ()}, "at least 1 item"),
        ({"features": ()}, "at least 1 item"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_inconsistent_fields_are_rejected_by_name(changes, message):
    with pytest.raises(ValidationError, match=message):
        small_spec(**changes)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"kind": "numeric", "low": 1.0}, "needs both low and high"),
        ({"kind": "numeric", "low": 2.0, "high": 1.0}, "low 2.0 above high 1.0"),
        ({"kind": "binary", "low": 0.0, "high": 1.0}, "is binary; only numeric and integer"),
        ({"kind": "numeric", "low": float("nan"), "high": 1.0}, "less than or equal"),
        ({"kind": "colour"}, "'numeric', 'integer', 'binary' or 'onehot'"),
    ],
)
def test_a_feature_with_an_invalid_range_or_kind_is_rejected(feature, message):
    with pytest.raises(ValidationError, match=message):
        Feature(name="x", **feature)
