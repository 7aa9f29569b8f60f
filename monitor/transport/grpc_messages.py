"""Requests and responses as gRPC messages of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from monitor.codec import MAX_TENSORS
from monitor.errors import BadRequestError
from monitor.request import (
    SUBJECT_PARAMETER,
    InferRequest,
    InferResponse,
    InputTensor,
    checked_subject,
)
from monitor.wire.open_inference_pb2 import ModelInferRequest, ModelInferResponse

__all__ = ["parsed", "read_request", "write_response"]

# Field of the elements by datatype; FP16 and BF16 are sent raw only.
_FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def parsed(message: Any, data: bytes) -> Any:
    """A message of a class, parsed from its bytes.

    Raises:
        BadRequestError: The bytes are not such a message.
    """
    try:
        return message.FromString(data)
    except DecodeError:
        raise BadRequestError(f"the message is not a valid {message.DESCRIPTOR.name}") from None


def read_request(data: bytes) -> tuple[InferRequest, bool]:
    """A request from the bytes of a ModelInferRequest, and whether its tensors are raw.

    Raises:
        BadRequestError: The message is malformed.
    """
    message: ModelInferRequest = parsed(ModelInferRequest, data)
    raw = message.raw_input_contents
    if max(len(message.inputs), len(message.outputs), len(raw)) > MAX_TENSORS:
        raise BadRequestError(f"the message holds more than {MAX_TENSORS} tensors")
    inputs = _raw_inputs(message, raw) if raw else _listed_inputs(message)
    request = InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        inputs=inputs,
        outputs=[output.name for output in message.outputs],
        subject=_subject(message),
    )
    return request, bool(raw)


def _subject(message: ModelInferRequest) -> str:
    if SUBJECT_PARAMETER not in message.parameters:
        return ""
    # A parameter of another type has an empty text.
    return checked_subject(message.parameters[SUBJECT_PARAMETER].string_param)


def _raw_inputs(request: ModelInferRequest, raw: Sequence[bytes]) -> list[InputTensor]:
    inputs = request.inputs
    if len(raw) != len(inputs):
        raise BadRequestError(f"raw_input_contents has {len(raw)} entries for {len(inputs)} inputs")
    for tensor in inputs:
        if tensor.HasField("contents"):
            raise BadRequestError(
                f"input {tensor.name!r:.120} has contents in a request with raw_input_contents"
            )
    return [
        InputTensor(tensor.name, tensor.datatype, tensor.shape, data)
        for tensor, data in zip(inputs, raw, strict=True)
    ]


def _listed_inputs(request: ModelInferRequest) -> list[InputTensor]:
    return [
        InputTensor(tensor.name, tensor.datatype, tensor.shape, _elements(tensor))
        for tensor in request.inputs
    ]


def _elements(tensor: Any) -> list[object]:
    """Elements of a tensor, from the field of its datatype."""
    field = _FIELDS.get(tensor.datatype)
    filled = [descriptor.name for descriptor, _ in tensor.contents.ListFields()]
    if field is None:
        if tensor.datatype in ("FP16", "BF16"):
            raise BadRequestError(
                f"input {tensor.name!r:.120} is {tensor.datatype}, which can be sent in "
                "raw_input_contents only"
            )
        return []
    if any(name != field for name in filled):
        raise BadRequestError(
            f"input {tensor.name!r:.120} is {tensor.datatype}, so its elements must be in {field}, "
            f"not in {next(name for name in filled if name != field)}"
        )
    return list(getattr(tensor.contents, field))


def write_response(response: InferResponse, model: str, version: str, *, raw: bool) -> bytes:
    """The bytes of a ModelInferResponse; raw where the request was."""
    message = ModelInferResponse(model_name=model, model_version=version, id=response.id)
    parameters = message.parameters
    for name, text in response.parameters.items():
        parameters[name].string_param = text
    for tensor in response.outputs:
        output = message.outputs.add(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.values.shape
        )
        if raw:
            message.raw_output_contents.append(tensor.raw)
        else:
            elements = tensor.values.ravel().tolist()
            if tensor.datatype == "BYTES":
                elements = [str(text).encode() for text in elements]
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(elements)
    return message.SerializeToString()
