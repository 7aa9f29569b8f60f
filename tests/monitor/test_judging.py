"""A batch is judged as the library judges it, and a fault of monitoring changes no prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from monitor.bundle import Bundle, Model
from monitor.errors import PredictionError
from monitor.fit.data import FitData
from monitor.fit.run import fit
from monitor.fit.spec import Output
from monitor.judge import Judge
from monitor.judging import Judged, Judging
from monitor.policy import Action, Policy
from monitor.settings import PolicyConfig
from tests.families import seeded
from tests.serving import ATTRIBUTES, PEOPLE, SPEC

ROWS = PEOPLE.features[:300].copy()


@pytest.fixture(scope="module")
def judge(lending) -> Judge:
    return Judge.load(Bundle.read(lending), warn=False)


def judging(judge: Judge, **policy) -> Any:
    return Judging(judge, Policy(PolicyConfig.model_validate(policy), ATTRIBUTES))


def test_what_is_judged_is_what_the_library_says(judge):
    found = judging(judge, alpha=0.05).judge(ROWS)
    scores = judge.scores(torch.from_numpy(ROWS))
    assert np.array_equal(found.output[:, 0], scores.logit.numpy())
    for place, name in enumerate(ATTRIBUTES):
        verdicts = judge.verdicts(scores, name, signal="expected_change", alpha=0.05)
        assert [v.p_value for v in verdicts] == found.p_values[:, place].tolist()
        above = [v.outcome == "above" for v in verdicts]
        assert (found.verdicts[:, place] == 1).tolist() == above
        assert any(above)


@pytest.mark.parametrize(
    "signal", ["expected_change", "flip_probability", "prediction_sensitivity"]
)
def test_each_signal_can_make_the_verdict(judge, signal):
    found = judging(judge, signal=signal).judge(ROWS)
    scores = judge.scores(torch.from_numpy(ROWS))
    verdicts = judge.verdicts(scores, "sex", signal=signal, alpha=0.01)
    assert [v.p_value for v in verdicts] == found.p_values[:, 0].tolist()


@pytest.mark.parametrize(("on_fault", "action"), [("pass", Action.NONE), ("withhold", 3)])
def test_a_fault_of_monitoring_obeys_policy_and_changes_no_prediction(
    judge, monkeypatch, caplog, on_fault, action
):
    broken = judging(judge, on_fault=on_fault)
    expected = broken.predict(ROWS).output

    def fails(scores):
        raise ValueError("secret 0.123456")

    monkeypatch.setattr(broken, "p_values", fails)
    found = broken.judge(ROWS)
    assert np.array_equal(found.output, expected)
    assert found.fault
    assert (found.verdicts == 2).all()
    assert found.actions.tolist() == [action] * len(ROWS)
    assert "monitoring failed: ValueError at" in caplog.text
    assert "secret" not in caplog.text


def test_judged_or_not_a_prediction_is_the_same(judge):
    both = judging(judge)
    assert np.allclose(both.judge(ROWS).output, both.predict(ROWS).output, rtol=1e-5, atol=1e-6)
    assert both.decisions(both.judge(ROWS).output).tolist() == (
        judge.scores(torch.from_numpy(ROWS)).decision.tolist()
    )


def test_a_classifier_that_fails_is_said_to_and_its_text_is_not(judge, caplog):
    class Failing(nn.Module):
        def forward(self, features):
            if (features == 77).any():
                raise RuntimeError(f"no embedding for {features.max()}")
            return features[:, 0]

    classifier = replace(judge.classifier, module=Failing())
    failing = judging(replace(judge, classifier=classifier))
    with pytest.raises(PredictionError, match="the classifier fails on this input"):
        failing.predict(np.full((1, 25), 77, np.float32))
    assert "embedding" not in caplog.text


def test_rows_of_which_nothing_is_known_are_unknown(judge):
    rows = ROWS[:4].copy()
    rows[1, 3] = np.nan
    found = judging(judge, on_fault="withhold").judge(rows)
    assert (found.verdicts[1] == 2).all()
    assert (found.verdicts[[0, 2, 3]] != 2).all()
    assert found.actions[1] == Action.WITHHOLD


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
def test_the_answer_is_the_classifiers_own_to_the_last_bit_whatever_its_kind(kind, tmp_path):
    spec = SPEC.model_copy(
        update={"classifier": Output(output=kind), "model": Model(name="other", version="2")}
    )
    module = Probabilities(kind).eval()
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fit(module, data, spec, tmp_path / "bundle", compiled=False)
    found = judging(Judge.load(Bundle.read(tmp_path / "bundle"), warn=False))
    with torch.no_grad():
        expected = module(torch.from_numpy(ROWS)).numpy()
    judged = found.judge(ROWS)
    assert judged.output.shape == (len(ROWS), *found.output_shape)
    assert np.array_equal(judged.output, expected)
    assert 0 < found.decisions(judged.output).mean() < 1


def test_parts_join_to_the_whole(judge):
    whole = judging(judge).judge(ROWS)
    parts = [whole.rows(start, start + 70) for start in range(0, 300, 70)]
    joined = Judged.joined(parts)
    for name in ("output", "scores", "contributions", "p_values", "verdicts", "actions"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name)), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_classifier_of_another_precision_answers_and_is_judged(dtype, judge):
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = seeded("MLP")

        def forward(self, features):
            return self.inner(features).to(dtype)

    module = Other().eval()
    classifier = replace(judge.classifier, module=module)
    sensitivity = replace(judge.sensitivity, logit=classifier.logit, first_layer=None)
    found = judging(replace(judge, classifier=classifier, sensitivity=sensitivity)).judge(ROWS)
    assert not found.fault
    with torch.no_grad():
        expected = module(torch.from_numpy(ROWS)).double().numpy()
    assert found.output.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    assert np.array_equal(found.output.astype(float), expected)


def test_without_a_gradient_nothing_is_said_of_sensitivity(judge):
    found = judging(judge)
    assert found.has_gradient
    step = replace(judge.sensitivity, logit=lambda x: (x[:, 0] > 0).float(), first_layer=None)
    assert not judging(replace(judge, sensitivity=step)).has_gradient
