"""Tensors of every datatype are decoded to features; invalid ones are rejected."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.codec import DATATYPES, FeatureCodec
from monitor.errors import BadRequestError, TooLargeError
from monitor.request import InputTensor
from monitor.settings import ServerConfig
from tests.bundles import WIDTH, small_spec

NAMES = [feature.name for feature in small_spec().features]
CODEC = FeatureCodec(small_spec(), ServerConfig(max_rows=50))
NUMPY = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{sign}INT{8 * size}": f"<{'u' if sign else 'i'}{size}"
    for sign in ("", "U")
    for size in (1, 2, 4, 8)
}


def raw(values: np.ndarray, datatype: str) -> bytes:
    """The raw encoding of the protocol, by a slow implementation."""
    if datatype == "BYTES":
        texts = [repr(float(value)).encode() for value in values.ravel()]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if datatype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values.ravel())
    return values.astype(NUMPY[datatype]).tobytes()


def decode(data, datatype="FP32", shape=(2, WIDTH), name="features"):
    return CODEC.features([InputTensor(name, datatype, shape, data)])


# Values that every datatype holds exactly.
ROWS = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0]], np.float32)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_raw_tensors_of_every_datatype_are_decoded(datatype):
    assert np.array_equal(decode(raw(ROWS, datatype), datatype), ROWS)


@pytest.mark.parametrize("datatype", [d for d in DATATYPES if d not in ("FP16", "BF16")])
def test_lists_of_every_datatype_are_decoded(datatype):
    kind: Any = {"BOOL": bool, "BYTES": lambda v: str(int(v)).encode()}.get(datatype, int)
    data = [float(v) if datatype in ("FP32", "FP64") else kind(v) for v in ROWS.ravel()]
    assert np.array_equal(decode(data, datatype), ROWS)


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=2 * WIDTH, max_size=2 * WIDTH))
def test_one_tensor_and_one_tensor_per_feature_give_the_same_features(values):
    rows = np.array(values, np.float32).reshape(2, WIDTH)
    columns = [
        InputTensor(name, "FP64", [2, 1] if index % 2 else [2], raw(rows[:, index], "FP64"))
        for index, name in enumerate(NAMES)
    ]
    expected = decode(rows.tobytes())
    assert np.array_equal(expected, rows)
    assert np.array_equal(CODEC.features(columns[::-1]), expected)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            InputTensor("x", "FP32", [2, 5], b""),
            "input 'x' is unknown; send one tensor 'features' [n",
        ),
        (InputTensor("features", "FP32", [2, 4], b""), "has shape [2, 4]; it must be [n, 5]"),
        (InputTensor("features", "FP32", [10], b""), "has shape [10]; it must be [n, 5]"),
        (InputTensor("features", "FP32", [2, 5, 1], b""), "has shape [2, 5, 1]"),
        (InputTensor("features", "FP32", [-1, 5], b""), "has no rows"),
        (InputTensor("features", "FP32", [0, 5], b""), "has no rows"),
        (InputTensor("features", "FP32", [2, 5], b"abc"), "has 3 bytes; FP32 [2, 5] has 40"),
        (InputTensor("features", "FP64", [2, 5], bytes(40)), "has 40 bytes; FP64 [2, 5] has 80"),
        (
            InputTensor("features", "FP31", [2, 5], bytes(40)),
            "has datatype 'FP31'; it must be one of BOOL",
        ),
        (InputTensor("features", "FP32", [2, 5], [1.0]), "has 1 elements; shape [2, 5] has 10"),
        (InputTensor("features", "INT8", [1, 5], [300] * 5), "has an element out of range"),
        (
            InputTensor("features", "INT8", [1, 5], [1.5] * 5),
            "has datatype INT8, but some elements have another type",
        ),
        (
            InputTensor("features", "BOOL", [1, 5], [1] * 5),
            "has datatype BOOL, but some elements have another type",
        ),
        (
            InputTensor("features", "FP32", [1, 5], ["1"] * 5),
            "has datatype FP32, but some elements have another type",
        ),
        (InputTensor("features", "FP64", [1, 5], [10**400] * 5), "has an element out of range"),
        (
            InputTensor("features", "BYTES", [1, 5], [b"x"] * 5),
            "an element is not a number",
        ),
        (
            InputTensor("features", "BYTES", [1, 5], [b"1" * 65] * 5),
            "an element is not a number",
        ),
        (InputTensor("features", "BYTES", [1, 5], [b"1_0"] * 5), "an element is not a number"),
        (InputTensor("features", "BYTES", [1, 5], [1] * 5), "some elements are not strings"),
        (
            InputTensor("features", "BYTES", [1, 5], b"\xff\xff\xff\xff"),
            "does not consist of 5 BYTES",
        ),
        (InputTensor("features", "BYTES", [1, 5], b"\x01"), "does not consist of 5 BYTES elements"),
    ],
)
def test_a_malformed_tensor_is_rejected_with_its_name_and_the_reason(tensor, message):
    with pytest.raises(BadRequestError) as error:
        CODEC.features([tensor])
    assert message in str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_rejected_with_row_and_feature(value):
    rows = np.ones((2, WIDTH), np.float32)
    rows[1, 2] = value
    with pytest.raises(BadRequestError, match="feature 'owner' of row 1 is not a finite number"):
        decode(rows.tobytes())
    lenient = FeatureCodec(small_spec(), ServerConfig(non_finite="pass"))
    result = lenient.features([InputTensor("features", "FP32", [2, WIDTH], rows.tobytes())])
    assert np.array_equal(result, rows, equal_nan=True)


def test_a_number_too_large_for_float32_is_rejected_without_its_value():
    rows = np.full((1, WIDTH), 1.2345e300)
    with pytest.raises(BadRequestError, match="not a finite number in FP32") as error:
        decode(rows.tobytes(), "FP64", [1, WIDTH])
    assert "2345" not in str(error.value)


def test_tensors_per_feature_must_be_complete_unique_and_of_one_length():
    ones = [InputTensor(name, "FP32", [2], bytes(8)) for name in NAMES]
    with pytest.raises(BadRequestError, match="no input for 'income', 'years', 'owner' and 1 more"):
        CODEC.features(ones[4:])
    with pytest.raises(BadRequestError, match="'owner' occurs twice"):
        CODEC.features([*ones, ones[2]])
    with pytest.raises(BadRequestError, match="there is no input;"):
        CODEC.features([])
    short = InputTensor("owner", "FP32", [1], bytes(4))
    with pytest.raises(
        BadRequestError, match=r"'owner' has shape \[1\]; it must be \[2\] or \[2, 1\]"
    ):
        CODEC.features([short if tensor.name == "owner" else tensor for tensor in ones])


def test_more_rows_than_the_limit_are_rejected():
    with pytest.raises(TooLargeError, match="has 51 rows; the limit is 50"):
        decode(bytes(51 * 4 * WIDTH), shape=(51, WIDTH))
