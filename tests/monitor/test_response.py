"""Responses contain the requested outputs, and nothing of withheld predictions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from monitor import Bundle, Judge
from monitor.batching import Share
from monitor.errors import BadRequestError, ConfigError, WithheldError
from monitor.policy import Policy, Verdict
from monitor.request import InferRequest
from monitor.response import ResponseBuilder, TopFeatures
from monitor.scoring.scorer import Scorer
from tests.serving import ATTRIBUTES, PEOPLE, config

ROWS = PEOPLE.features[:40].copy()
# Some of these rows have the verdict "above", most have not.
SOME = {"action": "flag", "alpha": 0.2}
EVERYTHING = ("score", "decision", "verdict", "action", "p_value", "sensitivity")
MORE = ("flip_probability", "expected_change", "contributions")


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


def builder_and_result(judge: Judge, lending, **parts):
    settings = config(lending, **parts)
    scorer = Scorer(judge, Policy(settings.policy, ATTRIBUTES))
    columns = judge.sensitivity.columns
    responses = ResponseBuilder(judge.sensitivity.spec, columns, scorer, settings)
    return responses, scorer.apply_policy(scorer.score(ROWS))


def request_for(*outputs: str, name: str = "r") -> InferRequest:
    return InferRequest(model="lending", version="", id=name, inputs=(), outputs=outputs)


def test_the_classifiers_own_output_is_the_default(judge, lending):
    responses, result = builder_and_result(judge, lending)
    response = responses.build(request_for(name=""), "made-1", Share(result, 3, 7))
    (output,) = response.outputs
    assert (output.name, output.datatype) == ("score", "FP32")
    assert np.array_equal(output.values, result.output[3:7])
    assert response.id == response.parameters["evenhand_request_id"] == "made-1"


def test_requested_outputs_have_the_requested_order_and_the_types_of_the_metadata(judge, lending):
    responses, result = builder_and_result(judge, lending, policy=SOME)
    requested = (*reversed(EVERYTHING), *MORE)
    response = responses.build(request_for(*requested), "made-1", Share(result, 0, 40))
    assert tuple(output.name for output in response.outputs) == requested
    metadata = {name: (datatype, shape) for name, datatype, shape in responses.cards}
    for output in response.outputs:
        datatype, shape = metadata[output.name]
        assert output.datatype == datatype
        assert output.values.shape == (40, *shape[1:])
    by_name = {output.name: output.values for output in response.outputs}
    assert set(by_name["verdict"].ravel()) == {"within", "above"}
    assert set(by_name["action"]) == {"none", "flag"}
    scores = result.scores
    columns = judge.sensitivity.columns.attributes["ethnicity"]
    assert np.allclose(
        by_name["sensitivity"][:, 1], np.exp(scores[:, columns.log_prediction_sensitivity])
    )
    assert np.array_equal(by_name["expected_change"][:, 1], scores[:, columns.expected_change])


def test_an_unknown_output_is_an_error_that_lists_the_outputs(judge, lending):
    responses, _ = builder_and_result(judge, lending)
    with pytest.raises(BadRequestError, match="'scroe' is unknown; the outputs are score, dec"):
        responses.check(request_for("scroe"))
    with pytest.raises(BadRequestError, match="twice"):
        responses.check(request_for("score", "score"))
    responder, _ = builder_and_result(judge, lending, monitoring={"mode": "async"})
    with pytest.raises(BadRequestError, match="'verdict' is unknown; the outputs are score, dec"):
        responder.check(request_for("verdict"))


def test_parameters_describe_the_most_severe_row(judge, lending):
    responses, result = builder_and_result(judge, lending, policy=SOME)
    above = np.flatnonzero((result.verdicts == Verdict.ABOVE).any(1))
    within = np.flatnonzero((result.verdicts == 0).all(1))
    within_parameters = responses.build(
        request_for(), "r", Share(result, within[0], within[0] + 1)
    ).parameters
    assert within_parameters["evenhand_verdict"] == "within"
    assert "evenhand_action" not in within_parameters
    assert "evenhand_top_features" not in within_parameters
    above_parameters = responses.build(
        request_for(), "r", Share(result, above[0], above[0] + 1)
    ).parameters
    assert (above_parameters["evenhand_verdict"], above_parameters["evenhand_action"]) == (
        "above",
        "flag",
    )
    assert above_parameters["evenhand_attribute"] in ATTRIBUTES
    assert "%" in above_parameters["evenhand_top_features"]
    worst = np.nanmin(np.where(result.verdicts == Verdict.ABOVE, result.p_values, 1), 1).argmin()
    together = responses.build(request_for(), "r", Share(result, 0, 40)).parameters
    alone = responses.build(request_for(), "r", Share(result, worst, worst + 1)).parameters
    assert together == alone


def test_top_features_count_a_one_hot_group_as_one_feature(judge):
    spec = judge.sensitivity.spec
    names = [feature.name for feature in spec.features]
    contributions = np.zeros(25, np.float32)
    for name in spec.one_hot_groups[0].features:
        contributions[names.index(name)] = 0.1
    contributions[0] = 0.35
    top_features = TopFeatures(spec).of(contributions)
    assert [name for name, _ in top_features] == [spec.one_hot_groups[0].name, names[0]]
    assert TopFeatures(spec).in_words(contributions) == f"{top_features[0][0]} 40%, {names[0]} 35%"
    assert TopFeatures(spec).of(np.zeros(25, np.float32)) == []


def withheld_rows(result) -> np.ndarray:
    return result.actions >= 3


def test_a_withheld_prediction_is_masked_in_all_outputs(judge, lending):
    policy = {"action": "withhold", "alpha": 0.2}
    responses, result = builder_and_result(judge, lending, policy=policy)
    withheld = withheld_rows(result)
    assert 0 < withheld.sum() < 40
    response = responses.build(request_for(*EVERYTHING, *MORE), "r", Share(result, 0, 40))
    by_name = {output.name: output.values for output in response.outputs}
    for name in ("score", "sensitivity", "p_value", *MORE):
        assert np.isnan(by_name[name][withheld]).all(), name
        assert not np.isnan(by_name[name][~withheld]).any(), name
    assert set(by_name["decision"][withheld]) == {"withheld"}
    assert "withheld" not in by_name["decision"][~withheld]
    assert response.parameters["evenhand_withheld_rows"] == ",".join(
        map(str, np.flatnonzero(withheld))
    )
    assert not [name for name in response.parameters if "sensitivity" in name or "flip" in name]
    assert not np.isnan(result.output).any()
    assert not np.isnan(result.scores).any()


@pytest.mark.parametrize(
    ("fallback", "decision"), [(0.25, "0"), (0.75, "1"), (0.0, "0"), (1.0, "1")]
)
def test_a_withheld_score_is_replaced_by_the_fallback(judge, lending, fallback, decision):
    policy = {"action": "withhold", "alpha": 0.2, "withheld": "fallback", "fallback": fallback}
    responses, result = builder_and_result(judge, lending, policy=policy)
    withheld = withheld_rows(result)
    response = responses.build(request_for("score", "decision"), "r", Share(result, 0, 40))
    scores, decisions = (output.values for output in response.outputs)
    probability = 1 / (1 + math.exp(-float(scores[withheld][0, 0])))
    assert probability == pytest.approx(fallback, abs=1e-6)
    assert len(set(scores[withheld].ravel().tolist())) == 1
    assert set(decisions[withheld]) == {decision}
    assert np.array_equal(scores[~withheld], result.output[~withheld])


def test_a_withheld_prediction_can_be_an_error(judge, lending):
    responses, result = builder_and_result(
        judge, lending, policy={"action": "withhold", "alpha": 0.2, "withheld": "error"}
    )
    row = int(np.flatnonzero(withheld_rows(result))[0])
    with pytest.raises(WithheldError, match="withheld by policy: rows 0"):
        responses.build(request_for(), "r", Share(result, row, row + 1))


def test_an_output_name_of_evenhand_is_rejected(judge, lending):
    with pytest.raises(ConfigError, match=r"server\.output_name: 'verdict' is the name"):
        builder_and_result(judge, lending, server={"output_name": "verdict"})
