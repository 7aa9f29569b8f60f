"""A client of a sidecar, or of any other server of the Open Inference Protocol.

with Client("127.0.0.1:8081", model="lending") as client:
predictions = client.predict(rows)
print(predictions.output, predictions.verdicts["sex"])
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.errors import BadRequestError, EvenhandError
from monitor.frames import encoded_rows, is_table, raw_tensors
from monitor.request import SUBJECT_PARAMETER
from monitor.wire import open_inference_pb2 as wire
from monitor.wire import open_inference_pb2_grpc as services

__all__ = ["AsyncClient", "Client", "EndpointError", "Predictions"]

# Rows of features, or a table with named columns, which may be of any library.
Rows = ArrayLike | Any

_URL = re.compile(r"^(https?|grpcs?)://", re.IGNORECASE)
_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_DTYPES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{kind}{8 * size}": f"<{letter}{size}"
    for kind, letter in (("INT", "i"), ("UINT", "u"))
    for size in (1, 2, 4, 8)
}
# Outputs of a sidecar in mode `inline`: one value per row and protected attribute.
_WORDS = ("decision", "action", "unknown_reason", "verdict", "likely_flip", "unusual")
_SIGNALS = ("sensitivity", "flip_probability", "expected_change", "p_value")


class EndpointError(EvenhandError):
    """An endpoint refuses a request, or does not respond.

    Attributes:
        status: Name of the gRPC status, such as INVALID_ARGUMENT.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Predictions of an endpoint for n rows.

    Attributes:
        request_id: Request id of the sidecar, which outcomes refer to; empty from other servers.
        output: The classifier's own output, `[n]` or `[n, k]`; NaN for withheld predictions.
        decisions: Class name of every row; empty from other servers.
        actions: Action of policy for every row; empty without inline monitoring.
        unknown_reasons: Why a row is unlike the training rows, such as `range: income`, for every
            row; empty for other rows and without inline monitoring.
        verdicts: Verdict of every row, by protected attribute; empty without inline monitoring.
        likely_flip: Whether the decision likely flips for another group (`yes`, `no` or `unknown`),
            for every row, by protected attribute; empty without inline monitoring.
        unusual: Whether the score is unusual compared with the baseline, likewise.
        signals: Values `[n]` by name (`sensitivity`, `flip_probability`, `expected_change`,
            `p_value`) and protected attribute; empty without inline monitoring.
        parameters: Response parameters, by name.
    """

    request_id: str
    output: NDArray[np.floating]
    decisions: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    unknown_reasons: tuple[str, ...] = ()
    verdicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    likely_flip: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unusual: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signals: Mapping[str, Mapping[str, NDArray[np.floating]]] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)


def _address(endpoint: str) -> str:
    """The address of an endpoint.

    Raises:
        BadRequestError: It is a URL.
    """
    if _URL.match(endpoint):
        raise BadRequestError(
            f"{endpoint!r} is a URL; give host and port of gRPC, such as 127.0.0.1:8081 (8080 is "
            "the port of REST by default)"
        )
    return endpoint


class _Endpoint:
    """Tensors of an endpoint's model, from its metadata; shared by both clients."""

    def __init__(self, model: str, version: str, timeout: float) -> None:
        self.model, self.version, self.timeout = model, version, timeout
        self.input_name, self.output_name = "", ""
        self.raw_inputs: dict[str, str] = {}
        self.features: list[str] = []
        self.requested: list[str] = []
        self.attributes: list[str] = []

    @property
    def metadata_request(self) -> wire.ModelMetadataRequest:
        return wire.ModelMetadataRequest(name=self.model, version=self.version)

    def read_metadata(self, metadata: wire.ModelMetadataResponse) -> None:
        if not metadata.inputs or not metadata.outputs:
            raise EndpointError("UNKNOWN", f"the metadata of {self.model!r} lists no tensors")
        outputs = [tensor.name for tensor in metadata.outputs]
        self.input_name, self.output_name = metadata.inputs[0].name, outputs[0]
        # Tensors of one dimension are columns; a tensor of all features has two.
        if all(len(tensor.shape) == 1 for tensor in metadata.inputs):
            self.raw_inputs = {tensor.name: tensor.datatype for tensor in metadata.inputs}
            self.input_name = metadata.properties.get("encoded_input", "")
        self.features = json.loads(metadata.properties.get("features", "[]"))
        further = [name for name in (*_WORDS, *_SIGNALS) if name in outputs[1:]]
        self.requested = [self.output_name, *further] if further else []
        self.attributes = json.loads(metadata.properties.get("protected_attributes", "[]"))

    def request(self, features: Rows, request_id: str, subject: str) -> wire.ModelInferRequest:
        request = wire.ModelInferRequest(
            model_name=self.model, model_version=self.version, id=request_id
        )
        if subject:
            request.parameters[SUBJECT_PARAMETER].string_param = subject
        if self.raw_inputs and is_table(features):
            for name, datatype, rows, data in raw_tensors(features, self.raw_inputs):
                request.inputs.add(name=name, datatype=datatype, shape=[rows])
                request.raw_input_contents.append(data)
        else:
            if not self.input_name:
                raise BadRequestError(
                    f"the model takes raw inputs only; send a table with the columns "
                    f"{', '.join(self.raw_inputs)}"
                )
            if is_table(features):
                features = encoded_rows(features, self.features)
            try:
                encoded = np.ascontiguousarray(features, "<f4")
            except (TypeError, ValueError):
                raise BadRequestError(
                    "rows must be numbers [n, d], or a table with a column per input, such as a "
                    "data frame or {'age': [57]}"
                ) from None
            request.inputs.add(name=self.input_name, datatype="FP32", shape=encoded.shape)
            request.raw_input_contents.append(encoded.tobytes())
        for name in self.requested:
            request.outputs.add(name=name)
        return request

    def predictions(self, response: wire.ModelInferResponse) -> Predictions:
        raw = response.raw_output_contents
        if len(raw) != len(response.outputs):
            raise EndpointError("UNKNOWN", "the response to a raw request has tensors without data")
        tensors = {o.name: _values(o, data) for o, data in zip(response.outputs, raw, strict=True)}
        parameters = {name: value.string_param for name, value in response.parameters.items()}
        return Predictions(
            request_id=parameters.get("evenhand_request_id", ""),
            output=tensors[self.output_name],
            decisions=_texts(tensors.get("decision")),
            actions=_texts(tensors.get("action")),
            unknown_reasons=_texts(tensors.get("unknown_reason")),
            verdicts=self._by_attribute(tensors.get("verdict")),
            likely_flip=self._by_attribute(tensors.get("likely_flip")),
            unusual=self._by_attribute(tensors.get("unusual")),
            signals={
                signal: {name: tensors[signal][:, i] for i, name in enumerate(self.attributes)}
                for signal in _SIGNALS
                if signal in tensors
            },
            parameters=parameters,
        )

    def _by_attribute(self, tensor: NDArray[Any] | None) -> dict[str, tuple[str, ...]]:
        """Texts of a tensor `[n, a]` by protected attribute."""
        if tensor is None:
            return {}
        return {name: _texts(tensor[:, index]) for index, name in enumerate(self.attributes)}


