"""A malformed gRPC request gets a status and a message, and the next request is served."""

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
# A value that must not occur in any error message.
SECRET = 48_211.75
ROWS = np.full((2, WIDTH), SECRET, np.float32)

Mutation = Callable[[wire.ModelInferRequest], object]


def with_shape(*shape: int) -> Mutation:
    return lambda request: request.inputs[0].shape.__setitem__(slice(None), shape)


def with_name(name: str) -> Mutation:
    return lambda request: setattr(request.inputs[0], "name", name)


def with_datatype(datatype: str) -> Mutation:
    return lambda request: setattr(request.inputs[0], "datatype", datatype)


def with_raw(*entries: bytes) -> Mutation:
    return lambda request: request.raw_input_contents.__setitem__(slice(None), entries)


def with_value(value: float) -> Mutation:
    rows = ROWS.copy()
    rows[1, 3] = value
    return with_raw(rows.tobytes())


def with_outputs(*names: str) -> Mutation:
    return lambda request: request.outputs.extend(
        wire.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in names
    )


def for_model(name: str, version: str = "") -> Mutation:
    def mutate(request: wire.ModelInferRequest) -> None:
        request.model_name, request.model_version = name, version

    return mutate


def with_contents(field: str, values: list[float], datatype: str = "FP32") -> Mutation:
    """Elements in a field of contents, without raw contents."""

    def mutate(request: wire.ModelInferRequest) -> None:
        del request.raw_input_contents[:]
        request.inputs[0].datatype = datatype
        getattr(request.inputs[0].contents, field).extend(values)

    return mutate


def with_raw_and_contents(request: wire.ModelInferRequest) -> None:
    request.inputs[0].contents.fp32_contents.extend(ROWS.ravel().tolist())


def with_columns(*names: str) -> Mutation:
    """A tensor of two rows for each of these names."""

    def mutate(request: wire.ModelInferRequest) -> None:
        del request.inputs[:], request.raw_input_contents[:]
        for name in names:
            request.inputs.add(name=name, datatype="FP32", shape=[2])
            request.raw_input_contents.append(ROWS[:, 0].tobytes())

    return mutate


def with_texts(text: bytes) -> Mutation:
    """The same text for every element."""
    return lambda request: (
        with_datatype("BYTES")(request),
        with_raw((struct.pack("<I", len(text)) + text) * ROWS.size)(request),
    )


CASES: dict[str, tuple[Mutation, str]] = {
    "too narrow": (with_shape(2, 24), r"'features' has shape \[2, 24\]; it must be \[n, 25\]"),
    "one dimension": (with_shape(50), r"has shape \[50\]; it must be \[n, 25\]"),
    "three dimensions": (with_shape(2, 5, 5), r"has shape \[2, 5, 5\]"),
    "no shape": (with_shape(), r"has shape \[\]"),
    "no rows": (with_shape(0, WIDTH), "has no rows"),
    "rows below zero": (with_shape(-2, WIDTH), "has no rows"),
    "too many rows": (with_shape(10_001, WIDTH), "has 10001 rows; the limit is 10000"),
    "far too many rows": (with_shape(2**62, WIDTH), "the limit is 10000"),
    "another width": (with_shape(2, 2**62), "it must be"),
    "unknown datatype": (with_datatype("FP8"), "has datatype 'FP8'; it must be one of BOOL, UINT8"),
    "no datatype": (with_datatype(""), "has datatype ''"),
    "datatype of another size": (with_datatype("FP64"), r"has 200 bytes; FP64 \[2, 25\] has 400"),
    "unknown name": (with_name("income2"), "input 'income2' is unknown"),
    "no name": (with_name(""), "input '' is unknown"),
    "a feature alone": (
        with_columns("income"),
        "no input for 'loan_amount', 'debt_ratio', 'savings' a",
    ),
    "a feature twice": (with_columns("income", "income"), "input 'income' occurs twice"),
    "no input": (with_columns(), "there is no input"),
    "too few bytes": (with_raw(ROWS.tobytes()[:-1]), "has 199 bytes"),
    "too many bytes": (with_raw(ROWS.tobytes() + b"\0"), "has 201 bytes"),
    "no bytes": (with_raw(b""), "has 0 bytes"),
    "too many raw entries": (with_raw(ROWS.tobytes(), b""), "has 2 entries for 1 inputs"),
    "raw and listed": (with_raw_and_contents, "has contents in a request with raw_input_contents"),
    "neither raw nor listed": (with_raw(), r"has 0 elements; shape \[2, 25\] has 50"),
    "too few elements": (with_contents("fp32_contents", [SECRET]), "has 1 elements"),
    "elements in another field": (
        with_contents("fp64_contents", [SECRET] * 50),
        "must be in fp32_contents, not in fp64_contents",
    ),
    "listed FP16": (with_contents("fp32_contents", [1.0] * 50, "FP16"), "raw_input_contents only"),
    "out of range": (
        with_contents("int_contents", [300] * 50, "INT8"),
        "has an element out of range",
    ),
    "not a number": (with_value(np.nan), "feature 'savings' of row 1 is not a finite number"),
    "infinite": (with_value(-np.inf), "feature 'savings' of row 1 is not a finite number"),
    "text that is not a number": (with_texts(b"48211.75x"), "an element is not a number"),
    "text nan": (with_texts(b"nan"), "is not a finite number"),
    "text too large": (with_texts(b"1e300"), "is not a finite number"),
    "text longer than any number": (
        with_texts(b"1." + b"0" * 70 + b"e3"),
        "'features' has datatype BYTES",
    ),
    "wrong lengths": (
        lambda request: (
            with_datatype("BYTES")(request),
            with_raw(b"\xff\xff\xff\xff" + b"1" * 99)(request),
        ),
        "does not consist of 50 BYTES elements",
    ),
    "unknown output": (
        with_outputs("scores"),
        "output 'scores' is unknown; the outputs are score, decision",
    ),
    "an output twice": (with_outputs("score", "score"), "an output is requested twice"),
}


