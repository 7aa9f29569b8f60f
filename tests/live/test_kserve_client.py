"""The KServe SDK's clients get the library's scores, from listed and from raw tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.live.datatypes import rows_for, run_peer
from tests.live.sidecar import VERSION

pytestmark = pytest.mark.live

_COUNT = 6


@pytest.fixture(scope="module")
def results() -> list[Any]:
    """Scores and facts of the clients, filled on first use."""
    return []


@pytest.fixture
def report(results, fitted, serving, peer, tmp_path):
    if not results:
        # The KServe SDK does not support BF16.
        rows = {k: v for k, v in rows_for(fitted.rows[:_COUNT]).items() if k != "BF16"}
        names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
        addresses = (serving.grpc, serving.url)
        python = peer("kserve")
        results.extend(run_peer(python, "kserve_client_peer.py", addresses, rows, names, tmp_path))
    return results


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_the_server_is_live_and_the_model_ready(report, transport):
    _, facts = report
    assert facts[f"{transport} health"] == [True, True, True]


def test_scores_equal_the_librarys_in_every_request_format(report, fitted):
    """Every datatype, by both transports, raw and as lists, as one tensor and by columns."""
    scores, _ = report
    rows = rows_for(fitted.rows[:_COUNT])
    assert len(scores) == 2 * (13 * 2 + 12 * 2)
    for name, received in scores.items():
        features = torch.from_numpy(rows[name.split()[0]].astype(np.float32))
        expected = fitted.judge.scores(features).logit.numpy()
        np.testing.assert_allclose(received.ravel(), expected, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_requested_outputs_id_and_response_parameters_are_returned(report, fitted, transport):
    _, facts = report
    response = facts[f"{transport} response"]
    assert response["id"] == "r-True"
    assert response["outputs"] == ["verdict", "score"]
    assert len(response["verdict"]) == _COUNT * 2
    assert set(response["verdict"]) <= {"within", "above"}
    assert response["parameters"]["evenhand_verdict"] in ("within", "above")
    # KServe's REST client drops the version.
    assert response["version"] == (VERSION if transport == "grpc" else None)


def test_an_unknown_model_is_not_found(report):
    _, facts = report
    status, message = facts["grpc unknown"]
    assert status == "NOT_FOUND"
    assert "'other' is not served here" in message
    assert facts["rest unknown ready"] is False
    status, message = facts["rest unknown"]
    assert status == 404
    assert "'other' is not served here" in message
