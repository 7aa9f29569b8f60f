"""Requests and responses as JSON, with the binary extension: raw tensors after the JSON."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from monitor.codec import DATATYPES, MAX_TENSORS
from monitor.drift.wording import group_names
from monitor.errors import BadRequestError, TooLargeError
from monitor.request import (
    SUBJECT_PARAMETER,
    InferRequest,
    InferResponse,
    InputTensor,
    OutputTensor,
    checked_subject,
)

if TYPE_CHECKING:
    from monitor.drift.alarms import Alarm
    from monitor.drift.effect import Effect

__all__ = [
    "HEADER",
    "AlarmName",
    "AlarmReply",
    "InferBody",
    "InferReply",
    "problem_in_words",
    "read_request",
    "unpacked",
    "write_response",
]

HEADER = "Inference-Header-Content-Length"
_DEEPEST = 8

Parameters = dict[str, Any]


class InputBody(BaseModel):
    """An input tensor; its data nested or flat, or `binary_data_size` bytes after the JSON."""

    model_config = ConfigDict(strict=True)

    name: str
    shape: Annotated[list[int], Field(max_length=_DEEPEST)]
    datatype: str = Field(json_schema_extra={"enum": list(DATATYPES)})
    parameters: Parameters | None = None
    data: list[Any] | None = None


class OutputBody(BaseModel):
    """A requested output."""

    model_config = ConfigDict(strict=True)

    name: str
    parameters: Parameters | None = None


class InferBody(BaseModel):
    """A request for predictions."""

    model_config = ConfigDict(strict=True)

    id: str = ""
    parameters: Parameters | None = None
    inputs: Annotated[list[InputBody], Field(max_length=MAX_TENSORS)]
    outputs: Annotated[list[OutputBody], Field(max_length=MAX_TENSORS)] | None = None


class ReplyTensor(BaseModel):
    """An output tensor; `null` in its data is NaN, as for a withheld prediction."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: list[Any] | None = None


class InferReply(BaseModel):
    """Predictions; the parameters `evenhand_…` hold the verdict, action and scores."""

    model_name: str
    model_version: str
    id: str
    parameters: dict[str, str]
    outputs: list[ReplyTensor]


class EffectReply(BaseModel):
    """What happened to people since an alarm `change`; figures are rounded.

    A figure is null if it would describe fewer than 10 predictions.
    """

    predictions: int
    flip_share: float | None
    flip_share_low: float
    flip_share_high: float
    baseline_flip_share: float
    flip_share_rose: bool
    expected_change_by_group: dict[str, float | None]

    @classmethod
    def of(cls, effect: Effect, groups: Sequence[str] | None) -> Self:
        """The reply for an effect; `groups` are the names of the attribute's groups."""
        names = group_names(groups, effect)
        return cls(
            predictions=effect.n,
            flip_share=None if effect.share is None else round(effect.share, 4),
            flip_share_low=round(effect.band.low, 4),
            flip_share_high=round(effect.band.high, 4),
            baseline_flip_share=round(effect.baseline, 4),
            flip_share_rose=effect.rose,
            expected_change_by_group={
                name: None if ratio is None else round(ratio, 2)
                for name, ratio in zip(names, effect.change_ratios, strict=True)
            },
        )


class AlarmReply(BaseModel):
    """An unacknowledged alarm of the drift watch.

    If `flip_share_below_bound` is true, the maps do not explain the difference between the groups,
    or the status posterior is not calibrated: do not rely on figures of flips.
    """

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None
    at_prediction: int
    cause: Literal["covariates", "model", "treatment", "unclear"]
    pages: bool
    flip_share_below_bound: bool
    text: str
    since_alarm: EffectReply | None

    @classmethod
    def of(
        cls, alarm: Alarm, text: str, groups: Sequence[str] | None, *, below_bound: bool
    ) -> Self:
        """The reply for an alarm, with its description and the names of the groups."""
        effect = alarm.effect
        return cls(
            detector=alarm.watcher.kind,
            attribute=alarm.watcher.attribute,
            at_prediction=alarm.at,
            cause=alarm.cause,
            pages=alarm.pages,
            flip_share_below_bound=below_bound,
            text=text,
            since_alarm=None if effect is None else EffectReply.of(effect, groups),
        )


class AlarmName(BaseModel):
    """Detector and attribute of an alarm."""

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None = None