@pytest.fixture
def infer(channel):
    call = channel.unary_unary(METHOD)
    return lambda data: call(data, timeout=30)


@pytest.fixture
def serves_afterwards(infer, fitted):
    """After the test, a valid request is served."""
    yield
    response = infer(request_of(fitted.rows[:1]).SerializeToString())
    assert len(wire.ModelInferResponse.FromString(response).raw_output_contents) == 1


def error_of(infer, data: bytes) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as error:
        infer(data)
    assert "48211" not in error.value.details()
    return error.value


@pytest.mark.parametrize(("mutate", "message"), CASES.values(), ids=CASES)
def test_the_error_of_a_malformed_request_says_what_is_wrong(
    infer, serves_afterwards, mutate, message
):
    request = request_of(ROWS)
    assert infer(request.SerializeToString())
    mutate(request)
    error = error_of(infer, request.SerializeToString())
    assert error.code() == INVALID, error.details()
    assert re.search(message, error.details()), error.details()


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (for_model("other"), "model 'other' is not served here; 'lending' is"),
        (for_model(""), "model '' is not served here"),
        (for_model(MODEL, "2"), "version '2' of 'lending' is not served here; '3' is"),
        (for_model("x" * 1000), "model 'xxx"),
    ],
    ids=["model", "no model", "version", "long name"],
)
def test_an_unknown_model_or_version_is_not_found(infer, serves_afterwards, mutate, message):
    request = request_of(ROWS)
    mutate(request)
    error = error_of(infer, request.SerializeToString())
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert message in error.details()
    assert len(error.details()) < 400


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x7fshort", b"\x0a\x02\xc3\x28"])
def test_bytes_that_are_not_a_message_are_rejected(infer, serves_afterwards, data):
    error = error_of(infer, data)
    assert error.code() == INVALID
    assert error.details() == "the message is not a valid ModelInferRequest"


def test_an_oversize_message_is_rejected_before_it_is_read(infer, serves_afterwards, serving):
    before = serving.resident_bytes
    error = error_of(infer, bytes(64 << 20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert serving.resident_bytes - before < 48 << 20


def test_a_compressed_message_that_expands_beyond_the_limit_is_rejected(channel, serves_afterwards):
    call = channel.unary_unary(METHOD)
    with pytest.raises(grpc.RpcError) as error:
        call(bytes(64 << 20), timeout=30, compression=grpc.Compression.Gzip)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", "ModelReady", "ModelMetadata"])
def test_every_other_method_rejects_bytes_that_are_not_a_message(
    channel, serves_afterwards, method
):
    call = channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
    with pytest.raises(grpc.RpcError) as error:
        call(b"\xff\xff\xff", timeout=30)
    assert error.value.code() == INVALID
    assert error.value.details() == f"the message is not a valid {method}Request"


def test_outcomes_are_rejected_without_a_log(channel, serves_afterwards):
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/evenhand.v1.Monitor/RecordOutcomes")(b"", timeout=30)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.value.details() == "this sidecar records no outcomes: outcomes.path is not set"
