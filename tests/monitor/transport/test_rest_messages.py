"""Requests and responses in REST bodies of the protocol and its binary extension."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from monitor.errors import BadRequestError, TooLargeError
from monitor.transport.rest_messages import read_request, unpacked, write_response
from tests.monitor.transport.test_grpc_messages import RESPONSE

SECRET = 1234.5


def body(**changes) -> dict[str, Any]:
    tensor = {"name": "features", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [3, 4]]}
    return {"id": "r-1", "inputs": [tensor | changes.pop("tensor", {})], **changes}


def read(content, tail: bytes = b"", length=None):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    if tail and length is None:
        length = str(len(data))
    return read_request(data + tail, length, "loans", "")


@pytest.mark.parametrize("data", [[[1, 2.5], [3, 4]], [1, 2.5, 3, 4]])
def test_data_may_be_nested_or_flat(data):
    request, binary, by_default = read(body(tensor={"data": data}))
    assert (request.model, request.id, request.outputs) == ("loans", "r-1", [])
    assert request.inputs[0].data == [1, 2.5, 3, 4]
    assert (binary, by_default) == ({}, False)


def test_binary_tensors_are_read_in_order_after_the_json():
    content = body()
    content["inputs"] = [
        {"name": n, "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": s}}
        for n, s in (("a", 3), ("b", 5))
    ]
    request, _, _ = read(content, b"aaabbbbb")
    assert [tensor.data for tensor in request.inputs] == [b"aaa", b"bbbbb"]


def test_outputs_can_be_requested_as_binary():
    content = body(
        parameters={"binary_data_output": True},
        outputs=[{"name": "score"}, {"name": "verdict", "parameters": {"binary_data": False}}],
    )
    request, binary, by_default = read(content)
    assert request.outputs == ["score", "verdict"]
    assert binary == {"score": True, "verdict": False}
    assert by_default


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "the body is not valid JSON"),
        (b"", "the body is not valid JSON"),
        (b"[]", "the body: input should be an object"),
        ({"id": "r"}, "inputs: field required"),
        (body(id=7), "id: input should be a valid string"),
        (body(tensor={"shape": "x"}), "inputs.0.shape: input should be a valid array"),
        (body(tensor={"shape": [SECRET]}), "inputs.0.shape.0: input should be a valid integer"),
        (body(tensor={"data": SECRET}), "inputs.0.data: input should be a valid array"),
        (body(tensor={"data": None}), "must have either data or binary_data_size"),
        (
            body(tensor={"data": [[1, 2], [3]]}),
            "data that is not nested according to its shape",
        ),
        (body(tensor={"parameters": {"binary_data_size": 4}}), "must have either data or binary"),
        (body(outputs=[{"name": "s", "parameters": {"binary_data": 1}}]), "must be true or false"),
    ],
)
def test_a_malformed_body_is_rejected_with_the_field_and_without_its_value(content, message):
    with pytest.raises(BadRequestError) as error:
        read(content)
    assert message in str(error.value)
    assert str(SECRET) not in str(error.value)


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "99999", "²", ""])
def test_an_invalid_header_length_is_rejected(length):
    with pytest.raises(BadRequestError, match="Inference-Header-Content-Length must be a number"):
        read(body(), b"tail", length)


@pytest.mark.parametrize("size", [-1, 5, "4", True, 1.0])
def test_an_invalid_binary_size_is_rejected(size):
    tensor = {"data": None, "parameters": {"binary_data_size": size}}
    with pytest.raises(BadRequestError, match="binary_data_size that is not a number of bytes"):
        read(body(tensor=tensor), b"four")


def test_extra_bytes_after_the_tensors_are_rejected():
    with pytest.raises(BadRequestError, match="4 bytes after the JSON belong to no input"):
        read(body(), b"four")


def test_a_response_is_json_with_null_for_nan():
    data, split = write_response(RESPONSE, "loans", "3", {}, by_default=False)
    assert split is None
    response = json.loads(data)
    assert response["parameters"] == {"evenhand_verdict": "within"}
    assert (response["model_name"], response["model_version"], response["id"]) == (
        "loans",
        "3",
        "r-1",
    )
    assert response["outputs"][0] == {
        "name": "score",
        "shape": [2, 1],
        "datatype": "FP32",
        "data": [0.5, None],
    }
    assert response["outputs"][2]["data"] == ["within", "é"]


def test_a_response_has_binary_data_after_the_json_if_requested():
    data, split = write_response(RESPONSE, "loans", "3", {"p_value": False}, by_default=True)
    head = json.loads(data[:split])
    sizes = [output.get("parameters", {}).get("binary_data_size") for output in head["outputs"]]
    assert sizes == [8, None, 16]
    assert head["outputs"][1]["data"] == [0.25, 1.0]
    assert np.array_equal(np.frombuffer(data[split:][:8], "<f4"), [0.5, np.nan], equal_nan=True)
    assert data[split:][8:].endswith("é".encode())


def test_a_compressed_body_is_decompressed_up_to_the_limit():
    plain = json.dumps(body()).encode()
    assert unpacked(gzip.compress(plain), "gzip", 1000) == plain
    assert unpacked(zlib.compress(plain), "deflate", 1000) == plain
    assert unpacked(plain, "", 1) == plain
    with pytest.raises(TooLargeError, match="decompresses to more than 1000 bytes"):
        unpacked(gzip.compress(bytes(10**7)), "gzip", 1000)
    for damaged in (plain, gzip.compress(plain)[:-9], gzip.compress(plain) + b"x"):
        with pytest.raises(BadRequestError, match="gzip"):
            unpacked(damaged, "gzip", 1000)
    with pytest.raises(BadRequestError, match="'br' is unknown"):
        unpacked(plain, "br", 1000)
