"""The KServe SDK's clients get the library's scores, from listed and from raw tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.live.datatypes import ask, rows_for
from tests.live.sidecar import VERSION

pytestmark = pytest.mark.live

_COUNT = 6


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    """What the clients were answered, once they have asked."""
    return []


@pytest.fixture
def report(answers, fitted, serving, peer, tmp_path):
    if not answers:
        # Its SDK does not know BF16.
        rows = {k: v for k, v in rows_for(fitted.rows[:_COUNT]).items() if k != "BF16"}
        names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
        addresses = (serving.grpc, serving.url)
        python = peer("kserve")
        answers.extend(ask(python, "kserve_client_peer.py", addresses, rows, names, tmp_path))
    return answers


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_the_server_is_live_and_the_model_ready(report, transport):
    _, facts = report
    assert facts[f"{transport} health"] == [True, True, True]


def test_scores_equal_the_librarys_in_every_request_format(report, fitted):
    """Every datatype, by both transports, raw and as lists, as one tensor and by columns."""
    scores, _ = report
    rows = rows_for(fitted.rows[:_COUNT])
    assert len(scores) == 2 * (13 * 2 + 12 * 2)
    for name, found in scores.items():
        features = torch.from_numpy(rows[name.split()[0]].astype(np.float32))
        wanted = fitted.judge.scores(features).logit.numpy()
        np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_requested_outputs_id_and_response_parameters_are_returned(report, fitted, transport):
    _, facts = report
    answer = facts[f"{transport} answer"]
    assert answer["id"] == "r-True"
    assert answer["outputs"] == ["verdict", "score"]
    assert len(answer["verdict"]) == _COUNT * 2
    assert set(answer["verdict"]) <= {"within", "above"}
    assert answer["parameters"]["evenhand_verdict"] in ("within", "above")
    # KServe's REST client drops the version.
    assert answer["version"] == (VERSION if transport == "grpc" else None)


def test_an_unknown_model_is_not_found(report):
    _, facts = report
    status, words = facts["grpc unknown"]
    assert status == "NOT_FOUND"
    assert "'other' is not served here" in words
    assert facts["rest unknown ready"] is False
    status, words = facts["rest unknown"]
    assert status == 404
    assert "'other' is not served here" in words
