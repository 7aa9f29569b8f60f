"""A map that changes another protected attribute says so, with the decisions that go through it."""

from __future__ import annotations

import html
import re
from typing import Any

import numpy as np
import pytest

from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
)
from offline_audit import AuditInputError, Columns, flip_test
from offline_audit.fliptest.other_attributes import attribute_changes, other_attributes

N = 600
RNG = np.random.default_rng(3)
SEX = np.repeat(["woman", "man"], N)
# Race differs between the groups, and the decision depends on race and income.
RACE = RNG.random(2 * N) < np.where(SEX == "woman", 0.6, 0.25)
INCOME = RNG.normal(size=2 * N) + 0.8 * (SEX == "man")
FEATURES = np.column_stack([INCOME, RACE]).astype(np.float32)
QUICK: dict[str, Any] = {"n_resamples": 19, "n_bootstrap": 5, "progress": False}
NAMED = Columns(
    features=(Feature(name="income", kind="numeric"), Feature(name="race", kind="binary"))
)


def decide(rows):
    return rows[:, 0] - 0.7 * rows[:, 1] > 0


def by_race_only(rows):
    return rows[:, 1] == 0


def spec(*attributes):
    return BundleSpec(
        model=Model(name="loans", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=NAMED.features,
        one_hot_groups=(),
        protected_attributes=attributes,
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )


SEXES = ProtectedAttribute(name="sex", groups=("woman", "man"))
RACES = ProtectedAttribute(name="ethnicity", groups=("x", "y"), feature="race")


def women(model, columns=NAMED, **options) -> Any:
    result = flip_test(model, FEATURES, {"sex": SEX}, columns=columns, **{**QUICK, **options})
    return result.direction("woman", "man")


def test_shares_are_those_of_the_flipset():
    direction = women(decide, protected=["race"])
    (change,) = direction.attribute_changes
    flipset = direction.flipset
    own, others = flipset.features, flipset.counterparts
    moved = others[:, :, 1] != own[:, 1]
    assert change.moved == pytest.approx(moved.mean())
    # About the difference of the groups' shares.
    assert change.moved == pytest.approx(0.35, abs=0.08)
    flips = flipset.counterpart_decisions != flipset.decisions
    restored = others.copy()
    restored[:, :, 1] = own[:, 1]
    undone = decide(restored.reshape(-1, 2)).reshape(flips.shape) == flipset.decisions
    assert change.undone == pytest.approx(undone[flips].mean(), abs=1e-6)
    assert 0.05 < change.undone < 0.95


def test_text_html_data_and_sentences_say_so():
    direction = women(decide, protected=["race"])
    (change,) = direction.attribute_changes
    sentence = direction.sentences()[-1]
    assert sentence.startswith(
        f"{100 * change.moved:.1f}% of woman are transported to another race; part of the changed "
        f"decisions go through race: {100 * change.undone:.1f}% are undone if race alone is set "
        "back"
    )
    page = html.unescape(re.sub(r"<[^>]+>", " ", direction._repr_html_()))
    for printed in (str(direction), page):
        assert sentence in " ".join(printed.split())
    assert direction.to_dict()["attribute_changes"][0]["moved"] == change.moved


def test_without_decisions_through_it_the_sentence_says_that():
    direction = women(lambda rows: rows[:, 0] > 0, protected=["race"])
    assert "no changed decision goes through race alone" in direction.sentences()[-1]
    unexplained = women(decide, protected=["race"], explain=False)
    assert "changed decisions may go through race" in unexplained.sentences()[-1]
    assert women(by_race_only, protected=["race"]).attribute_changes[0].undone == 1.0


def test_the_manifest_names_protected_features():
    for attributes, expected in (
        ((SEXES, RACES), ["ethnicity"]),
        ((SEXES,), []),
        # The tested attribute itself is not another one.
        ((ProtectedAttribute(name="sex", groups=("woman", "man"), feature="race"),), []),
    ):
        direction = women(decide, columns=spec(*attributes), explain=False)
        assert [change.attribute for change in direction.attribute_changes] == expected


def test_nothing_is_guessed_from_names():
    assert women(decide, explain=False).attribute_changes == ()
    assert women(decide, explain=False, protected=[]).attribute_changes == ()


def test_a_protected_feature_that_does_not_change_is_not_mentioned():
    same = FEATURES.copy()
    same[:, 1] = np.arange(2 * N) % 2
    result = flip_test(decide, same, {"sex": SEX}, columns=NAMED, protected=["race"], **QUICK)
    assert result.direction("woman", "man").attribute_changes == ()


def test_few_transported_people_are_not_counted():
    flipset = women(decide, explain=False).flipset
    people = int((flipset.counterparts[:, :, 1] != flipset.features[:, 1]).any(0).sum())
    (change,) = attribute_changes(flipset, NAMED, {"race": "race"}, people + 1)
    assert change.moved is None
    start = f"Fewer than {people + 1} people of woman are transported to another race"
    assert change.sentence("woman", "").startswith(start)


def test_one_hot_attributes_are_found_by_their_group():
    columns = Columns(
        features=tuple(Feature(name=f"race={name}", kind="onehot") for name in "xy"),
        one_hot_groups=(OneHotGroup(name="race", features=("race=x", "race=y")),),
    )
    assert other_attributes(None, ["race"], columns, "sex") == {"race": "race"}


@pytest.mark.parametrize("protected", [["x"], "x", ["race", "age"]])
def test_an_unknown_feature_is_rejected(protected):
    with pytest.raises(
        AuditInputError, match=r"protected: no feature '.*'; choose from income, race"
    ):
        women(decide, protected=protected)
