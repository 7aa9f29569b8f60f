"""Decisions of an endpoint that refuses, withholds, is busy or unavailable; with a fake client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from monitor.client import EndpointError, Predictions
from offline_audit import AuditedModel, AuditInputError
from offline_audit.errors import DecisionCacheError, ModelFailedError, ModelUnreachableError
from offline_audit.model import endpoint as endpoint_module
from tests.bundles import small_spec

ROWS = np.random.default_rng(6).normal(size=(2_500, 3)).astype(np.float32)
GRANTED = (ROWS[:, 0] >= 0).astype(np.int8)
NAMES = ("refused", "granted")
SECRET = 77_123.0


class Server:
    """The server behind the fake clients: its responses, and the requests it received."""

    def __init__(self) -> None:
        self.request_sizes, self.waits = list[int](), list[float]()
        self.connections = self.open = 0
        self.named = True
        self.fails: dict[str, Callable[..., Any]] = {}
        self.temporary_errors: list[str] = []
        self.withhold: Callable[..., Any] | None = None

    def predict(self, rows):
        self.request_sizes.append(len(rows))
        if self.temporary_errors:
            raise EndpointError(self.temporary_errors.pop(0), f"near {SECRET}")
        for status, fails in self.fails.items():
            if fails(rows).any():
                raise EndpointError(status, f"near {SECRET}")
        score, names = rows[:, 0].copy(), np.array(NAMES)[(rows[:, 0] >= 0).astype(int)]
        actions: Sequence[str] = ()
        if self.withhold is not None:
            score, names, actions = self.withhold(rows, score, names)
        return Predictions(
            request_id="",
            output=score,
            decisions=tuple(names) if self.named else (),
            actions=tuple(actions),
        )


@pytest.fixture
def server(monkeypatch) -> Server:
    fake_server = Server()

    class Client:
        def __init__(self, endpoint, *, model, version, timeout) -> None:
            assert (endpoint, model) == ("here:1", "loans")
            fake_server.connections += 1
            fake_server.open += 1
            self.predict = fake_server.predict

        def close(self) -> None:
            fake_server.open -= 1

    monkeypatch.setattr(endpoint_module, "Client", Client)
    monkeypatch.setattr(endpoint_module, "sleep", fake_server.waits.append)
    return fake_server


def endpoint(**options) -> AuditedModel:
    options = {"version": "3", "class_names": NAMES, **options}
    return AuditedModel.from_endpoint("here:1", model="loans", **options)


def test_decisions_are_requested_in_batches_and_once_per_row(server):
    model, reports = endpoint(), []
    decisions = model.decide(ROWS, progress=lambda *step: reports.append(step))
    np.testing.assert_array_equal(decisions, GRANTED)
    assert server.request_sizes == [1_000, 1_000, 500]
    assert reports[-1] == (2_500, 2_500)
    np.testing.assert_array_equal(model.decide(ROWS[::-1]), GRANTED[::-1])
    assert len(server.request_sizes) == 3
    assert server.open == 0
    assert repr(model) == "AuditedModel(loans 3 at here:1)"


def test_messages_with_wide_rows_stay_within_the_limit_of_servers(server):
    rows = np.zeros((3_000, 2_000), np.float32)
    rows[:, 0] = np.arange(3_000)
    endpoint().decide(rows)
    assert max(server.request_sizes) * 2_000 * 4 <= 2 << 20
    assert sum(server.request_sizes) == 3_000


@pytest.mark.parametrize("favourable", [0, 1])
def test_names_and_scores_give_the_same_decisions(server, favourable):
    by_name = endpoint(favourable=favourable).decide(ROWS)
    server.named = False
    by_score = endpoint(
        class_names=None, threshold=0.5, output="logit", favourable=favourable
    ).decide(ROWS)
    np.testing.assert_array_equal(by_name, favourable == GRANTED)
    np.testing.assert_array_equal(by_score, by_name)


def test_a_manifest_provides_the_decision_rule(server):
    server.named = False
    rows = np.zeros((100, 5), np.float32)
    rows[:, 0] = np.linspace(-1, 1, 100)
    decisions = endpoint(class_names=None, manifest=small_spec()).decide(rows)
    np.testing.assert_array_equal(decisions, rows[:, 0] >= np.log(0.4 / 0.6))
    with pytest.raises(AuditInputError, match="got 3 columns; the model takes 5"):
        endpoint(class_names=None, manifest=small_spec()).decide(ROWS)


@pytest.mark.parametrize(
    "options",
    [
        {"class_names": None},
        {"class_names": None, "threshold": 0.5},
        {"class_names": None, "output": "logit"},
        {"output": "logit"},
    ],
    ids=str,
)
def test_an_incomplete_decision_rule_is_refused(server, options):
    with pytest.raises(AuditInputError, match="decision rule is incomplete"):
        endpoint(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ("a", "a")}, "class_names: must be two different names"),
        ({"threshold": 0.5, "output": "odds"}, "output: must be one of logit, prob.*; got 'odds'"),
        ({"threshold": 1.5, "output": "logit"}, "threshold: must be between 0 and 1; got 1.5"),
        ({"retries": -1}, "retries: must be a whole number of at least 0"),
    ],
)
def test_invalid_options_are_refused(server, options, message):
    with pytest.raises(AuditInputError, match=message):
        endpoint(**options)


def test_responses_that_do_not_match_the_rule_are_refused(server):
    with pytest.raises(AuditInputError, match="decisions other than 'no' and 'yes'"):
        endpoint(class_names=("no", "yes")).decide(ROWS)
    server.named = False
    with pytest.raises(AuditInputError, match="no decisions: give threshold"):
        endpoint().decide(ROWS)


@pytest.mark.parametrize("status", ["INVALID_ARGUMENT", "INTERNAL", "UNKNOWN"])
def test_refused_rows_are_isolated(server, status):
    rows, bad = ROWS.copy(), [3, 4, 1_700]
    rows[bad, 2] = SECRET
    server.fails = {status: lambda rows: rows[:, 2] == SECRET}
    model = endpoint()
    decisions = model.decide(rows)
    assert np.flatnonzero(decisions == -1).tolist() == bad
    np.testing.assert_array_equal(np.delete(decisions, bad), np.delete(GRANTED, bad))
    assert model.warnings == (f"3 rows got no decision: the model failed on them ({status})",)
    assert server.waits == []


def test_rows_withheld_by_an_error_are_isolated(server):
    server.fails = {"FAILED_PRECONDITION": lambda rows: rows[:, 1] > 2}
    model = endpoint()
    withheld = ROWS[:, 1] > 2
    assert 10 < withheld.sum() < 200
    np.testing.assert_array_equal(model.decide(ROWS), np.where(withheld, -1, GRANTED))
    assert model.failures.withheld == model.failures.undecided == withheld.sum()
    assert model.warnings == (f"{withheld.sum()} rows got no decision: policy withheld them",)


def test_two_kinds_of_refusals_are_counted_separately(server):
    server.fails = {
        "FAILED_PRECONDITION": lambda rows: rows[:, 1] > 2,
        "INVALID_ARGUMENT": lambda rows: rows[:, 1] < -2,
    }
    model = endpoint()
    model.decide(ROWS)
    withheld, failed = (ROWS[:, 1] > 2).sum(), (ROWS[:, 1] < -2).sum()
    assert model.warnings == (
        f"{failed} rows got no decision: the model failed on them (INVALID_ARGUMENT)",
        f"{withheld} rows got no decision: policy withheld them",
    )


def masked(rows, score, names):
    withheld = rows[:, 1] > 1
    return (
        np.where(withheld, np.nan, score),
        np.where(withheld, "withheld", names),
        np.where(withheld, "withhold", "none"),
    )


def replaced(rows, score, names):
    """Responses of a sidecar with a fallback, or with a review queue."""
    withheld = rows[:, 1] > 1
    return (
        np.where(withheld, 1.0, score),
        np.where(withheld, "granted", names),
        np.where(withheld, np.where(rows[:, 2] > 0, "review", "withhold"), "flag"),
    )


@pytest.mark.parametrize("withhold", [masked, replaced])
@pytest.mark.parametrize(
    "options", [{}, {"class_names": None, "threshold": 0.5, "output": "logit"}]
)
def test_a_substitute_for_a_withheld_prediction_is_not_a_decision(server, withhold, options):
    server.withhold = withhold
    model = endpoint(**options)
    withheld = ROWS[:, 1] > 1
    np.testing.assert_array_equal(model.decide(ROWS), np.where(withheld, -1, GRANTED))
    assert model.failures.withheld == model.failures.undecided == withheld.sum()


def test_nan_scores_are_not_counted_as_withheld(server):
    server.withhold = lambda rows, score, names: (
        np.where(rows[:, 1] > 1, np.nan, score),
        np.where(rows[:, 1] > 1, "unknown", names),
        ["none"] * len(rows),
    )
    for options in ({}, {"class_names": None, "threshold": 0.5, "output": "logit"}):
        model = endpoint(**options)
        model.decide(ROWS)
        assert model.failures.not_a_number == model.failures.undecided > 0


def test_an_endpoint_that_withholds_every_row_is_an_early_error(server):
    server.fails = {"FAILED_PRECONDITION": lambda rows: np.ones(len(rows), bool)}
    with pytest.raises(ModelFailedError, match="FAILED_PRECONDITION"):
        endpoint().decide(ROWS)
    assert len(server.request_sizes) <= 64
    server.fails = {}
    server.withhold = lambda rows, score, names: (score, names, ["withhold"] * len(rows))
    with pytest.raises(ModelFailedError, match="first 1,000 rows: policy withheld"):
        endpoint().decide(ROWS)


@pytest.mark.parametrize("status", ["NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED"])
def test_a_final_error_is_not_retried(server, status):
    server.temporary_errors = [status]
    with pytest.raises(
        ModelFailedError, match=f"{status}; check that it serves model 'loans', version 3"
    ):
        endpoint().decide(ROWS)
    assert len(server.request_sizes) == 1


def test_temporary_errors_are_retried_with_backoff(server):
    server.temporary_errors = [
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
    ]
    np.testing.assert_array_equal(endpoint().decide(ROWS), GRANTED)
    assert server.request_sizes == [1_000] * 6 + [500]
    limits = [(0.125, 0.25), (0.25, 0.5), (0.5, 1.0), (1.0, 2.0)]
    assert all(low <= wait <= high for wait, (low, high) in zip(server.waits, limits, strict=True))
    # A new connection for each attempt, all closed.
    assert (server.connections, server.open) == (5, 0)


def test_retries_are_limited_in_number_and_time(server):
    server.temporary_errors = ["UNAVAILABLE"] * 1_000
    with pytest.raises(ModelUnreachableError, match="UNAVAILABLE on 4 attempts"):
        endpoint(retries=3).decide(ROWS)
    with pytest.raises(ModelUnreachableError, match="UNAVAILABLE on 1 attempt"):
        endpoint(patience=0.01).decide(ROWS)
    with pytest.raises(ModelUnreachableError) as raised:
        endpoint(retries=0).decide(ROWS)
    assert "77" not in str(raised.value)


def test_the_next_run_resumes_after_an_outage(server, tmp_path):
    cache = tmp_path / "cache"
    server.fails = {"UNAVAILABLE": lambda rows: np.full(len(rows), len(server.request_sizes) > 2)}
    with pytest.raises(
        ModelUnreachableError,
        match=r"2,000 of 2,500 rows are decided and cached in .*cache: run again with the same",
    ):
        endpoint(cache=cache, retries=2).decide(ROWS)
    server.fails, server.request_sizes = {}, []
    np.testing.assert_array_equal(endpoint(cache=cache).decide(ROWS), GRANTED)
    assert server.request_sizes == [500]


def test_the_same_model_resumes_from_memory(server):
    model = endpoint(retries=0)
    server.fails = {"UNAVAILABLE": lambda rows: np.full(len(rows), len(server.request_sizes) > 2)}
    with pytest.raises(ModelUnreachableError, match="cached in memory: call again to continue"):
        model.decide(ROWS)
    server.fails, server.request_sizes = {}, []
    np.testing.assert_array_equal(model.decide(ROWS), GRANTED)
    assert server.request_sizes == [500]


def test_halves_decided_before_an_outage_are_cached(server, tmp_path):
    rows = ROWS.copy()
    rows[999, 2] = SECRET
    server.fails = {
        "INTERNAL": lambda rows: rows[:, 2] == SECRET,
        "UNAVAILABLE": lambda rows: np.full(len(rows), len(server.request_sizes) > 2),
    }
    with pytest.raises(ModelUnreachableError, match="500 of 2,500 rows are decided"):
        endpoint(cache=tmp_path / "cache", retries=0).decide(rows)


def test_a_cache_is_bound_to_endpoint_model_and_version(server, tmp_path):
    endpoint(cache=tmp_path / "cache").decide(ROWS)
    with pytest.raises(DecisionCacheError, match="another model, version, endpoint or threshold"):
        endpoint(cache=tmp_path / "cache", version="4")
    with pytest.raises(AuditInputError, match="version: a cache requires it"):
        endpoint(cache=tmp_path / "other", version="")


def test_a_named_identity_resumes_at_another_address(server, tmp_path):
    cache = tmp_path / "cache"
    endpoint(cache=cache, identity="loans, third", version="").decide(ROWS)
    server.request_sizes.clear()
    other_address = AuditedModel.from_endpoint(
        "there:2", model="loans-b", class_names=NAMES, identity="loans, third", cache=cache
    )
    np.testing.assert_array_equal(other_address.decide(ROWS), GRANTED)
    assert server.request_sizes == []
