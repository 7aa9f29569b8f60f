"""The gRPC transport: Open Inference Protocol, health, reflection and evenhand's own service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from monitor.errors import (
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    NotOfferedError,
    NotReadyError,
    OverloadedError,
    PredictionError,
    RequestError,
    ServeError,
    TooLargeError,
    WithheldError,
)
from monitor.logs import without_values
from monitor.metadata import EXTENSIONS, NAME, server_version
from monitor.transport.grpc_messages import parsed, read_request, write_response
from monitor.transport.outcome_messages import outcomes_message, read_outcomes
from monitor.wire import evenhand_pb2 as own
from monitor.wire import open_inference_pb2 as wire

if TYPE_CHECKING:
    from monitor.metadata import ModelCard
    from monitor.metrics.serving import ServingMetrics
    from monitor.pipeline import Pipeline
    from monitor.settings import ServerConfig

__all__ = ["GrpcTransport"]

_LOG = logging.getLogger(__name__)
_INFERENCE, _MONITOR = "inference.GRPCInferenceService", "evenhand.v1.Monitor"
_FURTHER_RPCS = 100
# Status of every error, and the outcome it is counted as. A withheld prediction must not look like
# a temporary failure, which clients retry.
STATUSES: dict[type[RequestError], tuple[grpc.StatusCode, str]] = {
    BadRequestError: (grpc.StatusCode.INVALID_ARGUMENT, "bad"),
    NotFoundError: (grpc.StatusCode.NOT_FOUND, "unknown"),
    TooLargeError: (grpc.StatusCode.INVALID_ARGUMENT, "too_large"),
    NotReadyError: (grpc.StatusCode.UNAVAILABLE, "not_ready"),
    OverloadedError: (grpc.StatusCode.RESOURCE_EXHAUSTED, "shed"),
    ForbiddenError: (grpc.StatusCode.PERMISSION_DENIED, "refused"),
    NotOfferedError: (grpc.StatusCode.UNIMPLEMENTED, "refused"),
    WithheldError: (grpc.StatusCode.FAILED_PRECONDITION, "withheld"),
    PredictionError: (grpc.StatusCode.INTERNAL, "error"),
}

Context: TypeAlias = grpc.aio.ServicerContext
Handler: TypeAlias = Callable[[bytes], Awaitable[bytes]]


class GrpcTransport:
    """Serves gRPC requests.

    Attributes:
        port: Port that it listens on.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        card: ModelCard,
        metrics: ServingMetrics | None,
        config: ServerConfig,
    ) -> None:
        self._pipeline, self._card, self._metrics = pipeline, card, metrics
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", config.max_message_bytes),
                ("grpc.max_send_message_length", -1),
                # Two servers on one port would each get some of the requests.
                ("grpc.so_reuseport", 0),
            ],
            # Health checks and metadata need some beyond the inferences that are accepted.
            maximum_concurrent_rpcs=config.max_in_flight + _FURTHER_RPCS,
        )
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    _INFERENCE,
                    {
                        "ServerLive": self._plain(self._server_live),
                        "ServerReady": self._plain(self._server_ready),
                        "ModelReady": self._plain(self._model_ready),
                        "ServerMetadata": self._plain(self._server_metadata),
                        "ModelMetadata": self._plain(self._model_metadata),
                        "ModelInfer": grpc.unary_unary_rpc_method_handler(self._model_infer),
                    },
                ),
                grpc.method_handlers_generic_handler(
                    _MONITOR, {"RecordOutcomes": self._plain(self._record_outcomes)}
                ),
            )
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (_INFERENCE, _MONITOR, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self._watched = ("", _INFERENCE, _MONITOR, card.name)
        try:
            host = f"[{config.host}]" if ":" in config.host else config.host
            self.port: int = self._server.add_insecure_port(f"{host}:{config.grpc_port}")
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise ServeError(
                f"cannot listen for gRPC on {config.host}:{config.grpc_port}; is the port taken?"
            )

    async def open(self) -> None:
        """Start to serve."""
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def report_stopping(self) -> None:
        """Report NOT_SERVING to health checks."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

    async def close(self, grace: float) -> None:
        """Finish the requests in progress, for at most `grace` seconds, and stop."""
        await self._server.stop(grace)

    async def _set_health(self, status: Any) -> None:
        for name in self._watched:
            await self._health.set(name, status)

    async def _model_infer(self, data: bytes, context: Context) -> bytes:
        started, outcome = time.perf_counter(), "error"
        try:
            self._pipeline.check_load()
            request, raw = read_request(data)
            response = await self._pipeline.infer(request)
            model = self._pipeline.model
            written = write_response(response, model.name, model.version, raw=raw)
        except RequestError as error:
            status, outcome = STATUSES[type(error)]
            await context.abort(status, str(error))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:  # noqa: BLE001 - the one catch-all of this transport
            _LOG.error("a request failed: %s", without_values(error))
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")
        else:
            outcome = "ok"
            return written
        finally:
            if self._metrics is not None:
                self._metrics.count_request("grpc", outcome, time.perf_counter() - started)
        raise AssertionError("abort raises")

    def _plain(self, handler: Handler) -> Any:
        """A method that is not counted in the metrics; errors become statuses."""

        async def call(data: bytes, context: Context) -> bytes:
            try:
                return await handler(data)
            except RequestError as error:
                await context.abort(STATUSES[type(error)][0], str(error))
                raise
            except Exception as error:
                _LOG.error("a request failed: %s", without_values(error))
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")
                raise

        return grpc.unary_unary_rpc_method_handler(call)

    async def _server_live(self, data: bytes) -> bytes:
        parsed(wire.ServerLiveRequest, data)
        return wire.ServerLiveResponse(live=True).SerializeToString()

    async def _server_ready(self, data: bytes) -> bytes:
        parsed(wire.ServerReadyRequest, data)
        return wire.ServerReadyResponse(ready=self._pipeline.ready).SerializeToString()

    async def _model_ready(self, data: bytes) -> bytes:
        request = parsed(wire.ModelReadyRequest, data)
        self._pipeline.check_model(request.name, request.version)
        return wire.ModelReadyResponse(ready=self._pipeline.ready).SerializeToString()

    async def _server_metadata(self, data: bytes) -> bytes:
        parsed(wire.ServerMetadataRequest, data)
        return wire.ServerMetadataResponse(
            name=NAME, version=server_version(), extensions=EXTENSIONS
        ).SerializeToString()

    async def _model_metadata(self, data: bytes) -> bytes:
        request = parsed(wire.ModelMetadataRequest, data)
        self._pipeline.check_model(request.name, request.version)
        card, tensor = self._card, wire.ModelMetadataResponse.TensorMetadata
        return wire.ModelMetadataResponse(
            name=card.name,
            versions=[card.version],
            platform=card.platform,
            inputs=[tensor(name=n, datatype=d, shape=s) for n, d, s in card.inputs],
            outputs=[tensor(name=n, datatype=d, shape=s) for n, d, s in card.outputs],
            properties=card.properties,
        ).SerializeToString()

    async def _record_outcomes(self, data: bytes) -> bytes:
        recorded, refusals = await self._pipeline.record_outcomes(
            lambda: read_outcomes(parsed(own.RecordOutcomesRequest, data)), "rpc"
        )
        return outcomes_message(recorded, refusals).SerializeToString()
