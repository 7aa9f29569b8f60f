"""Reads the classifier's features from the tensors of a request.

A client sends one tensor `[n, d]` of all features, or one tensor `[n]` or `[n, 1]` per feature,
with the feature's name. Error messages name the tensor, the row and the feature; they never
contain a value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.errors import BadRequestError, TooLargeError

if TYPE_CHECKING:
    from monitor.bundle.manifest import BundleSpec
    from monitor.request import InputTensor
    from monitor.settings import ServerConfig

__all__ = ["DATATYPES", "MAX_TENSORS", "FeatureCodec"]

Features = NDArray[np.float32]

# Numpy type of every datatype of the protocol but BYTES, whose elements vary in length.
_NUMPY = {
    "BOOL": "u1",
    **{f"UINT{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
    **{f"INT{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
DATATYPES = (*_NUMPY, "BYTES")
# Limit on the number of tensors in a request.
MAX_TENSORS = 20_000
_MAX_NUMBER_LENGTH = 64


class FeatureCodec:
    """Reads the features of requests for one model."""

    def __init__(self, spec: BundleSpec, config: ServerConfig) -> None:
        self._names = [feature.name for feature in spec.features]
        self._indices = {name: index for index, name in enumerate(self._names)}
        self._all = config.input_name
        self._refuses_non_finite = config.non_finite == "refuse"
        self._max_rows = config.max_rows

    def features(self, inputs: Sequence[InputTensor]) -> Features:
        """The features of a request, `[n, d]`; may share memory with it.

        Raises:
            BadRequestError: The tensors are malformed, or are not the model's features.
            TooLargeError: There are too many rows.
        """
        if len(inputs) == 1 and inputs[0].name == self._all:
            features = self._whole(inputs[0])
        else:
            features = self._from_columns(inputs)
        if self._refuses_non_finite and not np.isfinite(features).all():
            row, column = np.argwhere(~np.isfinite(features))[0].tolist()
            raise BadRequestError(
                f"feature {self._names[column]!r} of row {row} is not a finite number in FP32"
            )
        return features

    def _whole(self, tensor: InputTensor) -> Features:
        width, shape = len(self._names), tuple(tensor.shape)
        if len(shape) != 2 or shape[1] != width:
            raise BadRequestError(
                f"{_label(tensor)} has shape {_text_of(shape)}; it must be [n, {width}]"
            )
        self._check_rows(shape[0], _label(tensor))
        return _values(tensor, shape[0] * width).reshape(shape)

    def _from_columns(self, inputs: Sequence[InputTensor]) -> Features:
        self._check_names([tensor.name for tensor in inputs])
        rows = inputs[0].shape[0] if len(inputs[0].shape) else 0
        self._check_rows(rows, _label(inputs[0]))
        features = np.empty((rows, len(self._names)), np.float32)
        for tensor in inputs:
            shape = tuple(tensor.shape)
            if shape not in ((rows,), (rows, 1)):
                raise BadRequestError(
                    f"{_label(tensor)} has shape {_text_of(shape)}; it must be [{rows}] or "
                    f"[{rows}, 1], since {_label(inputs[0])} has {rows} rows"
                )
            features[:, self._indices[tensor.name]] = _values(tensor, rows)
        return features

    def _check_names(self, names: list[str]) -> None:
        hint = f"send one tensor {self._all!r} [n, {len(self._names)}], or one per feature"
        if not names:
            raise BadRequestError(f"there is no input; {hint}")
        for name in names:
            if name not in self._indices:
                raise BadRequestError(f"input {name!r:.120} is unknown; {hint}")
        unique = set(names)
        if len(unique) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadRequestError(f"input {twice!r} occurs twice")
        missing = [name for name in self._names if name not in unique]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            listed = ", ".join(map(repr, missing[:3]))
            raise BadRequestError(f"there is no input for {listed}{more}; {hint}")

    def _check_rows(self, rows: int, label: str) -> None:
        if rows < 1:
            raise BadRequestError(f"{label} has no rows")
        if rows > self._max_rows:
            raise TooLargeError(f"{label} has {rows} rows; the limit is {self._max_rows}")


def _values(tensor: InputTensor, count: int) -> Features:
    """A tensor's elements as float32, `[count]`."""
    datatype, data = tensor.datatype, tensor.data
    if datatype == "FP32" and isinstance(data, bytes) and len(data) == 4 * count:
        return np.frombuffer(data, "<f4")
    if datatype not in DATATYPES:
        raise BadRequestError(
            f"{_label(tensor)} has datatype {datatype!r:.40}; it must be one of "
            f"{', '.join(DATATYPES)}"
        )
    if isinstance(data, bytes):
        values = _from_raw(tensor, data, count)
    else:
        if len(data) != count:
            label, shape = _label(tensor), _text_of(tensor.shape)
            raise BadRequestError(f"{label} has {len(data)} elements; shape {shape} has {count}")
        values = _from_elements(tensor, data)
    # A value too large for float32 becomes infinite, which `features` checks.
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def _from_raw(tensor: InputTensor, data: bytes, count: int) -> NDArray[np.generic]:
    if tensor.datatype == "BYTES":
        return _numbers(tensor, _raw_texts(tensor, data, count))
    dtype = np.dtype(_NUMPY[tensor.datatype])
    if len(data) != dtype.itemsize * count:
        raise BadRequestError(
            f"{_label(tensor)} has {len(data)} bytes; {tensor.datatype} {_text_of(tensor.shape)} "
            f"has {dtype.itemsize * count}"
        )
    values = np.frombuffer(data, dtype)
    match tensor.datatype:
        case "BOOL":
            return values.astype(bool)
        case "BF16":
            return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        case _:
            return values


