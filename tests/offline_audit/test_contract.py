"""One contract for all audits: names and order of parameters, results, and signed findings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import offline_audit
from offline_audit import Finding, audit_window
from offline_audit.run import AUDITS

DATA = (
    *("model", "features", "groups", "decisions", "distances", "labels", "scores", "units"),
    "counts",
)
OPTIONS = (
    *("by", "metrics", "criterion", "criteria", "reference", "expected_groups", "tolerance"),
    *("alternative", "map", "cost", "threshold", "alpha", "confidence_level", "n_resamples"),
    *("n_bootstrap", "n_counterparts", "max_rows", "smallest_group", "smallest_cell"),
    *("smallest_expected", "explain", "correction", "seed", "progress"),
)
# Entry of each audit with the options that are its own; a new audit is one more line.
ENTRIES: dict[str, set[str]] = {
    "permutation_test": {"exchange", "studentized", "score_limits", "bins"},
    "selection_table": set(),
    "projection_test": {"favoured", "law", "bandwidth", "jointly"},
    "flip_test": {"columns", "favourable"},
}
RNG = np.random.default_rng(5)
N = 400
GROUPS = np.repeat(["a", "b"], N // 2)
DECISIONS = (RNG.random(N) < np.where(GROUPS == "a", 0.3, 0.6)).astype(int)
FEATURES = RNG.normal(size=(N, 2)) + (GROUPS == "b")[:, None]


def results() -> dict[str, Any]:
    few: dict[str, Any] = {"n_resamples": 19, "n_bootstrap": 5, "progress": False}
    return {
        "permutation_test": offline_audit.permutation_test(
            groups=GROUPS, decisions=DECISIONS, metrics="selection_rate", n_resamples=99
        ),
        "selection_table": offline_audit.selection_table(groups=GROUPS, decisions=DECISIONS),
        "projection_test": offline_audit.projection_test(
            groups=GROUPS, decisions=DECISIONS, distances=np.abs(RNG.normal(size=N))
        ),
        "flip_test": offline_audit.flip_test(lambda x: x[:, 0] > 0, FEATURES, GROUPS, **few),
    }


@pytest.mark.parametrize("name", ENTRIES)
def test_parameters_have_the_shared_names_in_the_shared_order(name):
    parameters = list(inspect.signature(getattr(offline_audit, name)).parameters)
    assert set(parameters) - ENTRIES[name] <= {*DATA, *OPTIONS}
    for shared in (DATA, OPTIONS):
        present = [parameter for parameter in parameters if parameter in shared]
        assert present == sorted(present, key=shared.index)


@pytest.mark.parametrize("audit", AUDITS)
def test_adapters_take_what_audit_window_passes(audit):
    parameters = list(inspect.signature(import_module(AUDITS[audit]).findings).parameters)
    assert parameters[:2] == ["window", "by"]
    assert {"model", "alpha", "seed", "progress"} <= set(parameters)


CALLS: dict[str, Callable[..., Any]] = {
    "permutation_test": partial(
        offline_audit.permutation_test,
        groups=GROUPS,
        decisions=DECISIONS,
        metrics="selection_rate",
    ),
    "projection_test": partial(
        offline_audit.projection_test, groups=GROUPS, decisions=DECISIONS, distances=np.ones(N)
    ),
    "flip_test": partial(
        offline_audit.flip_test, lambda x: x[:, 0] > 0, features=FEATURES, groups=GROUPS
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"alpha": 1.5}, "alpha: must be a number between 0 and 1, not 1.5"),
        ({"alpha": "5%"}, "alpha: must be a number between 0 and 1, not '5%'"),
        ({"seed": -1}, "seed: must be a whole number of at least 0, not -1"),
        ({"groups": GROUPS[1:]}, "arrays have different lengths: "),
        ({"groups": np.arange(N)}, "400 distinct values (limit 200)"),
    ],
)
def test_invalid_options_have_the_same_message_in_every_audit(name, option, message):
    with pytest.raises(offline_audit.AuditInputError, match=re.escape(message)):
        CALLS[name](**option)


def test_results_print_and_plot():
    for name, result in results().items():
        assert name in ENTRIES
        assert str(result)
        assert result._repr_html_().startswith("<")
        assert isinstance(result.to_dict(), dict)
        assert result.plot() is not None


@pytest.mark.parametrize("audit", ["permutation", "projection"])
def test_effects_are_signed_and_have_a_unit(window, audit):
    findings = audit_window(window, audit, "sex", progress=False)
    measured = [finding for finding in findings if finding.effect is not None]
    assert measured
    for finding in measured:
        assert finding.unit
        assert finding.direction
        assert finding.groups[0] in finding.direction
        assert finding.effect is not None
        assert finding.interval is not None
        low, high = finding.interval
        assert low <= finding.effect <= high


def test_a_finding_has_three_outcomes():
    def outcome(p_value: float | None) -> str:
        return Finding(
            audit="permutation",
            question="",
            attributes=("sex",),
            groups=("a", "b"),
            metric="tpr",
            rows={},
            effect=None,
            interval=None,
            statistic=None,
            p_value=p_value,
            smallest_detectable_effect=None,
            reason=None,
            seed=0,
            evidence={},
        ).outcome

    outcomes = [outcome(p) for p in (0.01, 0.5, None)]
    assert outcomes == ["difference", "no difference shown", "not enough data"]
