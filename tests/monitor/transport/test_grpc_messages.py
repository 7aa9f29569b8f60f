"""Requests and responses in gRPC messages of the protocol."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from monitor.errors import BadRequestError
from monitor.request import InferResponse, OutputTensor
from monitor.transport.grpc_messages import read_request, write_response
from monitor.wire.open_inference_pb2 import ModelInferRequest, ModelInferResponse


def request(**fields) -> ModelInferRequest:
    return ModelInferRequest(model_name="loans", id="r-1", **fields)


def tensor(request, datatype="FP32", shape=(1, 2), name="features"):
    return request.inputs.add(name=name, datatype=datatype, shape=shape)


def test_raw_inputs_are_read_in_order():
    message = request(model_version="3")
    for name in "ab":
        tensor(message, name=name)
    message.raw_input_contents.extend([b"first", b"second"])
    message.outputs.add(name="verdict")
    infer_request, raw = read_request(message.SerializeToString())
    assert raw
    assert (infer_request.model, infer_request.version, infer_request.id) == ("loans", "3", "r-1")
    assert [(t.name, t.data) for t in infer_request.inputs] == [("a", b"first"), ("b", b"second")]
    assert list(infer_request.outputs) == ["verdict"]


def test_listed_inputs_are_read_from_the_field_of_their_datatype():
    message = request()
    tensor(message, "INT16").contents.int_contents.extend([-3, 4])
    infer_request, raw = read_request(message.SerializeToString())
    assert not raw
    assert infer_request.inputs[0].data == [-3, 4]


def malformed(kind: str) -> bytes:
    message = request()
    match kind:
        case "no protobuf":
            return b"\xff\xff\xff"
        case "too few raw":
            tensor(message, name="a"), tensor(message, name="b")
            message.raw_input_contents.append(b"")
        case "both":
            tensor(message).contents.fp32_contents.append(1.0)
            message.raw_input_contents.append(bytes(8))
        case "another field":
            tensor(message, "FP32").contents.fp64_contents.append(1.0)
        case "too many":
            return b"\x2a\x00" * 20_001
        case "halves listed":
            tensor(message, "FP16").contents.fp32_contents.append(1.0)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no protobuf", "the message is not a valid ModelInferRequest"),
        ("too few raw", "raw_input_contents has 1 entries for 2 inputs"),
        ("both", "input 'features' has contents in a request with raw_input_contents"),
        ("another field", "must be in fp32_contents, not in fp64_contents"),
        ("too many", "holds more than 20000 tensors"),
        ("halves listed", "is FP16, which can be sent in raw_input_contents only"),
    ],
)
def test_a_malformed_message_is_rejected_with_the_reason(kind, message):
    with pytest.raises(BadRequestError, match=message):
        read_request(malformed(kind))


RESPONSE = InferResponse(
    id="r-1",
    outputs=(
        OutputTensor("score", "FP32", np.array([[0.5], [np.nan]], np.float32)),
        OutputTensor("p_value", "FP64", np.array([0.25, 1.0])),
        OutputTensor("verdict", "BYTES", np.array([["within"], ["é"]], object)),
    ),
    parameters={"evenhand_verdict": "within"},
)


def test_a_raw_response_has_its_tensors_in_order():
    data = write_response(RESPONSE, "loans", "3", raw=True)
    response = ModelInferResponse.FromString(data)
    assert (response.model_name, response.model_version, response.id) == ("loans", "3", "r-1")
    assert response.parameters["evenhand_verdict"].string_param == "within"
    assert [(o.name, o.datatype, list(o.shape)) for o in response.outputs] == [
        ("score", "FP32", [2, 1]),
        ("p_value", "FP64", [2]),
        ("verdict", "BYTES", [2, 1]),
    ]
    assert not any(output.HasField("contents") for output in response.outputs)
    score, p_value, verdict = response.raw_output_contents
    assert np.array_equal(np.frombuffer(score, "<f4"), [0.5, np.nan], equal_nan=True)
    assert np.frombuffer(p_value, "<f8").tolist() == [0.25, 1.0]
    assert verdict == struct.pack("<I", 6) + b"within" + struct.pack("<I", 2) + "é".encode()


def test_a_response_has_its_tensors_in_the_fields_of_their_datatypes():
    response = ModelInferResponse.FromString(write_response(RESPONSE, "loans", "3", raw=False))
    assert not response.raw_output_contents
    score, p_value, verdict = (output.contents for output in response.outputs)
    assert score.fp32_contents[0] == 0.5
    assert list(p_value.fp64_contents) == [0.25, 1.0]
    assert list(verdict.bytes_contents) == [b"within", "é".encode()]
