"""Calls and answers as JSON, with the binary extension: tensors behind the JSON, as raw bytes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from monitor.call import Answer, Call, InputTensor, OutputTensor
from monitor.codec import DATATYPES, MOST_TENSORS
from monitor.doors.tensors import raw_bytes
from monitor.errors import BadRequestError, TooLargeError

__all__ = [
    "HEADER",
    "InferBody",
    "InferReply",
    "problem_in_words",
    "read_call",
    "unpacked",
    "write_answer",
]

HEADER = "Inference-Header-Content-Length"
_DEEPEST = 8

Parameters = dict[str, Any]


class InputBody(BaseModel):
    """An input tensor; its data nested or flat, or behind the JSON as `binary_data_size` bytes."""

    model_config = ConfigDict(strict=True)

    name: str
    shape: Annotated[list[int], Field(max_length=_DEEPEST)]
    datatype: str = Field(json_schema_extra={"enum": list(DATATYPES)})
    parameters: Parameters | None = None
    data: list[Any] | None = None


class OutputBody(BaseModel):
    """An output that is wanted."""

    model_config = ConfigDict(strict=True)

    name: str
    parameters: Parameters | None = None


class InferBody(BaseModel):
    """A request for predictions."""

    model_config = ConfigDict(strict=True)

    id: str = ""
    parameters: Parameters | None = None
    inputs: Annotated[list[InputBody], Field(max_length=MOST_TENSORS)]
    outputs: Annotated[list[OutputBody], Field(max_length=MOST_TENSORS)] | None = None


class ReplyTensor(BaseModel):
    """An output; `null` in its data stands for NaN, as where a prediction is withheld."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: list[Any] | None = None


class InferReply(BaseModel):
    """Predictions, and what monitoring says of them in parameters called `evenhand_…`."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, str]
    outputs: list[ReplyTensor]


def read_call(
    body: bytes, header_length: str | None, model: str, version: str
) -> tuple[Call, Mapping[str, bool], bool]:
    """A call from the body of a request.

    Returns:
        The call; which of the wanted outputs are to be binary; and whether the others are.

    Raises:
        BadRequestError: It is malformed.
    """
    split = _header_length(header_length, len(body))
    try:
        request = InferBody.model_validate_json(body[:split])
    except ValidationError as error:
        raise BadRequestError(problem_in_words(error)) from None
    binary = memoryview(body)[split:]
    inputs = []
    for tensor in request.inputs:
        data, binary = _data(tensor, binary)
        inputs.append(InputTensor(tensor.name, tensor.datatype, tensor.shape, data))
    if len(binary):
        raise BadRequestError(f"{len(binary)} bytes behind the JSON belong to no input")
    outputs = request.outputs or []
    call = Call(
        model=model,
        version=version,
        id=request.id,
        inputs=inputs,
        outputs=[output.name for output in outputs],
    )
    by_default = _flag(request.parameters, "binary_data_output", otherwise=False)
    wanted = {
        output.name: _flag(output.parameters, "binary_data", otherwise=by_default)
        for output in outputs
    }
    return call, wanted, by_default


def write_answer(
    answer: Answer, model: str, version: str, binary: Mapping[str, bool], *, by_default: bool
) -> tuple[bytes, int | None]:
    """The body of an answer, and how much of it is JSON where bytes follow."""
    outputs, tail = [], []
    for tensor in answer.outputs:
        written: dict[str, Any] = {
            "name": tensor.name,
            "shape": list(tensor.values.shape),
            "datatype": tensor.datatype,
        }
        if binary.get(tensor.name, by_default):
            data = raw_bytes(tensor)
            written["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        else:
            written["data"] = _listed(tensor)
        outputs.append(written)
    reply = {
        "model_name": model,
        "model_version": version,
        "id": answer.id,
        "parameters": answer.marks,
        "outputs": outputs,
    }
    # JSON knows no NaN.
    body = to_json(reply, inf_nan_mode="null")
    return (body + b"".join(tail), len(body)) if tail else (body, None)


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """A body that was sent compressed.

    Raises:
        BadRequestError: It is not what its encoding says.
        TooLargeError: It unpacks to more than may be sent.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadRequestError(f"content encoding {encoding!r:.40} is not known; gzip, deflate are")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | (32 if encoding == "gzip" else 0))
    try:
        found = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise BadRequestError(f"the body is not {encoding}") from None
    if len(found) > most:
        raise TooLargeError(f"the request unpacks to more than {most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequestError(f"the body is not one whole {encoding}")
    return found


def _header_length(text: str | None, size: int) -> int:
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= size):
        raise BadRequestError(f"{HEADER} must be a number of bytes, at most the body's {size}")
    return int(text)


def _data(tensor: InputBody, binary: memoryview) -> tuple[bytes | list[Any], memoryview]:
    """A tensor's data, and the bytes behind the JSON that are left."""
    told = f"input {tensor.name!r:.120}"
    size = (tensor.parameters or {}).get("binary_data_size")
    if (size is None) == (tensor.data is None):
        raise BadRequestError(f"{told} must have either data or binary_data_size")
    if tensor.data is not None:
        return _flat(tensor.data, tensor.shape, told), binary
    if type(size) is not int or not 0 <= size <= len(binary):
        raise BadRequestError(
            f"{told} has a binary_data_size that is not a number of bytes at most the "
            f"{len(binary)} that follow"
        )
    return bytes(binary[:size]), binary[size:]


def _flat(data: list[Any], shape: Sequence[int], told: str) -> list[Any]:
    """Elements one after the other, nested as the shape says or not at all."""
    if not any(type(part) is list for part in data):
        return data
    parts = data
    for depth, size in enumerate(shape):
        if depth:
            if not all(type(part) is list and len(part) == size for part in parts):
                raise BadRequestError(f"{told} has data that is not nested as its shape says")
            parts = [element for part in parts for element in part]
        elif len(parts) != size:
            raise BadRequestError(f"{told} has data that is not nested as its shape says")
    return parts


def _flag(parameters: Parameters | None, name: str, *, otherwise: bool) -> bool:
    found = (parameters or {}).get(name, otherwise)
    if type(found) is not bool:
        raise BadRequestError(f"parameter {name!r} must be true or false")
    return found


def _listed(tensor: OutputTensor) -> list[Any]:
    listed: list[Any] = tensor.values.ravel().tolist()
    return listed


def problem_in_words(error: ValidationError) -> str:
    """The first problem of a body: where it is, and never what stands there."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if problem["type"] == "json_invalid":
        return "the body is not valid JSON"
    place = ".".join(str(part)[:60] for part in problem["loc"])
    return f"{place or 'the body'}: {problem['msg'].lower()}"
