"""A manifest that contradicts itself does not come to be."""

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
        ({"one_hot_groups": ()}, "'purpose=car' is of kind onehot but in no one-hot group"),
        (
            {"one_hot_groups": (OneHotGroup(name="purpose", features=("income",)),)},
            "'income', which is no feature of kind onehot",
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
            "has 3 groups, but feature 'owner' can tell 2",
        ),
        ({"protected_attributes": ()}, "at least 1 item"),
        ({"features": ()}, "at least 1 item"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
    ],
)
def test_a_contradiction_is_refused_by_name(changes, message):
    with pytest.raises(ValidationError, match=message):
        small_spec(**changes)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"kind": "numeric", "low": 1.0}, "one end of a range"),
        ({"kind": "numeric", "low": 2.0, "high": 1.0}, "low 2.0 above high 1.0"),
        ({"kind": "binary", "low": 0.0, "high": 1.0}, "binary, which takes no low and high"),
        ({"kind": "numeric", "low": float("nan"), "high": 1.0}, "less than or equal"),
        ({"kind": "colour"}, "'numeric', 'integer', 'binary' or 'onehot'"),
    ],
)
def test_a_feature_with_an_impossible_range_or_kind_is_refused(feature, message):
    with pytest.raises(ValidationError, match=message):
        Feature(name="x", **feature)
