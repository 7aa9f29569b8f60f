"""tritonclient's stubs and ours encode the same request identically.

Both register the same protobuf package, which is possible only once per process, so tritonclient
runs in its own environment and exchanges files.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import PeerUnavailableError, peer_python
from monitor.wire.open_inference_pb2 import ModelInferRequest
from tests.live.infer_request import build

pytestmark = pytest.mark.live


@pytest.fixture
def triton(skip_or_fail, tmp_path):
    """Runs an action of tritonclient_peer.py on some bytes; returns its output."""
    try:
        python = peer_python("tritonclient")
    except PeerUnavailableError as error:
        skip_or_fail(str(error))

    def run(action: str, request: bytes = b"") -> bytes:
        input_file, output_file = tmp_path / "input", tmp_path / "output"
        input_file.write_bytes(request)
        command = [
            python,
            Path(__file__).with_name("tritonclient_peer.py"),
            action,
            input_file,
            output_file,
        ]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        return output_file.read_bytes()

    return run


def test_messages_of_tritonclient_are_parsed_and_encoded_identically(triton):
    theirs, ours = triton("built"), build(ModelInferRequest)
    assert ModelInferRequest.FromString(theirs) == ours
    assert ours.SerializeToString(deterministic=True) == theirs


def test_tritonclient_parses_our_messages(triton):
    ours = build(ModelInferRequest).SerializeToString(deterministic=True)
    assert triton("parsed", ours) == ours


def test_a_request_of_tritonclient_is_parsed(triton):
    request = ModelInferRequest.FromString(triton("client_request"))
    assert (request.model_name, request.id) == ("lending", "r-2")
    assert request.parameters["source"].string_param == "branch"
    (tensor,) = request.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("features", "FP32", [3, 5])
    assert [output.name for output in request.outputs] == ["score"]
    values = np.frombuffer(request.raw_input_contents[0], "<f4")
    assert np.array_equal(values, np.arange(15, dtype=np.float32))
