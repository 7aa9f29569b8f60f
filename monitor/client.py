"""A small client: calls a sidecar, or any server of the protocol, and returns predictions.

with Client("127.0.0.1:8081", model="lending") as client:
found = client.predict(rows)
print(found.score, found.verdicts["sex"])
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.errors import EvenhandError
from monitor.wire import open_inference_pb2 as wire
from monitor.wire import open_inference_pb2_grpc as services

__all__ = ["AsyncClient", "Client", "EndpointError", "Predictions"]

_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_DTYPES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {
    f"{kind}{8 * size}": f"<{letter}{size}"
    for kind, letter in (("INT", "i"), ("UINT", "u"))
    for size in (1, 2, 4, 8)
}
# What a sidecar that judges before it answers can say of each row.
_SIGNALS = ("sensitivity", "flip_probability", "expected_change", "p_value")


class EndpointError(EvenhandError):
    """An endpoint that refuses, or does not answer.

    Attributes:
        status: Name of the gRPC status, such as INVALID_ARGUMENT.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What an endpoint answered of n rows.

    Attributes:
        request_id: What the sidecar calls the request, to send outcomes by; empty from others.
        score: The classifier's own output; NaN where it was withheld, `[n]` or `[n, k]`.
        decisions: Names of the classes; empty from servers that do not say.
        actions: What policy did, of each row; empty where nothing was judged.
        verdicts: By protected attribute, of each row; likewise.
        signals: By name (`sensitivity`, `flip_probability`, `expected_change`, `p_value`) and
            protected attribute, `[n]` each; likewise.
        marks: Everything that is said of the answer as a whole.
    """

    request_id: str
    score: NDArray[np.floating]
    decisions: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    verdicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    signals: Mapping[str, Mapping[str, NDArray[np.floating]]] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)


class _Endpoint:
    """What both clients know of an endpoint once it has told of its tensors."""

    def __init__(self, model: str, version: str, timeout: float) -> None:
        self.model, self.version, self.timeout = model, version, timeout
        self.input_name, self.own, self.wanted = "", "", list[str]()
        self.attributes: list[str] = []

    @property
    def metadata_request(self) -> wire.ModelMetadataRequest:
        return wire.ModelMetadataRequest(name=self.model, version=self.version)

    def learn(self, found: wire.ModelMetadataResponse) -> None:
        if not found.inputs or not found.outputs:
            raise EndpointError("UNKNOWN", f"{self.model!r} does not say which tensors it has")
        outputs = [tensor.name for tensor in found.outputs]
        self.input_name, self.own = found.inputs[0].name, outputs[0]
        extra = [n for n in ("decision", "action", "verdict", *_SIGNALS) if n in outputs[1:]]
        self.wanted = [self.own, *extra] if extra else []
        self.attributes = json.loads(found.properties.get("protected_attributes", "[]"))

    def request(self, features: ArrayLike, request_id: str) -> wire.ModelInferRequest:
        rows = np.ascontiguousarray(features, "<f4")
        request = wire.ModelInferRequest(
            model_name=self.model, model_version=self.version, id=request_id
        )
        request.inputs.add(name=self.input_name, datatype="FP32", shape=rows.shape)
        request.raw_input_contents.append(rows.tobytes())
        for name in self.wanted:
            request.outputs.add(name=name)
        return request

    def predictions(self, response: wire.ModelInferResponse) -> Predictions:
        raw = response.raw_output_contents
        if len(raw) != len(response.outputs):
            raise EndpointError("UNKNOWN", "a raw request was answered with tensors that are not")
        found = {o.name: _values(o, r) for o, r in zip(response.outputs, raw, strict=True)}
        marks = {name: value.string_param for name, value in response.parameters.items()}
        return Predictions(
            request_id=marks.get("evenhand_request_id", ""),
            score=found[self.own],
            decisions=_texts(found.get("decision")),
            actions=_texts(found.get("action")),
            verdicts={
                name: _texts(found["verdict"][:, place])
                for place, name in enumerate(self.attributes)
                if "verdict" in found
            },
            signals={
                signal: {n: found[signal][:, place] for place, n in enumerate(self.attributes)}
                for signal in _SIGNALS
                if signal in found
            },
            marks=marks,
        )


class Client:
    """Calls an endpoint over gRPC.

    Args:
        endpoint: Such as `127.0.0.1:8081`.
        model: Name of the model.
        version: Its version; empty lets the server choose.
        timeout: Seconds that one call may take.
    """

    def __init__(
        self, endpoint: str, *, model: str, version: str = "", timeout: float = 30.0
    ) -> None:
        self._channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
        self._stub = services.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._endpoint = _Endpoint(model, version, timeout)

    def predict(self, features: ArrayLike, *, request_id: str = "") -> Predictions:
        """Predictions of rows `[n, d]`, with what is said of each.

        Raises:
            EndpointError: The endpoint refuses, or does not answer.
        """
        found, timeout = self._endpoint, self._endpoint.timeout
        try:
            if not found.own:
                found.learn(self._stub.ModelMetadata(found.metadata_request, timeout=timeout))
            request = found.request(features, request_id)
            return found.predictions(self._stub.ModelInfer(request, timeout=timeout))
        except grpc.RpcError as error:
            raise _refusal(error) from None

    def close(self) -> None:
        """Hang up."""
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
    """The same for an event loop; see `Client`."""

    def __init__(
        self, endpoint: str, *, model: str, version: str = "", timeout: float = 30.0
    ) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        self._stub = services.GRPCInferenceServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._endpoint = _Endpoint(model, version, timeout)

    async def predict(self, features: ArrayLike, *, request_id: str = "") -> Predictions:
        """Predictions of rows `[n, d]`, with what is said of each.

        Raises:
            EndpointError: The endpoint refuses, or does not answer.
        """
        found, timeout = self._endpoint, self._endpoint.timeout
        try:
            if not found.own:
                found.learn(await self._stub.ModelMetadata(found.metadata_request, timeout=timeout))
            request = found.request(features, request_id)
            return found.predictions(await self._stub.ModelInfer(request, timeout=timeout))
        except grpc.RpcError as error:
            raise _refusal(error) from None

    async def close(self) -> None:
        """Hang up."""
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
    return EndpointError(error.code().name, error.details() or "no answer")


def _values(output: Any, raw: bytes) -> NDArray[Any]:
    shape = tuple(output.shape)
    if output.datatype not in (*_DTYPES, "BYTES"):
        raise EndpointError("UNKNOWN", f"output {output.name!r} is {output.datatype}")
    if output.datatype != "BYTES":
        return np.frombuffer(raw, _DTYPES[output.datatype]).reshape(shape)
    texts, place = [], 0
    while place < len(raw):
        (size,) = struct.unpack_from("<I", raw, place)
        texts.append(raw[place + 4 : place + 4 + size].decode())
        place += 4 + size
    return np.array(texts, object).reshape(shape)


def _texts(values: Sequence[Any] | NDArray[Any] | None) -> tuple[str, ...]:
    return () if values is None else tuple(map(str, values))
