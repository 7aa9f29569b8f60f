"""From the tensors of a request to the classifier's features.

A client sends one tensor `[n, d]` of all features, or a tensor `[n]` or `[n, 1]` for each, called
by the feature's name. Messages name the tensor, the row and the feature; they never hold a value.
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

__all__ = ["DATATYPES", "MOST_TENSORS", "FeatureCodec"]

Features = NDArray[np.float32]

# Every datatype of the protocol and its bytes in a raw tensor; BYTES are as long as they say.
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
# No request needs more, whatever it claims.
MOST_TENSORS = 20_000
_LONGEST_NUMBER = 64


class FeatureCodec:
    """Reads features out of requests for one model."""

    def __init__(self, spec: BundleSpec, config: ServerConfig) -> None:
        self._names = [feature.name for feature in spec.features]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._all = config.input_name
        self._refuses_non_finite = config.non_finite == "refuse"
        self._max_rows = config.max_rows

    def features(self, inputs: Sequence[InputTensor]) -> Features:
        """The features of a request, `[n, d]`; may share memory with it.

        Raises:
            BadRequestError: They are not those of the model, or are malformed.
            TooLargeError: They are too many.
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
            told = _told(tensor)
            raise BadRequestError(f"{told} has shape {_shown(shape)}; [n, {width}] is wanted")
        self._check_rows(shape[0], _told(tensor))
        return _values(tensor, shape[0] * width).reshape(shape)

    def _from_columns(self, inputs: Sequence[InputTensor]) -> Features:
        self._check_names([tensor.name for tensor in inputs])
        rows = inputs[0].shape[0] if len(inputs[0].shape) else 0
        self._check_rows(rows, _told(inputs[0]))
        features = np.empty((rows, len(self._names)), np.float32)
        for tensor in inputs:
            shape = tuple(tensor.shape)
            if shape not in ((rows,), (rows, 1)):
                raise BadRequestError(
                    f"{_told(tensor)} has shape {_shown(shape)}; [{rows}] or [{rows}, 1] is "
                    f"wanted, since {_told(inputs[0])} has {rows} rows"
                )
            features[:, self._places[tensor.name]] = _values(tensor, rows)
        return features

    def _check_names(self, names: list[str]) -> None:
        wanted = f"one tensor {self._all!r} [n, {len(self._names)}], or a tensor for each feature"
        if not names:
            raise BadRequestError(f"there is no input; {wanted} is wanted")
        for name in names:
            if name not in self._places:
                raise BadRequestError(f"input {name!r:.120} is not known; {wanted} is wanted")
        given = set(names)
        if len(given) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadRequestError(f"input {twice!r} is given twice")
        missing = [name for name in self._names if name not in given]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            told = ", ".join(map(repr, missing[:3]))
            raise BadRequestError(f"there is no input for {told}{more}; {wanted} is wanted")

    def _check_rows(self, rows: int, told: str) -> None:
        if rows < 1:
            raise BadRequestError(f"{told} has no rows")
        if rows > self._max_rows:
            raise TooLargeError(f"{told} has {rows} rows; at most {self._max_rows} are taken")


def _values(tensor: InputTensor, count: int) -> Features:
    """A tensor's elements as float32, `[count]`."""
    datatype, data = tensor.datatype, tensor.data
    if datatype == "FP32" and isinstance(data, bytes) and len(data) == 4 * count:
        return np.frombuffer(data, "<f4")
    if datatype not in DATATYPES:
        raise BadRequestError(
            f"{_told(tensor)} has datatype {datatype!r:.40}; known are {', '.join(DATATYPES)}"
        )
    if isinstance(data, bytes):
        values = _from_raw(tensor, data, count)
    else:
        if len(data) != count:
            told, shape = _told(tensor), _shown(tensor.shape)
            raise BadRequestError(f"{told} has {len(data)} elements; shape {shape} has {count}")
        values = _from_elements(tensor, data)
    # Too large for float32 becomes an infinity, which is looked for later.
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32)


def _from_raw(tensor: InputTensor, data: bytes, count: int) -> NDArray[np.generic]:
    if tensor.datatype == "BYTES":
        return _numbers(tensor, _raw_texts(tensor, data, count))
    dtype = np.dtype(_NUMPY[tensor.datatype])
    if len(data) != dtype.itemsize * count:
        raise BadRequestError(
            f"{_told(tensor)} has {len(data)} bytes; {tensor.datatype} {_shown(tensor.shape)} has "
            f"{dtype.itemsize * count}"
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
    place = 0
    while place < len(data) and len(texts) <= count:
        if place + 4 > len(data):
            break
        (size,) = struct.unpack_from("<I", data, place)
        texts.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    if place != len(data) or len(texts) != count:
        raise BadRequestError(
            f"{_told(tensor)} is not {count} elements of BYTES, each after its length"
        )
    return texts


def _from_elements(tensor: InputTensor, data: Sequence[object]) -> NDArray[np.generic]:
    """Elements as a client listed them, of the kind that the datatype says."""
    datatype, kinds = tensor.datatype, set(map(type, data))
    if datatype == "BYTES":
        if not kinds <= {bytes, str}:
            raise BadRequestError(f"{_told(tensor)} is BYTES, and holds elements that are not text")
        return _numbers(tensor, [t if isinstance(t, bytes) else str(t).encode() for t in data])
    floating = datatype.startswith(("FP", "BF"))
    allowed: set[type] = {bool} if datatype == "BOOL" else {int, float} if floating else {int}
    if not kinds <= allowed:
        raise BadRequestError(f"{_told(tensor)} is {datatype}, and holds other elements than such")
    if datatype == "BOOL":
        return np.array(data, bool)
    try:
        # Halves are widened by all who send them listed; integers must fit what they claim to be.
        return np.array(data, np.float64 if floating else _NUMPY[datatype])
    except OverflowError:
        raise BadRequestError(f"{_told(tensor)} holds an element out of range") from None


def _numbers(tensor: InputTensor, texts: list[bytes]) -> NDArray[np.float64]:
    """Numbers that were sent as text."""
    told = f"{_told(tensor)} is BYTES, and holds an element that is no number"
    if any(len(text) > _LONGEST_NUMBER or b"_" in text for text in texts):
        raise BadRequestError(told)
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        raise BadRequestError(told) from None


def _told(tensor: InputTensor) -> str:
    return f"input {tensor.name!r:.120}"


def _shown(shape: Sequence[int]) -> str:
    most = 8
    told = ", ".join(str(size) for size in shape[:most])
    return f"[{told}, …]" if len(shape) > most else f"[{told}]"
