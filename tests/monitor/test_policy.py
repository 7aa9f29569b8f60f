"""The policy of the config is applied to every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from monitor.errors import ConfigError
from monitor.policy import Action, Policy, Verdict
from monitor.scoring.baseline import Baseline
from monitor.settings import PolicyConfig

NAMES = ("sex", "age")


def by_loops(config: PolicyConfig, p_values, flips):
    """Statements, verdicts and actions by plain loops."""
    likely_flip, unusual, verdicts, actions = [], [], [], []
    for p_row, flip_row in zip(p_values, flips, strict=True):
        verdict_row, flip_statements, p_statements, action = [], [], [], Action.NONE
        for name, p, flip in zip(NAMES, p_row, flip_row, strict=True):
            own = config.attributes.get(name)
            rule, alpha = (own and own.rule) or config.rule, (own and own.alpha) or config.alpha
            bound = (own and own.flip_probability) or config.flip_probability
            unknown = np.isnan(p) or np.isnan(flip)
            flips, rare = flip >= bound and not unknown, p <= alpha and not unknown
            above = {
                "likely_flip": flips,
                "unusual": rare,
                "either": flips or rare,
                "both": flips and rare,
            }[rule]
            verdict_row.append(Verdict.UNKNOWN if unknown else Verdict.ABOVE if above else 0)
            flip_statements.append(flips)
            p_statements.append(rare)
            if above:
                action = max(action, Action[((own and own.action) or config.action).upper()])
            if unknown and config.on_fault == "withhold":
                action = max(action, Action.WITHHOLD)
        verdicts.append(verdict_row)
        likely_flip.append(flip_statements)
        unusual.append(p_statements)
        actions.append(int(action))
    return likely_flip, unusual, verdicts, actions


@pytest.mark.parametrize("rule", ["likely_flip", "unusual", "either", "both"])
@pytest.mark.parametrize("on_fault", ["pass", "withhold"])
@pytest.mark.parametrize(
    "own", [{}, {"age": {"action": "withhold", "rule": "either", "alpha": 0.5}}]
)
def test_results_equal_those_of_plain_loops(rule, on_fault, own):
    config = PolicyConfig.model_validate(
        {"action": "flag", "rule": rule, "alpha": 0.2, "on_fault": on_fault, "attributes": own}
    )
    rng = np.random.default_rng(3)
    p_values, flips = rng.random((400, 2)), rng.random((400, 2))
    p_values[::7, 0], flips[::7, 0], p_values[1, 1], flips[2, 1] = np.nan, np.nan, 0.2, 0.5
    flips[3, 0] = np.nan
    result = Policy(config, NAMES).apply(p_values, flips)
    likely_flip, unusual, verdicts, actions = by_loops(config, p_values, flips)
    assert np.array_equal(result.likely_flip, likely_flip)
    assert np.array_equal(result.unusual, unusual)
    assert np.array_equal(result.verdicts, verdicts)
    assert result.actions.tolist() == actions
    assert set(actions) >= {0, 2}


def test_by_default_a_likely_flip_is_never_within():
    p_values, flips = np.array([[0.9, 0.9], [0.001, 0.9]]), np.array([[0.5, 0.1], [0.0, 0.49]])
    result = Policy(PolicyConfig(), NAMES).apply(p_values, flips)
    above, within = Verdict.ABOVE, Verdict.WITHIN
    assert result.verdicts.tolist() == [[above, within], [above, within]]
    assert result.likely_flip.tolist() == [[True, False], [False, False]]
    assert result.unusual.tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize(("on_fault", "action"), [("pass", Action.NONE), ("withhold", 3)])
def test_predictions_without_scores_get_the_action_of_on_fault(on_fault, action):
    result = Policy(PolicyConfig(on_fault=on_fault), NAMES).on_fault(4)
    assert (result.verdicts == Verdict.UNKNOWN).all()
    assert result.actions.tolist() == [action] * 4


def test_an_attribute_that_is_not_in_the_bundle_is_rejected():
    config = PolicyConfig.model_validate({"attributes": {"sexx": {"action": "flag"}}})
    with pytest.raises(ConfigError, match=r"policy\.attributes\.sexx: .* it has sex, age"):
        Policy(config, NAMES)


def test_a_baseline_too_small_for_alpha_or_without_the_signal_is_rejected():
    scores: Any = {name: {"expected_change": np.arange(50.0)} for name in NAMES}
    baseline = Baseline(scores=scores, levels={})
    Policy(PolicyConfig(alpha=0.02), NAMES).check(baseline)
    with pytest.raises(ConfigError, match=r"50 rows is too small for alpha 0\.01 \(sex\)"):
        Policy(PolicyConfig(), NAMES).check(baseline)
    with pytest.raises(ConfigError, match="prediction_sensitivity cannot be computed"):
        Policy(PolicyConfig(signal="prediction_sensitivity", alpha=0.5), NAMES).check(baseline)


def test_the_rules_are_printed_on_one_line():
    config = PolicyConfig.model_validate(
        {"action": "flag", "attributes": {"age": {"action": "withhold", "rule": "both"}}}
    )
    text = Policy(config, NAMES).in_words
    assert "sex: flag if flip probability ≥ 0.5 or p-value of expected_change ≤ 0.01;" in text
    assert "age: withhold if flip probability ≥ 0.5 and p-value of expected_change ≤ 0.01" in text
    assert text.endswith("if scoring fails: pass")
