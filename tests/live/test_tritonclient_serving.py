"""tritonclient, by both of its doors, gets the library's scores in every datatype and option.

It runs once a door in an environment of its own; the tests look at what it was answered.
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
from tests.live.datatypes import ask, rows_for
from tests.live.sidecar import MODEL, VERSION

pytestmark = pytest.mark.live

_COUNT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What tritonclient was answered by one door: scores by how it asked, and the rest."""

    door: str
    scores: dict[str, NDArray[Any]]
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def rows(fitted) -> dict[str, NDArray[Any]]:
    return rows_for(fitted.rows[:_COUNT])


@pytest.fixture(scope="module")
def answers() -> dict[str, Told]:
    """What was told by each door, once it has been asked."""
    return {}


@pytest.fixture(params=["grpc", "http"])
def told(request, answers, fitted, serving, rows, peer, tmp_path) -> Told:
    door = request.param
    if door not in answers:
        address = serving.grpc if door == "grpc" else serving.url.removeprefix("http://")
        names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
        scores, facts = ask(
            peer("tritonclient"),
            "tritonclient_serving_peer.py",
            (door, address),
            rows,
            names,
            tmp_path,
        )
        answers[door] = Told(door=door, scores=scores, facts=facts)
    return answers[door]


@pytest.fixture
def expected(fitted, rows):
    """The library's scores of the rows for a datatype."""

    def find(datatype: str):
        return fitted.judge.scores(torch.from_numpy(rows[datatype].astype(np.float32)))

    return find


def test_the_server_is_live_and_the_model_ready(told):
    assert told.facts["live"] is True
    assert told.facts["ready"] is True
    assert told.facts["model ready"] == [True, True]


def test_tritonclient_reads_the_metadata(told):
    server, model = told.facts["server"], told.facts["model"]
    assert server["name"] == "evenhand"
    assert server["extensions"] == ["binary_tensor_data"]
    assert (model["name"], model["versions"]) == (MODEL, [VERSION])
    (tensor,) = model["inputs"]
    shape = [int(size) for size in tensor["shape"]]
    assert (tensor["name"], tensor["datatype"], shape) == ("features", "FP32", [-1, 25])
    assert model["outputs"][0]["name"] == "score"


def test_scores_equal_the_librarys_in_every_request_format(told, rows, expected):
    """Every datatype, whole and by columns, raw and as JSON, compressed, and asynchronously."""
    asked = [name for name in told.scores if name.split()[0] in rows]
    assert len(asked) >= 2 * 14 + 4
    for name in asked:
        wanted = expected(name.split()[0]).logit.numpy()
        for found in told.scores[name].reshape(-1, _COUNT):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=name)


def test_every_output_has_the_requested_format(told, expected):
    scores = expected("FP32")
    values = {name: signal_values(scores.attributes[name]) for name in RULES}
    for name in ("flip_probability", "expected_change"):
        wanted = np.stack([values[a][name] for a in RULES], 1)
        np.testing.assert_allclose(told.scores[name], wanted, rtol=1e-4, atol=1e-5)
    logs = np.stack([values[a]["prediction_sensitivity"] for a in RULES], 1)
    np.testing.assert_allclose(told.scores["sensitivity"], np.exp(logs), rtol=1e-4)
    shares = np.stack([scores.attributes[a].contributions.numpy() for a in RULES], 1)
    np.testing.assert_allclose(told.scores["contributions"], shares, rtol=1e-3, atol=1e-5)
    assert told.facts["order"][0] == "contributions"
    assert told.facts["order"][-1] == "score"


def test_response_parameters_equal_the_librarys_values(told, expected, fitted):
    scores = expected("FP32")
    p_values = np.stack(
        [fitted.judge.p_values(scores, a, signal=signal) for a, (signal, _) in RULES.items()], 1
    )
    above = p_values <= [alpha for _, alpha in RULES.values()]
    assert told.facts["verdict"] == [
        [_COUNT, 2],
        np.where(above, "above", "within").ravel().tolist(),
    ]
    np.testing.assert_allclose(told.scores["p_value"], p_values, atol=2e-3)
    decided = ["granted" if yes else "refused" for yes in scores.decision.tolist()]
    assert told.facts["decision"] == [[_COUNT], decided]
    actions = np.where(above.any(1), "flag", "none").tolist()
    assert told.facts["action"] == [[_COUNT], actions]


def test_the_id_and_the_version_are_returned(told):
    assert told.facts["id"] == "r-7"
    assert told.facts["version"] == VERSION
    assert told.facts["marks"]["evenhand_verdict"] in ("within", "above")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("unknown model", "model 'other' is not served here; 'lending' is"),
        ("unknown version", "version '9' of 'lending' is not served here; '3' is"),
        ("unknown metadata", "model 'other' is not served here"),
    ],
)
def test_an_unknown_model_or_version_is_not_found(told, asked, message):
    status, words = told.facts[asked]
    assert status == ("404" if told.door == "http" else "StatusCode.NOT_FOUND")
    assert message in words
