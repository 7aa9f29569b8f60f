"""What is malformed gets a status and words over gRPC, and the next request is served."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import grpc
import numpy as np
import pytest

from monitor.wire import open_inference_pb2 as wire
from tests.live.sidecar import METHOD, MODEL, request_of

pytestmark = pytest.mark.live

INVALID = grpc.StatusCode.INVALID_ARGUMENT
WIDTH = 25
# A value that must never be repeated to anybody.
SECRET = 48_211.75
ROWS = np.full((2, WIDTH), SECRET, np.float32)

Spoil = Callable[[wire.ModelInferRequest], object]


def shaped(*shape: int) -> Spoil:
    return lambda request: request.inputs[0].shape.__setitem__(slice(None), shape)


def named(name: str) -> Spoil:
    return lambda request: setattr(request.inputs[0], "name", name)


def typed(datatype: str) -> Spoil:
    return lambda request: setattr(request.inputs[0], "datatype", datatype)


def raw(*entries: bytes) -> Spoil:
    return lambda request: request.raw_input_contents.__setitem__(slice(None), entries)


def holding(value: float) -> Spoil:
    rows = ROWS.copy()
    rows[1, 3] = value
    return raw(rows.tobytes())


def wanting(*names: str) -> Spoil:
    return lambda request: request.outputs.extend(
        wire.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in names
    )


def asking(name: str, version: str = "") -> Spoil:
    def spoil(request: wire.ModelInferRequest) -> None:
        request.model_name, request.model_version = name, version

    return spoil


def listed(field: str, values: list[float], datatype: str = "FP32") -> Spoil:
    """Elements in a field of contents, and nothing raw."""

    def spoil(request: wire.ModelInferRequest) -> None:
        del request.raw_input_contents[:]
        request.inputs[0].datatype = datatype
        getattr(request.inputs[0].contents, field).extend(values)

    return spoil


def mixed(request: wire.ModelInferRequest) -> None:
    request.inputs[0].contents.fp32_contents.extend(ROWS.ravel().tolist())


def columns(*names: str) -> Spoil:
    """A tensor of two rows for each of these names."""

    def spoil(request: wire.ModelInferRequest) -> None:
        del request.inputs[:], request.raw_input_contents[:]
        for name in names:
            request.inputs.add(name=name, datatype="FP32", shape=[2])
            request.raw_input_contents.append(ROWS[:, 0].tobytes())

    return spoil


def texts(text: bytes) -> Spoil:
    """As many texts as there are elements."""
    return lambda request: (
        typed("BYTES")(request),
        raw((struct.pack("<I", len(text)) + text) * ROWS.size)(request),
    )


CASES: dict[str, tuple[Spoil, str]] = {
    "too narrow": (shaped(2, 24), r"'features' has shape \[2, 24\]; it must be \[n, 25\]"),
    "one dimension": (shaped(50), r"has shape \[50\]; it must be \[n, 25\]"),
    "three dimensions": (shaped(2, 5, 5), r"has shape \[2, 5, 5\]"),
    "no shape": (shaped(), r"has shape \[\]"),
    "no rows": (shaped(0, WIDTH), "has no rows"),
    "rows below zero": (shaped(-2, WIDTH), "has no rows"),
    "too many rows": (shaped(10_001, WIDTH), "has 10001 rows; the limit is 10000"),
    "absurdly many rows": (shaped(2**62, WIDTH), "the limit is 10000"),
    "another width": (shaped(2, 2**62), "it must be"),
    "unknown datatype": (typed("FP8"), "has datatype 'FP8'; it must be one of BOOL, UINT8"),
    "no datatype": (typed(""), "has datatype ''"),
    "datatype of another size": (typed("FP64"), r"has 200 bytes; FP64 \[2, 25\] has 400"),
    "unknown name": (named("income2"), "input 'income2' is unknown"),
    "no name": (named(""), "input '' is unknown"),
    "a feature alone": (columns("income"), "no input for 'loan_amount', 'debt_ratio', 'savings' a"),
    "a feature twice": (columns("income", "income"), "input 'income' occurs twice"),
    "no input": (columns(), "there is no input"),
    "too few bytes": (raw(ROWS.tobytes()[:-1]), "has 199 bytes"),
    "too many bytes": (raw(ROWS.tobytes() + b"\0"), "has 201 bytes"),
    "no bytes": (raw(b""), "has 0 bytes"),
    "too many raw entries": (raw(ROWS.tobytes(), b""), "has 2 entries for 1 inputs"),
    "raw and listed": (mixed, "has contents in a request with raw_input_contents"),
    "neither raw nor listed": (raw(), r"has 0 elements; shape \[2, 25\] has 50"),
    "too few elements": (listed("fp32_contents", [SECRET]), "has 1 elements"),
    "elements in another field": (
        listed("fp64_contents", [SECRET] * 50),
        "must be in fp32_contents, not in fp64_contents",
    ),
    "listed halves": (listed("fp32_contents", [1.0] * 50, "FP16"), "raw_input_contents only"),
    "out of range": (listed("int_contents", [300] * 50, "INT8"), "has an element out of range"),
    "not a number": (holding(np.nan), "feature 'savings' of row 1 is not a finite number"),
    "infinite": (holding(-np.inf), "feature 'savings' of row 1 is not a finite number"),
    "text that is no number": (texts(b"48211.75x"), "an element is not a number"),
    "text that says it is not a number": (texts(b"nan"), "is not a finite number"),
    "text too large": (texts(b"1e300"), "is not a finite number"),
    "text longer than any number": (
        texts(b"1." + b"0" * 70 + b"e3"),
        "'features' has datatype BYTES",
    ),
    "lying lengths": (
        lambda request: (typed("BYTES")(request), raw(b"\xff\xff\xff\xff" + b"1" * 99)(request)),
        "does not consist of 50 BYTES elements",
    ),
    "unknown output": (
        wanting("scores"),
        "output 'scores' is unknown; the outputs are score, decision",
    ),
    "an output twice": (wanting("score", "score"), "an output is requested twice"),
}


@pytest.fixture
def infer(channel):
    call = channel.unary_unary(METHOD)
    return lambda data: call(data, timeout=30)


@pytest.fixture
def served(infer, fitted):
    """A request that is served after what came before."""
    yield
    good = infer(request_of(fitted.rows[:1]).SerializeToString())
    assert len(wire.ModelInferResponse.FromString(good).raw_output_contents) == 1


def refused(infer, data: bytes) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refusal:
        infer(data)
    assert "48211" not in refusal.value.details()
    return refusal.value


@pytest.mark.parametrize(("spoil", "words"), CASES.values(), ids=CASES)
def test_the_error_of_a_malformed_request_says_what_is_wrong(infer, served, spoil, words):
    request = request_of(ROWS)
    assert infer(request.SerializeToString())
    spoil(request)
    refusal = refused(infer, request.SerializeToString())
    assert refusal.code() == INVALID, refusal.details()
    assert re.search(words, refusal.details()), refusal.details()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (asking("other"), "model 'other' is not served here; 'lending' is"),
        (asking(""), "model '' is not served here"),
        (asking(MODEL, "2"), "version '2' of 'lending' is not served here; '3' is"),
        (asking("x" * 1000), "model 'xxx"),
    ],
    ids=["model", "no model", "version", "long name"],
)
def test_an_unknown_model_or_version_is_not_found(infer, served, spoil, words):
    request = request_of(ROWS)
    spoil(request)
    refusal = refused(infer, request.SerializeToString())
    assert refusal.code() == grpc.StatusCode.NOT_FOUND
    assert words in refusal.details()
    assert len(refusal.details()) < 400


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x7fshort", b"\x0a\x02\xc3\x28"])
def test_bytes_that_are_not_a_message_are_refused(infer, served, data):
    refusal = refused(infer, data)
    assert refusal.code() == INVALID
    assert refusal.details() == "the message is not a valid ModelInferRequest"


def test_an_oversize_message_is_refused_before_it_is_read(infer, served, serving):
    before = serving.resident_bytes
    refusal = refused(infer, bytes(64 << 20))
    assert refusal.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert serving.resident_bytes - before < 48 << 20


def test_a_compressed_message_that_expands_beyond_the_limit_is_refused(channel, served):
    call = channel.unary_unary(METHOD)
    with pytest.raises(grpc.RpcError) as refusal:
        call(bytes(64 << 20), timeout=30, compression=grpc.Compression.Gzip)
    assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", "ModelReady", "ModelMetadata"])
def test_every_other_method_refuses_bytes_that_are_not_a_message(channel, served, method):
    call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
    with pytest.raises(grpc.RpcError) as refusal:
        call(b"\xff\xff\xff", timeout=30)
    assert refusal.value.code() == INVALID
    assert refusal.value.details() == f"the message is not a valid {method}Request"


def test_outcomes_are_refused_without_a_log(channel, served):
    with pytest.raises(grpc.RpcError) as refusal:
        channel.unary_unary("/evenhand.v1.Monitor/RecordOutcomes")(b"", timeout=30)
    assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert refusal.value.details() == "this sidecar records no outcomes: outcomes.path is not set"
