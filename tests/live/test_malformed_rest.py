"""A malformed REST request gets a status and a message, and the next request is served."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from tests.live.sidecar import MODEL

pytestmark = pytest.mark.live

HEADER = "Inference-Header-Content-Length"
WIDTH = 25
# A value that must not occur in any error message.
SECRET = 48_211.75
RAW = np.full((2, WIDTH), SECRET, "<f4").tobytes()

Body = dict[str, Any]


def body(**changes: object) -> Body:
    """A valid request of two rows, with some fields of its tensor changed."""
    rows = [[SECRET] * WIDTH] * 2
    tensor = {"name": "features", "shape": [2, WIDTH], "datatype": "FP32", "data": rows}
    changed = {key: value for key, value in {**tensor, **changes}.items() if value is not None}
    return {"inputs": [changed]}


def binary(size: object = len(RAW)) -> Body:
    """The head of a binary request."""
    return body(data=None, parameters={"binary_data_size": size})


JSON_CASES: dict[str, tuple[object, str]] = {
    "no object": ([], "^the body: input should be an object"),
    "no inputs": ({}, "^inputs: field required"),
    "inputs of another kind": ({"inputs": {"a": 1}}, "^inputs: input should be a valid"),
    "no input": ({"inputs": []}, "there is no input"),
    "an input of another kind": ({"inputs": [48211.75]}, r"^inputs\.0: input should be"),
    "no name": (body(name=None), r"^inputs\.0\.name: field required"),
    "an id that is a number": ({**body(), "id": 48211.75}, "^id: input should be a valid string"),
    "too narrow": (
        body(shape=[2, 24], data=[SECRET] * 48),
        r"has shape \[2, 24\]; it must be \[n, 25\]",
    ),
    "shape of fractions": (body(shape=[2.5, 25]), r"^inputs\.0\.shape\.0: input should be"),
    "rows below zero": (body(shape=[-2, WIDTH], data=[SECRET] * 50), "has no rows"),
    "a shape of nine": (body(shape=[1] * 9), r"^inputs\.0\.shape: list should have at most 8"),
    "unknown datatype": (body(datatype="FP8"), "has datatype 'FP8'; it must be one of"),
    "unknown name": (body(name="income2"), "input 'income2' is unknown"),
    "text for numbers": (
        body(data=["48211.75"] * 50),
        "has datatype FP32, but some elements have another type",
    ),
    "null for a number": (
        body(data=[None] * 50),
        "has datatype FP32, but some elements have another type",
    ),
    "booleans for numbers": (
        body(data=[True] * 50),
        "has datatype FP32, but some elements have another type",
    ),
    "fractions for integers": (
        body(datatype="INT64"),
        "has datatype INT64, but some elements have another type",
    ),
    "an element out of range": (body(datatype="UINT8", data=[300] * 50), "out of range"),
    "an integer larger than any float": (body(data=[10**400] * 50), "out of range|finite"),
    "objects for numbers": (body(data=[{"a": SECRET}] * 50), "some elements have another type"),
    "nested otherwise": (body(data=[[SECRET] * 5] * 10), "not nested according to its shape"),
    "nested unevenly": (body(data=[[SECRET], [SECRET] * 49]), "not nested according to its shape"),
    "nested too deep": (body(data=[[[SECRET]] * WIDTH] * 2), "some elements have another type"),
    "too few elements": (body(data=[SECRET]), r"has 1 elements; shape \[2, 25\] has 50"),
    "neither data nor size": (body(data=None), "must have either data or binary_data_size"),
    "both data and size": (
        body(parameters={"binary_data_size": 0}),
        "must have either data or binary_data_size",
    ),
    "bytes that do not follow": (
        binary(),
        "binary_data_size that is not a number of bytes at most",
    ),
    "output parameter that is not a flag": (
        {**body(), "outputs": [{"name": "score", "parameters": {"binary_data": "yes"}}]},
        "parameter 'binary_data' must be true or false",
    ),
    "unknown output": ({**body(), "outputs": [{"name": "scores"}]}, "output 'scores' is unknown"),
}

TEXT_CASES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not valid JSON"),
    "half a body": (json.dumps(body()).encode()[:-9], "not valid JSON"),
    "no text": (b"\xff\xfe\x00", "not valid JSON"),
    "a lone surrogate": (b'{"id": "\\ud800", "inputs": []}', "not valid JSON|no input"),
    "nested very deeply": (b"[" * 100_000, "not valid JSON"),
    "not a number": (
        json.dumps(body(data=[float("nan")] * 50)).encode(),
        "not valid JSON|feature 'income' of row 0 is not a finite number",
    ),
    "larger than any float": (
        json.dumps(body(data=[1] * 50)).replace("[1,", "[1e999,").encode(),
        "feature 'income' of row 0 is not a finite number",
    ),
}

# Length in the header, JSON head, bytes after the head, and expected message.
HEAD = len(json.dumps(binary()))
BINARY_CASES: dict[str, tuple[object, Body, bytes, str]] = {
    "a head longer than the body": (10_000, binary(), RAW, "must be a number of bytes, at most"),
    "a head below zero": (-1, binary(), RAW, "must be a number of bytes"),
    "a head that is not a number": ("ten", binary(), RAW, "must be a number of bytes"),
    "a head of fractions": ("1e2", binary(), RAW, "must be a number of bytes"),
    "a head too short": (HEAD - 5, binary(), RAW, "not valid JSON"),
    "a head too long": (HEAD + 5, binary(), RAW, "not valid JSON"),
    "no head": (0, binary(), RAW, "not valid JSON"),
    "more bytes than there are": (None, binary(201), RAW, "at most the 200 that follow"),
    "bytes below zero": (None, binary(-1), RAW, "binary_data_size that is not a number"),
    "bytes that are true": (None, binary(size=True), RAW, "binary_data_size that is not a number"),
    "bytes in fractions": (None, binary(200.0), RAW, "binary_data_size that is not a number"),
    "fewer bytes than there are": (
        None,
        binary(100),
        RAW,
        "100 bytes after the JSON belong to no",
    ),
    "bytes of another shape": (None, binary(100), RAW[:100], r"has 100 bytes; FP32 \[2, 25\] has"),
    "bytes of no input": (None, body(), RAW, "200 bytes after the JSON belong to no input"),
}


@pytest.fixture
def post(serving, fitted) -> Iterator[Callable[..., httpx.Response]]:
    """Posts a body; after the test, a valid request is served."""
    with httpx.Client() as client:
        yield lambda content, **headers: client.post(
            serving.infer_url, content=content, headers=headers, timeout=30
        )
        rows = fitted.rows[:1]
        response = client.post(serving.infer_url, json=body(shape=[1, WIDTH], data=rows.tolist()))
    assert response.status_code == 200
    assert len(response.json()["outputs"][0]["data"]) == 1


def check(response: httpx.Response, status: int, pattern: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["Content-Type"] == "application/json"
    (message,) = response.json().values()
    assert re.search(pattern, message), message
    assert "48211" not in message


def test_the_requests_without_changes_are_served(post):
    assert post(json.dumps(body()).encode()).status_code == 200
    head = json.dumps(binary()).encode()
    assert post(head + RAW, **{HEADER: str(len(head))}).status_code == 200


@pytest.mark.parametrize(("content", "pattern"), JSON_CASES.values(), ids=JSON_CASES)
def test_the_error_of_malformed_json_says_what_is_wrong(post, content, pattern):
    check(post(json.dumps(content).encode()), 400, pattern)


@pytest.mark.parametrize(("content", "pattern"), TEXT_CASES.values(), ids=TEXT_CASES)
def test_a_body_that_is_not_json_is_rejected(post, content, pattern):
    check(post(content), 400, pattern)


@pytest.mark.parametrize(
    ("length", "head", "tail", "pattern"), BINARY_CASES.values(), ids=BINARY_CASES
)
def test_wrong_sizes_of_binary_data_are_rejected(post, length, head, tail, pattern):
    encoded_head = json.dumps(head).encode()
    length = len(encoded_head) if length is None else length
    check(post(encoded_head + tail, **{HEADER: str(length)}), 400, pattern)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compression_bomb_is_not_decompressed(post, serving, encoding):
    """It would expand to a hundred times the limit."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    bomb = b"".join(
        [*(compressor.compress(b" " * (1 << 20)) for _ in range(200)), compressor.flush()]
    )
    before = serving.resident_bytes
    check(
        post(bomb, **{"Content-Encoding": encoding}), 413, "decompresses to more than 2097152 bytes"
    )
    assert serving.resident_bytes - before < 64 << 20


