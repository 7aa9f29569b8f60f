"""Calls and answers as messages of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from monitor.call import Answer, Call, InputTensor
from monitor.codec import MOST_TENSORS
from monitor.doors.tensors import raw_bytes
from monitor.errors import BadRequestError
from monitor.wire.open_inference_pb2 import ModelInferRequest, ModelInferResponse

__all__ = ["parsed", "read_call", "write_answer"]

# Where the elements of each datatype are listed; FP16 and BF16 travel raw only.
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
    """A message of some class from its bytes.

    Raises:
        BadRequestError: They are no such message.
    """
    try:
        return message.FromString(data)
    except DecodeError:
        raise BadRequestError(f"the message is no {message.DESCRIPTOR.name}") from None


def read_call(data: bytes) -> tuple[Call, bool]:
    """A call from the bytes of a ModelInferRequest, and whether its tensors are raw.

    Raises:
        BadRequestError: They are malformed.
    """
    request: ModelInferRequest = parsed(ModelInferRequest, data)
    raw = request.raw_input_contents
    if max(len(request.inputs), len(request.outputs), len(raw)) > MOST_TENSORS:
        raise BadRequestError(f"the message holds more than {MOST_TENSORS} tensors")
    inputs = _raw_inputs(request, raw) if raw else _listed_inputs(request)
    call = Call(
        model=request.model_name,
        version=request.model_version,
        id=request.id,
        inputs=inputs,
        outputs=[output.name for output in request.outputs],
    )
    return call, bool(raw)


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
    """What a tensor lists, in the field of its datatype and in no other."""
    field = _FIELDS.get(tensor.datatype)
    filled = [descriptor.name for descriptor, _ in tensor.contents.ListFields()]
    if field is None:
        if tensor.datatype in ("FP16", "BF16"):
            raise BadRequestError(
                f"input {tensor.name!r:.120} is {tensor.datatype}, which travels in "
                "raw_input_contents only"
            )
        return []
    if any(name != field for name in filled):
        raise BadRequestError(
            f"input {tensor.name!r:.120} is {tensor.datatype}, so its elements belong in {field}, "
            f"not in {next(name for name in filled if name != field)}"
        )
    return list(getattr(tensor.contents, field))


def write_answer(answer: Answer, model: str, version: str, *, raw: bool) -> bytes:
    """The bytes of a ModelInferResponse; raw where the request was."""
    response = ModelInferResponse(model_name=model, model_version=version, id=answer.id)
    parameters = response.parameters
    for name, text in answer.marks.items():
        parameters[name].string_param = text
    for tensor in answer.outputs:
        output = response.outputs.add(
            name=tensor.name, datatype=tensor.datatype, shape=tensor.values.shape
        )
        if raw:
            response.raw_output_contents.append(raw_bytes(tensor))
        else:
            elements = tensor.values.ravel().tolist()
            if tensor.datatype == "BYTES":
                elements = [str(text).encode() for text in elements]
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(elements)
    return response.SerializeToString()