def _raw_texts(tensor: InputTensor, data: bytes, count: int) -> list[bytes]:
    texts: list[bytes] = []
    offset = 0
    while offset < len(data) and len(texts) <= count:
        if offset + 4 > len(data):
            break
        (size,) = struct.unpack_from("<I", data, offset)
        texts.append(data[offset + 4 : offset + 4 + size])
        offset += 4 + size
    if offset != len(data) or len(texts) != count:
        raise BadRequestError(
            f"{_label(tensor)} does not consist of {count} BYTES elements with length prefixes"
        )
    return texts


def _from_elements(tensor: InputTensor, data: Sequence[object]) -> NDArray[np.generic]:
    """Elements that a client listed, checked against the datatype."""
    datatype, kinds = tensor.datatype, set(map(type, data))
    if datatype == "BYTES":
        if not kinds <= {bytes, str}:
            raise BadRequestError(
                f"{_label(tensor)} has datatype BYTES, but some elements are not strings"
            )
        return _numbers(tensor, [t if isinstance(t, bytes) else str(t).encode() for t in data])
    floating = datatype.startswith(("FP", "BF"))
    allowed: set[type] = {bool} if datatype == "BOOL" else {int, float} if floating else {int}
    if not kinds <= allowed:
        raise BadRequestError(
            f"{_label(tensor)} has datatype {datatype}, but some elements have another type"
        )
    if datatype == "BOOL":
        return np.array(data, bool)
    try:
        # Clients list half-precision values as wider floats; integers must be in range.
        return np.array(data, np.float64 if floating else _NUMPY[datatype])
    except OverflowError:
        raise BadRequestError(f"{_label(tensor)} has an element out of range") from None


def _numbers(tensor: InputTensor, texts: list[bytes]) -> NDArray[np.float64]:
    """Numbers that were sent as text."""
    message = f"{_label(tensor)} has datatype BYTES, but an element is not a number"
    if any(len(text) > _MAX_NUMBER_LENGTH or b"_" in text for text in texts):
        raise BadRequestError(message)
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        raise BadRequestError(message) from None


def _label(tensor: InputTensor) -> str:
    return f"input {tensor.name!r:.120}"


def _text_of(shape: Sequence[int]) -> str:
    limit = 8
    sizes = ", ".join(str(size) for size in shape[:limit])
    return f"[{sizes}, …]" if len(shape) > limit else f"[{sizes}]"
