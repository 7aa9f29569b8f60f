"""tritonclient receives the library's scores over both transports, in every datatype and option.

It runs once per transport in an environment of its own; the tests check its responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monitor.scoring.judge import signal_values
from tests.live.conftest import RULES
from tests.live.datatypes import rows_for, run_peer
from tests.live.sidecar import MODEL, VERSION

pytestmark = pytest.mark.live

_COUNT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Responses to tritonclient over one transport: scores by request format, and other facts."""

    transport: str
    scores: dict[str, NDArray[Any]]
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def rows(fitted) -> dict[str, NDArray[Any]]:
    return rows_for(fitted.rows[:_COUNT])


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Reports by transport, filled on first use."""
    return {}


@pytest.fixture(params=["grpc", "http"])
def report(request, reports, fitted, serving, rows, peer, tmp_path) -> Report:
    transport = request.param
    if transport not in reports:
        address = serving.grpc if transport == "grpc" else serving.url.removeprefix("http://")
        names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
        scores, facts = run_peer(
            peer("tritonclient"),
            "tritonclient_serving_peer.py",
            (transport, address),
            rows,
            names,
            tmp_path,
        )
        reports[transport] = Report(transport=transport, scores=scores, facts=facts)
    return reports[transport]


@pytest.fixture
def expected(fitted, rows):
    """The library's scores of the rows for a datatype."""

    def scores_for(datatype: str):
        return fitted.judge.scores(torch.from_numpy(rows[datatype].astype(np.float32)))

    return scores_for


def test_the_server_is_live_and_the_model_ready(report):
    assert report.facts["live"] is True
    assert report.facts["ready"] is True
    assert report.facts["model ready"] == [True, True]


def test_tritonclient_reads_the_metadata(report):
    server, model = report.facts["server"], report.facts["model"]
    assert server["name"] == "evenhand"
    assert server["extensions"] == ["binary_tensor_data"]
    assert (model["name"], model["versions"]) == (MODEL, [VERSION])
    (tensor,) = model["inputs"]
    shape = [int(size) for size in tensor["shape"]]
    assert (tensor["name"], tensor["datatype"], shape) == ("features", "FP32", [-1, 25])
    assert model["outputs"][0]["name"] == "score"


def test_scores_equal_the_librarys_in_every_request_format(report, rows, expected):
    """Every datatype, whole and by columns, raw and as JSON, compressed, and asynchronously."""
    names = [name for name in report.scores if name.split()[0] in rows]
    assert len(names) >= 2 * 14 + 4
    for name in names:
        logits = expected(name.split()[0]).logit.numpy()
        for received in report.scores[name].reshape(-1, _COUNT):
            np.testing.assert_allclose(received, logits, rtol=1e-5, atol=1e-5, err_msg=name)


def test_every_output_has_the_requested_format(report, expected):
    scores = expected("FP32")
    values = {name: signal_values(scores.attributes[name]) for name in RULES}
    for name in ("flip_probability", "expected_change"):
        expected_values = np.stack([values[a][name] for a in RULES], 1)
        np.testing.assert_allclose(report.scores[name], expected_values, rtol=1e-4, atol=1e-5)
    logs = np.stack([values[a]["prediction_sensitivity"] for a in RULES], 1)
    np.testing.assert_allclose(report.scores["sensitivity"], np.exp(logs), rtol=1e-4)
    shares = np.stack([scores.attributes[a].contributions.numpy() for a in RULES], 1)
    np.testing.assert_allclose(report.scores["contributions"], shares, rtol=1e-3, atol=1e-5)
    assert report.facts["order"][0] == "contributions"
    assert report.facts["order"][-1] == "score"


def test_response_parameters_equal_the_librarys_values(report, expected, fitted):
    scores = expected("FP32")
    p_values = np.stack(
        [fitted.judge.p_values(scores, a, signal=signal) for a, (signal, _) in RULES.items()], 1
    )
    above = p_values <= [alpha for _, alpha in RULES.values()]
    assert report.facts["verdict"] == [
        [_COUNT, 2],
        np.where(above, "above", "within").ravel().tolist(),
    ]
    np.testing.assert_allclose(report.scores["p_value"], p_values, atol=2e-3)
    decisions = ["granted" if favourable else "refused" for favourable in scores.decision.tolist()]
    assert report.facts["decision"] == [[_COUNT], decisions]
    actions = np.where(above.any(1), "flag", "none").tolist()
    assert report.facts["action"] == [[_COUNT], actions]


def test_the_id_and_the_version_are_returned(report):
    assert report.facts["id"] == "r-7"
    assert report.facts["version"] == VERSION
    assert report.facts["parameters"]["evenhand_verdict"] in ("within", "above")


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("unknown model", "model 'other' is not served here; 'lending' is"),
        ("unknown version", "version '9' of 'lending' is not served here; '3' is"),
        ("unknown metadata", "model 'other' is not served here"),
    ],
)
def test_an_unknown_model_or_version_is_not_found(report, case, message):
    status, details = report.facts[case]
    assert status == ("404" if report.transport == "http" else "StatusCode.NOT_FOUND")
    assert message in details
