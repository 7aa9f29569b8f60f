"""A batch has the scores of the library, and a fault of monitoring changes no prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from monitor import Bundle, FitData, Judge, Model, fit
from monitor.errors import PredictionError
from monitor.fitting.spec import Output
from monitor.policy import Action, Policy, Verdict
from monitor.scoring.scorer import Scorer, ScoringResult
from monitor.settings import PolicyConfig
from tests.families import seeded
from tests.serving import ATTRIBUTES, PEOPLE, SPEC

ROWS = PEOPLE.features[:300].copy()


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


def scorer(judge: Judge, **policy) -> Any:
    return Scorer(judge, Policy(PolicyConfig.model_validate(policy), ATTRIBUTES))


def scored(own: Scorer, rows: np.ndarray) -> Any:
    return own.apply_policy(own.score(rows))


def test_a_batch_gets_the_scores_and_verdicts_of_the_library(judge):
    result = scored(scorer(judge, alpha=0.05), ROWS)
    scores = judge.scores(torch.from_numpy(ROWS))
    assert np.array_equal(result.output[:, 0], scores.logit.numpy())
    for index, name in enumerate(ATTRIBUTES):
        p_values = judge.p_values(scores, name)
        likely_flip = scores.attributes[name].flip_probability.numpy() >= 0.5
        assert np.array_equal(p_values, result.p_values[:, index])
        assert np.array_equal(result.unusual[:, index], p_values <= 0.05)
        assert np.array_equal(result.likely_flip[:, index], likely_flip)
        above = likely_flip | (p_values <= 0.05)
        assert np.array_equal(result.verdicts[:, index] == Verdict.ABOVE, above)
        assert (p_values <= 0.05).any()
        assert likely_flip.any()


@pytest.mark.parametrize(
    "signal", ["expected_change", "flip_probability", "prediction_sensitivity"]
)
def test_each_signal_can_determine_the_verdict(judge, signal):
    result = scored(scorer(judge, signal=signal), ROWS)
    scores = judge.scores(torch.from_numpy(ROWS))
    assert np.array_equal(judge.p_values(scores, "sex", signal=signal), result.p_values[:, 0])


@pytest.mark.parametrize(("on_fault", "action"), [("pass", Action.NONE), ("withhold", 3)])
def test_a_fault_of_monitoring_applies_on_fault_and_changes_no_prediction(
    judge, monkeypatch, caplog, on_fault, action
):
    broken = scorer(judge, on_fault=on_fault)
    expected = broken.predict(ROWS).output

    def fails(scores):
        raise ValueError("secret 0.123456")

    monkeypatch.setattr(broken, "p_values", fails)
    result = scored(broken, ROWS)
    assert np.array_equal(result.output, expected)
    assert result.fault
    assert (result.verdicts == Verdict.UNKNOWN).all()
    assert result.actions.tolist() == [action] * len(ROWS)
    assert "monitoring failed: ValueError at" in caplog.text
    assert "secret" not in caplog.text


def test_predictions_are_equal_with_and_without_scoring(judge):
    both = scorer(judge)
    assert np.allclose(scored(both, ROWS).output, both.predict(ROWS).output, rtol=1e-5, atol=1e-6)
    assert both.decisions(scored(both, ROWS).output).tolist() == (
        judge.scores(torch.from_numpy(ROWS)).decision.tolist()
    )


def test_a_failing_classifier_is_an_error_without_its_message(judge, caplog):
    class Failing(nn.Module):
        def forward(self, features):
            if (features == 77).any():
                raise RuntimeError(f"no embedding for {features.max()}")
            return features[:, 0]

    classifier = replace(judge.classifier, module=Failing())
    failing = scorer(replace(judge, classifier=classifier))
    with pytest.raises(PredictionError, match="the classifier fails on this input"):
        failing.predict(np.full((1, 25), 77, np.float32))
    assert "embedding" not in caplog.text


def test_rows_without_p_values_have_an_unknown_verdict(judge):
    rows = ROWS[:4].copy()
    rows[1, 3] = np.nan
    result = scored(scorer(judge, on_fault="withhold"), rows)
    assert (result.verdicts[1] == Verdict.UNKNOWN).all()
    assert (result.verdicts[[0, 2, 3]] != Verdict.UNKNOWN).all()
    assert result.actions[1] == Action.WITHHOLD


class Probabilities(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.kind = seeded("MLP"), kind

    def forward(self, features):
        logit = self.inner(features)
        match self.kind:
            case "probability":
                return logit.sigmoid()[:, 0]
            case "two_logits":
                return torch.cat([0.3 * logit, logit], 1)
            case _:
                return torch.cat([-logit, logit], 1).softmax(1)


@pytest.mark.parametrize("kind", ["probability", "two_logits", "two_probabilities"])
def test_the_output_is_bitwise_that_of_the_classifier_for_every_kind(kind, tmp_path):
    spec = SPEC.model_copy(
        update={"classifier": Output(output=kind), "model": Model(name="other", version="2")}
    )
    module = Probabilities(kind).eval()
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fit(module, data, spec, tmp_path / "bundle", compiled=False)
    scored_result = scorer(Judge.load(Bundle.read(tmp_path / "bundle"), warn=False))
    with torch.no_grad():
        expected = module(torch.from_numpy(ROWS)).numpy()
    result = scored(scored_result, ROWS)
    assert result.output.shape == (len(ROWS), *scored_result.output_shape)
    assert np.array_equal(result.output, expected)
    assert 0 < scored_result.decisions(result.output).mean() < 1


def test_joined_parts_equal_the_whole_result(judge):
    whole = scored(scorer(judge), ROWS)
    parts = [whole.rows(start, start + 70) for start in range(0, 300, 70)]
    joined = ScoringResult.joined(parts)
    for name in ("output", "scores", "contributions", "p_values", "verdicts", "actions"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_classifier_of_another_precision_is_served_and_scored(dtype, judge):
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = seeded("MLP")

        def forward(self, features):
            return self.inner(features).to(dtype)

    module = Other().eval()
    classifier = replace(judge.classifier, module=module)
    sensitivity = replace(judge.sensitivity, logit=classifier.logit, first_layer=None)
    result = scored(scorer(replace(judge, classifier=classifier, sensitivity=sensitivity)), ROWS)
    assert not result.fault
    with torch.no_grad():
        expected = module(torch.from_numpy(ROWS)).double().numpy()
    assert result.output.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    assert np.array_equal(result.output.astype(float), expected)


def test_without_a_gradient_has_gradient_is_false(judge):
    smooth = scorer(judge)
    assert smooth.has_gradient
    step = replace(judge.sensitivity, logit=lambda x: (x[:, 0] > 0).float(), first_layer=None)
    assert not scorer(replace(judge, sensitivity=step)).has_gradient
