"""Elements of input tensors, raw or listed, of every datatype of the protocol.

Error messages name the tensor; they never contain a value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from monitor.errors import BadRequestError

if TYPE_CHECKING:
    from monitor.request import InputTensor

__all__ = [
    "DATATYPES",
    "category_text",
    "float_values",
    "label_of",
    "raw_numbers",
    "raw_values",
    "shape_text",
]

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
_MAX_NUMBER_LENGTH = 64
_LENGTH = struct.Struct("<I")


def float_values(tensor: InputTensor, count: int) -> NDArray[np.float32]:
    """A tensor's elements as float32, `[count]`."""
    datatype, data = tensor.datatype, tensor.data
    if datatype == "FP32" and isinstance(data, bytes) and len(data) == 4 * count:
        return np.frombuffer(data, "<f4")
    values = _elements(tensor, count)
    if isinstance(values, list):
        values = _numbers(tensor, values)
    # A value too large for float32 becomes infinite, which `features` checks.
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def raw_values(tensor: InputTensor, count: int) -> NDArray[np.generic] | list[bytes]:
    """Elements of a raw input, `[count]`; null is NaN, or an empty text."""
    data = tensor.data
    if isinstance(data, bytes) or None not in data:
        return _elements(tensor, count)
    if tensor.datatype == "BYTES":
        texts = ["" if element is None else element for element in data]
        return _elements(tensor._replace(data=texts), count)
    present = [element for element in data if element is not None]
    if len(data) != count:
        raise _wrong_count(tensor, len(data), count)
    elements = _elements(tensor._replace(data=present), len(present))
    if tensor.datatype == "BOOL":
        return [b"" if e is None else b"true" if e else b"false" for e in data]
    values = np.full(count, np.nan)
    values[[element is not None for element in data]] = elements
    return values


def raw_numbers(tensor: InputTensor, count: int) -> NDArray[np.float64]:
    """Numbers of a raw input, `[count]`; null and an empty text are NaN."""
    values = raw_values(tensor, count)
    if isinstance(values, list):
        as_number = {b"": b"nan"} | (
            {b"true": b"1", b"false": b"0"} if tensor.datatype == "BOOL" else {}
        )
        values = _numbers(tensor, [as_number.get(text, text) for text in values])
    return values.astype(np.float64)


def _elements(tensor: InputTensor, count: int) -> NDArray[np.generic] | list[bytes]:
    """Elements of a tensor; a list for BYTES."""
    datatype, data = tensor.datatype, tensor.data
    if datatype not in DATATYPES:
        raise BadRequestError(
            f"{label_of(tensor)} has datatype {datatype!r:.40}; it must be one of "
            f"{', '.join(DATATYPES)}"
        )
    if isinstance(data, bytes):
        return _from_raw(tensor, data, count)
    if len(data) != count:
        raise _wrong_count(tensor, len(data), count)
    return _from_elements(tensor, data)


def _wrong_count(tensor: InputTensor, found: int, count: int) -> BadRequestError:
    shape = shape_text(tensor.shape)
    return BadRequestError(f"{label_of(tensor)} has {found} elements; shape {shape} has {count}")


def _from_raw(tensor: InputTensor, data: bytes, count: int) -> NDArray[np.generic] | list[bytes]:
    if tensor.datatype == "BYTES":
        return _raw_texts(tensor, data, count)
    dtype = np.dtype(_NUMPY[tensor.datatype])
    if len(data) != dtype.itemsize * count:
        raise BadRequestError(
            f"{label_of(tensor)} has {len(data)} bytes; {tensor.datatype} "
            f"{shape_text(tensor.shape)} has {dtype.itemsize * count}"
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
    add, size_at, offset = texts.append, _LENGTH.unpack_from, 0
    try:
        for _ in range(count):
            (size,) = size_at(data, offset)
            start = offset + _LENGTH.size
            offset = start + size
            add(data[start:offset])
    except struct.error:
        # The data end before the last element.
        offset = -1
    if offset != len(data):
        raise BadRequestError(
            f"{label_of(tensor)} does not consist of {count} BYTES elements with length prefixes"
        )
    return texts


def _from_elements(
    tensor: InputTensor, data: Sequence[object]
) -> NDArray[np.generic] | list[bytes]:
    """Elements that a client listed, checked against the datatype."""
    datatype, kinds = tensor.datatype, set(map(type, data))
    if datatype == "BYTES":
        if not kinds <= {bytes, str}:
            raise BadRequestError(
                f"{label_of(tensor)} has datatype BYTES, but some elements are not strings"
            )
        return [t if isinstance(t, bytes) else str(t).encode() for t in data]
    floating = datatype.startswith(("FP", "BF"))
    allowed: set[type] = {bool} if datatype == "BOOL" else {int, float} if floating else {int}
    if not kinds <= allowed:
        raise BadRequestError(
            f"{label_of(tensor)} has datatype {datatype}, but some elements have another type"
        )
    if datatype == "BOOL":
        return np.array(data, bool)
    try:
        # Clients list half-precision values as wider floats; integers must be in range.
        return np.array(data, np.float64 if floating else _NUMPY[datatype])
    except OverflowError:
        raise BadRequestError(f"{label_of(tensor)} has an element out of range") from None


def _numbers(tensor: InputTensor, texts: list[bytes]) -> NDArray[np.float64]:
    """Numbers that were sent as text."""
    message = f"{label_of(tensor)} has datatype BYTES, but an element is not a number"
    if any(len(text) > _MAX_NUMBER_LENGTH or b"_" in text for text in texts):
        raise BadRequestError(message)
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        raise BadRequestError(message) from None


def category_text(value: object) -> str:
    """Text of a category: whole numbers without a decimal point, `true` and `false`."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value)


def label_of(tensor: InputTensor) -> str:
    """How messages name a tensor."""
    return f"input {tensor.name!r:.120}"


def shape_text(shape: Sequence[int]) -> str:
    """A shape, cut after eight sizes."""
    limit = 8
    sizes = ", ".join(str(size) for size in shape[:limit])
    return f"[{sizes}, …]" if len(shape) > limit else f"[{sizes}]"
