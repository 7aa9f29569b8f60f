"""Answers hold what was asked for; what is withheld is nowhere in them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitor.answers import Answers
from monitor.batching import Share
from monitor.bundle import Bundle
from monitor.call import Call
from monitor.errors import BadRequestError, ConfigError, WithheldError
from monitor.judge import Judge
from monitor.judging import Judging
from monitor.marks import TopFeatures
from monitor.policy import Policy
from tests.serving import ATTRIBUTES, PEOPLE, config

ROWS = PEOPLE.features[:40].copy()
# Some of these rows are above, most are not.
SOME = {"action": "flag", "alpha": 0.2}
EVERYTHING = ("score", "decision", "verdict", "action", "p_value", "sensitivity")
MORE = ("flip_probability", "expected_change", "contributions")


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


def made(judge: Judge, lending, **parts):
    settings = config(lending, **parts)
    judging = Judging(judge, Policy(settings.policy, ATTRIBUTES))
    columns = judge.sensitivity.columns
    answers = Answers(judge.sensitivity.spec, columns, judging, settings)
    return answers, judging.judge(ROWS)


def call(*outputs: str, name: str = "r") -> Call:
    return Call(model="lending", version="", id=name, inputs=(), outputs=outputs)


def test_the_classifiers_own_output_comes_unasked(judge, lending):
    answers, judged = made(judge, lending)
    found = answers.answer(call(name=""), "made-1", Share(judged, 3, 7))
    (output,) = found.outputs
    assert (output.name, output.datatype) == ("score", "FP32")
    assert np.array_equal(output.values, judged.output[3:7])
    assert found.id == found.marks["evenhand_request_id"] == "made-1"


def test_what_is_asked_for_comes_in_that_order_and_as_the_card_says(judge, lending):
    answers, judged = made(judge, lending, policy=SOME)
    wanted = (*reversed(EVERYTHING), *MORE)
    found = answers.answer(call(*wanted), "made-1", Share(judged, 0, 40))
    assert tuple(output.name for output in found.outputs) == wanted
    cards = {name: (datatype, shape) for name, datatype, shape in answers.cards}
    for output in found.outputs:
        datatype, shape = cards[output.name]
        assert output.datatype == datatype
        assert output.values.shape == (40, *shape[1:])
    by_name = {output.name: output.values for output in found.outputs}
    assert set(by_name["verdict"].ravel()) == {"within", "above"}
    assert set(by_name["action"]) == {"none", "flag"}
    scores = judged.scores
    columns = judge.sensitivity.columns.attributes["ethnicity"]
    assert np.allclose(
        by_name["sensitivity"][:, 1], np.exp(scores[:, columns.log_prediction_sensitivity])
    )
    assert np.array_equal(by_name["expected_change"][:, 1], scores[:, columns.expected_change])


def test_an_unknown_output_is_refused_with_those_there_are(judge, lending):
    answers, _ = made(judge, lending)
    with pytest.raises(BadRequestError, match="output 'scroe' is not known; there are score, dec"):
        answers.check(call("scroe"))
    with pytest.raises(BadRequestError, match="twice"):
        answers.check(call("score", "score"))
    aside, _ = made(judge, lending, monitoring={"mode": "aside"})
    with pytest.raises(BadRequestError, match="'verdict' is not known; there are score, dec"):
        aside.check(call("verdict"))


def test_an_answer_is_marked_by_the_row_that_counts(judge, lending):
    answers, judged = made(judge, lending, policy=SOME)
    above = np.flatnonzero((judged.verdicts == 1).any(1))
    within = np.flatnonzero((judged.verdicts == 0).all(1))
    quiet = answers.answer(call(), "r", Share(judged, within[0], within[0] + 1)).marks
    assert quiet["evenhand_verdict"] == "within"
    assert "evenhand_action" not in quiet
    assert "evenhand_top_features" not in quiet
    loud = answers.answer(call(), "r", Share(judged, above[0], above[0] + 1)).marks
    assert (loud["evenhand_verdict"], loud["evenhand_action"]) == ("above", "flag")
    assert loud["evenhand_attribute"] in ATTRIBUTES
    assert "%" in loud["evenhand_top_features"]
    worst = np.nanmin(np.where(judged.called, judged.p_values, 1), 1).argmin()
    together = answers.answer(call(), "r", Share(judged, 0, 40)).marks
    alone = answers.answer(call(), "r", Share(judged, worst, worst + 1)).marks
    assert together == alone


def test_top_features_take_one_hot_groups_as_one(judge):
    spec = judge.sensitivity.spec
    names = [feature.name for feature in spec.features]
    contributions = np.zeros(25, np.float32)
    for name in spec.one_hot_groups[0].features:
        contributions[names.index(name)] = 0.1
    contributions[0] = 0.35
    found = TopFeatures(spec).of(contributions)
    assert [name for name, _ in found] == [spec.one_hot_groups[0].name, names[0]]
    assert TopFeatures(spec).in_words(contributions) == f"{found[0][0]} 40%, {names[0]} 35%"
    assert TopFeatures(spec).of(np.zeros(25, np.float32)) == []


def held_rows(judged) -> np.ndarray:
    return judged.actions >= 3


def test_what_is_withheld_is_masked_and_nothing_tells_of_it(judge, lending):
    policy = {"action": "withhold", "alpha": 0.2}
    answers, judged = made(judge, lending, policy=policy)
    held = held_rows(judged)
    assert 0 < held.sum() < 40
    found = answers.answer(call(*EVERYTHING, *MORE), "r", Share(judged, 0, 40))
    by_name = {output.name: output.values for output in found.outputs}
    for name in ("score", "sensitivity", "p_value", *MORE):
        assert np.isnan(by_name[name][held]).all(), name
        assert not np.isnan(by_name[name][~held]).any(), name
    assert set(by_name["decision"][held]) == {"withheld"}
    assert "withheld" not in by_name["decision"][~held]
    assert found.marks["evenhand_withheld_rows"] == ",".join(map(str, np.flatnonzero(held)))
    assert not [name for name in found.marks if "sensitivity" in name or "flip" in name]
    assert not np.isnan(judged.output).any()
    assert not np.isnan(judged.scores).any()


@pytest.mark.parametrize(
    ("fallback", "decision"), [(0.25, "0"), (0.75, "1"), (0.0, "0"), (1.0, "1")]
)
def test_a_fallback_stands_in_for_what_is_withheld(judge, lending, fallback, decision):
    policy = {"action": "withhold", "alpha": 0.2, "withheld": "fallback", "fallback": fallback}
    answers, judged = made(judge, lending, policy=policy)
    held = held_rows(judged)
    found = answers.answer(call("score", "decision"), "r", Share(judged, 0, 40))
    scores, decisions = (output.values for output in found.outputs)
    probability = 1 / (1 + math.exp(-float(scores[held][0, 0])))
    assert probability == pytest.approx(fallback, abs=1e-6)
    assert len(set(scores[held].ravel().tolist())) == 1
    assert set(decisions[held]) == {decision}
    assert np.array_equal(scores[~held], judged.output[~held])


def test_an_error_can_stand_for_what_is_withheld(judge, lending):
    answers, judged = made(
        judge, lending, policy={"action": "withhold", "alpha": 0.2, "withheld": "error"}
    )
    place = int(np.flatnonzero(held_rows(judged))[0])
    with pytest.raises(WithheldError, match="withheld by policy: rows 0"):
        answers.answer(call(), "r", Share(judged, place, place + 1))


def test_an_output_cannot_be_called_like_one_of_evenhands_own(judge, lending):
    with pytest.raises(ConfigError, match=r"server\.output_name: 'verdict' is what a tensor"):
        made(judge, lending, server={"output_name": "verdict"})