VALID = json.dumps(body()).encode()


@pytest.mark.parametrize(
    ("content", "encoding", "pattern"),
    [
        (VALID, "gzip", "the body is not gzip"),
        (VALID, "br", "content encoding 'br' is unknown; use gzip or deflate"),
        (gzip.compress(VALID)[:-9], "gzip", "not one complete gzip"),
        (gzip.compress(VALID) + b"more", "gzip", "not one complete gzip"),
        (zlib.compress(VALID)[:40], "deflate", "not one complete deflate"),
    ],
    ids=["not compressed", "unknown", "cut", "trailing data", "cut deflate"],
)
def test_a_body_that_cannot_be_decompressed_is_rejected(post, content, encoding, pattern):
    check(post(content, **{"Content-Encoding": encoding}), 400, pattern)


def test_an_oversize_body_is_rejected(post):
    check(post(bytes(3 << 20)), 413, "the request is larger than 2097152 bytes")


def test_an_oversize_body_of_unknown_length_is_rejected(post):
    parts = (bytes(1 << 16) for _ in range(48))
    check(post(parts), 413, "the request is larger than 2097152 bytes")


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/v2/models/other/infer", "model 'other' is not served here; 'lending' is"),
        (f"/v2/models/{MODEL}/versions/2/infer", "version '2' of 'lending' is not served here"),
    ],
)
def test_an_unknown_model_or_version_is_not_found(post, serving, path, pattern):
    check(httpx.post(serving.url + path, json=body()), 404, pattern)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/other/ready", 404),
        ("GET", f"/v2/models/{MODEL}/versions/2/ready", 404),
        ("GET", "/v3", 404),
        ("GET", f"/v2/models/{MODEL}/infer", 405),
        ("DELETE", "/v2", 405),
    ],
)
def test_an_unknown_path_is_a_json_error(post, serving, method, path, status):
    check(httpx.request(method, serving.url + path), status, ".")