def read_request(
    body: bytes, header_length: str | None, model: str, version: str
) -> tuple[InferRequest, Mapping[str, bool], bool]:
    """A request from the body of an HTTP request.

    Returns:
        The request; which of the requested outputs are to be binary; the default for the others.

    Raises:
        BadRequestError: The body is malformed.
    """
    split = _header_length(header_length, len(body))
    try:
        parsed = InferBody.model_validate_json(body[:split])
    except ValidationError as error:
        raise BadRequestError(problem_in_words(error)) from None
    binary = memoryview(body)[split:]
    inputs = []
    for tensor in parsed.inputs:
        data, binary = _data(tensor, binary)
        inputs.append(InputTensor(tensor.name, tensor.datatype, tensor.shape, data))
    if len(binary):
        raise BadRequestError(f"{len(binary)} bytes after the JSON belong to no input")
    outputs, parameters = parsed.outputs or [], parsed.parameters or {}
    subject = parameters.get(SUBJECT_PARAMETER)
    request = InferRequest(
        model=model,
        version=version,
        id=parsed.id,
        inputs=inputs,
        outputs=[output.name for output in outputs],
        subject="" if subject is None else checked_subject(subject),
    )
    by_default = _flag(parsed.parameters, "binary_data_output", otherwise=False)
    binary_outputs = {
        output.name: _flag(output.parameters, "binary_data", otherwise=by_default)
        for output in outputs
    }
    return request, binary_outputs, by_default


def write_response(
    response: InferResponse,
    model: str,
    version: str,
    binary: Mapping[str, bool],
    *,
    by_default: bool,
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if raw tensors follow."""
    outputs, tail = [], []
    for tensor in response.outputs:
        written: dict[str, Any] = {
            "name": tensor.name,
            "shape": list(tensor.values.shape),
            "datatype": tensor.datatype,
        }
        if binary.get(tensor.name, by_default):
            data = tensor.raw
            written["parameters"] = {"binary_data_size": len(data)}
            tail.append(data)
        else:
            written["data"] = _listed(tensor)
        outputs.append(written)
    reply = {
        "model_name": model,
        "model_version": version,
        "id": response.id,
        "parameters": response.parameters,
        "outputs": outputs,
    }
    # JSON has no NaN.
    body = to_json(reply, inf_nan_mode="null")
    return (body + b"".join(tail), len(body)) if tail else (body, None)


def unpacked(body: bytes, encoding: str, most: int) -> bytes:
    """A decompressed body.

    Raises:
        BadRequestError: The body does not match its encoding.
        TooLargeError: It decompresses to more than `most` bytes.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise BadRequestError(f"content encoding {encoding!r:.40} is unknown; use gzip or deflate")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | (32 if encoding == "gzip" else 0))
    try:
        unpacked_body = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise BadRequestError(f"the body is not {encoding}") from None
    if len(unpacked_body) > most:
        raise TooLargeError(f"the request decompresses to more than {most} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequestError(f"the body is not one complete {encoding} stream")
    return unpacked_body


def _header_length(text: str | None, size: int) -> int:
    if text is None:
        return size
    if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text) <= size):
        raise BadRequestError(f"{HEADER} must be a number of bytes, at most the body's {size}")
    return int(text)


def _data(tensor: InputBody, binary: memoryview) -> tuple[bytes | list[Any], memoryview]:
    """Data of a tensor, and the remaining bytes after the JSON."""
    label = f"input {tensor.name!r:.120}"
    size = (tensor.parameters or {}).get("binary_data_size")
    if (size is None) == (tensor.data is None):
        raise BadRequestError(f"{label} must have either data or binary_data_size")
    if tensor.data is not None:
        return _flat(tensor.data, tensor.shape, label), binary
    if type(size) is not int or not 0 <= size <= len(binary):
        raise BadRequestError(
            f"{label} has a binary_data_size that is not a number of bytes at most the "
            f"{len(binary)} that follow"
        )
    return bytes(binary[:size]), binary[size:]


def _flat(data: list[Any], shape: Sequence[int], label: str) -> list[Any]:
    """Elements as a flat list; they may be nested as the shape says, or flat."""
    if not any(type(part) is list for part in data):
        return data
    parts = data
    for depth, size in enumerate(shape):
        if depth:
            if not all(type(part) is list and len(part) == size for part in parts):
                raise BadRequestError(f"{label} has data that is not nested according to its shape")
            parts = [element for part in parts for element in part]
        elif len(parts) != size:
            raise BadRequestError(f"{label} has data that is not nested according to its shape")
    return parts


def _flag(parameters: Parameters | None, name: str, *, otherwise: bool) -> bool:
    value = (parameters or {}).get(name, otherwise)
    if type(value) is not bool:
        raise BadRequestError(f"parameter {name!r} must be true or false")
    return value


def _listed(tensor: OutputTensor) -> list[Any]:
    listed: list[Any] = tensor.values.ravel().tolist()
    return listed


def problem_in_words(error: ValidationError) -> str:
    """The first problem of a body: its location, never the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if problem["type"] == "json_invalid":
        return "the body is not valid JSON"
    location = ".".join(str(part)[:60] for part in problem["loc"])
    return f"{location or 'the body'}: {problem['msg'].lower()}"