class Client:
    """Calls an endpoint over gRPC.

    Args:
        endpoint: Address, such as `127.0.0.1:8081`.
        model: Name of the model.
        version: Version of the model; empty for the server's default.
        timeout: Time limit of a request, in seconds.
    """

    def __init__(
        self, endpoint: str, *, model: str, version: str = "", timeout: float = 30.0
    ) -> None:
        self._channel = grpc.insecure_channel(_address(endpoint), options=_OPTIONS)
        self._stub = services.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._endpoint = _Endpoint(model, version, timeout)

    def predict(self, features: Rows, *, request_id: str = "", subject: str = "") -> Predictions:
        """Predictions for rows `[n, d]`, with verdicts and signals if the endpoint returns them.

        The rows may be a table with a column per feature, or per raw input if the model has raw
        inputs, in any order: a data frame of pandas or polars, a pyarrow table, or a mapping of
        columns. None and NaN are missing. `subject` is your id of the person that all rows are
        about; a sidecar that records subjects keeps a pseudonym of it, for audits.

        Raises:
            BadRequestError: The columns of a table are not the inputs of the model.
            EndpointError: The endpoint refuses the request, or does not respond.
        """
        endpoint, timeout = self._endpoint, self._endpoint.timeout
        try:
            if not endpoint.output_name:
                endpoint.read_metadata(
                    self._stub.ModelMetadata(endpoint.metadata_request, timeout=timeout)
                )
            request = endpoint.request(features, request_id, subject)
            return endpoint.predictions(self._stub.ModelInfer(request, timeout=timeout))
        except grpc.RpcError as error:
            raise _refusal(error) from None

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClient:
    """`Client` for asyncio, with the same arguments."""

    def __init__(
        self, endpoint: str, *, model: str, version: str = "", timeout: float = 30.0
    ) -> None:
        self._channel = grpc.aio.insecure_channel(_address(endpoint), options=_OPTIONS)
        self._stub = services.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._endpoint = _Endpoint(model, version, timeout)

    async def predict(
        self, features: Rows, *, request_id: str = "", subject: str = ""
    ) -> Predictions:
        """Predictions for rows `[n, d]` or a table, as of `Client.predict`.

        Raises:
            BadRequestError: The columns of a table are not the inputs of the model.
            EndpointError: The endpoint refuses the request, or does not respond.
        """
        endpoint, timeout = self._endpoint, self._endpoint.timeout
        try:
            if not endpoint.output_name:
                endpoint.read_metadata(
                    await self._stub.ModelMetadata(endpoint.metadata_request, timeout=timeout)
                )
            request = endpoint.request(features, request_id, subject)
            return endpoint.predictions(await self._stub.ModelInfer(request, timeout=timeout))
        except grpc.RpcError as error:
            raise _refusal(error) from None

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _refusal(error: Any) -> EndpointError:
    details = error.details() or "no response"
    if "HTTP/2" in details:
        details += "; is this the port of REST? The client needs the port of gRPC"
    return EndpointError(error.code().name, details)


def _values(output: Any, raw: bytes) -> NDArray[Any]:
    shape = tuple(output.shape)
    if output.datatype not in (*_DTYPES, "BYTES"):
        raise EndpointError(
            "UNKNOWN", f"output {output.name!r} has the unknown datatype {output.datatype!r}"
        )
    if output.datatype != "BYTES":
        return np.frombuffer(raw, _DTYPES[output.datatype]).reshape(shape)
    texts, offset = [], 0
    while offset < len(raw):
        (size,) = struct.unpack_from("<I", raw, offset)
        texts.append(raw[offset + 4 : offset + 4 + size].decode())
        offset += 4 + size
    return np.array(texts, object).reshape(shape)


def _texts(values: Sequence[Any] | NDArray[Any] | None) -> tuple[str, ...]:
    return () if values is None else tuple(map(str, values))
