"""Calls and answers go over REST as the protocol and its binary extension say."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from monitor.errors import BadRequestError, TooLargeError
from monitor.transport.rest_messages import read_request, unpacked, write_response
from tests.monitor.transport.test_grpc_messages import ANSWER

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
    call, binary, by_default = read(body(tensor={"data": data}))
    assert (call.model, call.id, call.outputs) == ("loans", "r-1", [])
    assert call.inputs[0].data == [1, 2.5, 3, 4]
    assert (binary, by_default) == ({}, False)


def test_binary_tensors_follow_the_json_in_their_order():
    content = body()
    content["inputs"] = [
        {"name": n, "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": s}}
        for n, s in (("a", 3), ("b", 5))
    ]
    call, _, _ = read(content, b"aaabbbbb")
    assert [tensor.data for tensor in call.inputs] == [b"aaa", b"bbbbb"]


def test_outputs_say_whether_they_are_wanted_as_bytes():
    content = body(
        parameters={"binary_data_output": True},
        outputs=[{"name": "score"}, {"name": "verdict", "parameters": {"binary_data": False}}],
    )
    call, binary, by_default = read(content)
    assert call.outputs == ["score", "verdict"]
    assert binary == {"score": True, "verdict": False}
    assert by_default


@pytest.mark.parametrize(
    ("content", "told"),
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
def test_a_malformed_body_is_refused_by_its_place_and_never_by_its_value(content, told):
    with pytest.raises(BadRequestError) as refusal:
        read(content)
    assert told in str(refusal.value)
    assert str(SECRET) not in str(refusal.value)


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "99999", "²", ""])
def test_a_header_length_that_lies_is_refused(length):
    with pytest.raises(BadRequestError, match="Inference-Header-Content-Length must be a number"):
        read(body(), b"tail", length)


@pytest.mark.parametrize("size", [-1, 5, "4", True, 1.0])
def test_a_binary_size_that_lies_is_refused(size):
    tensor = {"data": None, "parameters": {"binary_data_size": size}}
    with pytest.raises(BadRequestError, match="binary_data_size that is not a number of bytes"):
        read(body(tensor=tensor), b"four")


def test_bytes_that_belong_to_no_tensor_are_refused():
    with pytest.raises(BadRequestError, match="4 bytes after the JSON belong to no input"):
        read(body(), b"four")


def test_an_answer_is_json_with_null_for_what_is_not_a_number():
    data, split = write_response(ANSWER, "loans", "3", {}, by_default=False)
    assert split is None
    found = json.loads(data)
    assert found["parameters"] == {"evenhand_verdict": "within"}
    assert (found["model_name"], found["model_version"], found["id"]) == ("loans", "3", "r-1")
    assert found["outputs"][0] == {
        "name": "score",
        "shape": [2, 1],
        "datatype": "FP32",
        "data": [0.5, None],
    }
    assert found["outputs"][2]["data"] == ["within", "é"]


def test_an_answer_has_bytes_behind_the_json_where_they_are_wanted():
    data, split = write_response(ANSWER, "loans", "3", {"p_value": False}, by_default=True)
    head = json.loads(data[:split])
    sizes = [output.get("parameters", {}).get("binary_data_size") for output in head["outputs"]]
    assert sizes == [8, None, 16]
    assert head["outputs"][1]["data"] == [0.25, 1.0]
    assert np.array_equal(np.frombuffer(data[split:][:8], "<f4"), [0.5, np.nan], equal_nan=True)
    assert data[split:][8:].endswith("é".encode())


def test_a_compressed_body_is_unpacked_but_not_without_bound():
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
