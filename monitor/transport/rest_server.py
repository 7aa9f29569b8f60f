"""The REST transport: Open Inference Protocol over HTTP, outcomes, alarms, metrics, OpenAPI."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import choose_encoder
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from monitor.drift.reference import DetectorId
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
from monitor.metadata import server_version
from monitor.transport.outcome_messages import OutcomesBody, OutcomesReply
from monitor.transport.rest_messages import (
    HEADER,
    AlarmName,
    AlarmReply,
    problem_in_words,
    read_request,
    unpacked,
    write_response,
)
from monitor.transport.rest_routes import add_routes

if TYPE_CHECKING:
    from monitor.metadata import ModelCard
    from monitor.metrics.serving import ServingMetrics
    from monitor.pipeline import Pipeline
    from monitor.settings import ServerConfig
    from monitor.stream import Stream
    from monitor.traffic.outcomes import Outcome

__all__ = ["RestTransport"]

_LOG = logging.getLogger(__name__)
STATUSES: dict[type[RequestError], tuple[int, str]] = {
    BadRequestError: (400, "bad"),
    NotFoundError: (404, "unknown"),
    TooLargeError: (413, "too_large"),
    NotReadyError: (503, "not_ready"),
    OverloadedError: (429, "shed"),
    ForbiddenError: (403, "refused"),
    NotOfferedError: (501, "refused"),
    WithheldError: (422, "withheld"),
    PredictionError: (500, "error"),
}
# Not all of the loopback range: a service mesh forwards requests of other hosts from it.
_LOCAL = ("127.0.0.1", "::1")
_MAX_ALARM_BYTES = 4096


class _Uvicorn(uvicorn.Server):
    """A server that leaves signals to the process, which runs other servers too."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RestTransport:
    """Serves HTTP requests.

    Attributes:
        port: Port that it listens on.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        card: ModelCard,
        stream: Stream,
        metrics: ServingMetrics | None,
        config: ServerConfig,
    ) -> None:
        self._pipeline, self._card, self._stream = pipeline, card, stream
        self._metrics, self._config = metrics, config
        self._socket = _bound(config)
        self.port: int = self._socket.getsockname()[1]
        self._server = _Uvicorn(
            uvicorn.Config(
                self._app(),
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                # The client's address must not come from a header that the client sends.
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, round(config.max_wait_seconds)),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start to serve."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                raise ServeError("the REST server did not start") from self._serving.exception()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Finish the requests in progress, and stop."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving

    def _app(self) -> FastAPI:
        app = FastAPIOffline(
            title="evenhand",
            version=server_version(),
            description="Open Inference Protocol, with a verdict on every prediction.",
            redoc_url=None,
        )
        add_routes(app, self)
        app.add_exception_handler(RequestError, _refused)
        app.add_exception_handler(RequestValidationError, _not_valid)
        app.add_exception_handler(HTTPException, _no_route)
        app.add_exception_handler(Exception, _failed)
        return app

    async def infer(self, request: Request, model: str, version: str) -> Response:
        """Read a request, run it through the pipeline, write the response."""
        started, outcome = time.perf_counter(), "error"
        try:
            self._pipeline.check_load()
            body = await _body(request, self._config.max_message_bytes)
            infer_request, binary, by_default = read_request(
                body, request.headers.get(HEADER), model, version
            )
            response = await self._pipeline.infer(infer_request)
            served = self._pipeline.model
            written, split = write_response(
                response, served.name, served.version, binary, by_default=by_default
            )
            outcome = "ok"
        except RequestError as error:
            outcome = STATUSES[type(error)][1]
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ClientDisconnect:
            # No client is left to read the response.
            outcome = "cancelled"
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - the one catch-all of this transport
            return await _failed(request, error)
        finally:
            if self._metrics is not None:
                self._metrics.count_request("rest", outcome, time.perf_counter() - started)
        if split is None:
            return Response(written, media_type="application/json")
        headers = {HEADER: str(split)}
        return Response(written, headers=headers, media_type="application/octet-stream")

    def model_metadata(self, model: str, version: str) -> dict[str, Any]:
        """Metadata of a model, as the protocol defines it."""
        self._pipeline.check_model(model, version)
        card = self._card
        inputs, outputs = (
            [{"name": n, "datatype": d, "shape": s} for n, d, s in tensors]
            for tensors in (card.inputs, card.outputs)
        )
        return {
            "name": card.name,
            "versions": [card.version],
            "platform": card.platform,
            "inputs": inputs,
            "outputs": outputs,
            "properties": card.properties,
        }

    def ready(self, model: str | None = None, version: str = "") -> Response:
        """Readiness of the sidecar or of a model; 503 if not ready."""
        if model is not None:
            self._pipeline.check_model(model, version)
        ready = self._pipeline.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    def metrics(self, accept: str) -> Response:
        """Metrics in the format that Prometheus accepts."""
        if self._metrics is None:
            raise NotFoundError("metrics are disabled: metrics.enabled is false")
        self._stream.flush()
        self._metrics.flush()
        encode, media_type = choose_encoder(accept)
        return Response(encode(self._metrics.registry), media_type=media_type)

    def alarms(self) -> list[AlarmReply]:
        """Unacknowledged alarms."""
        return [
            AlarmReply.of(
                alarm,
                self._stream.description(alarm),
                self._stream.groups.get(alarm.watcher.attribute or ""),
                below_bound=self._stream.is_below_bound(alarm.watcher.attribute),
            )
            for alarm in self._stream.alarms
        ]

    async def record_outcomes(self, request: Request) -> OutcomesReply:
        """Record outcomes of predictions."""
        body = await _body(request, self._config.max_message_bytes)

        def read() -> list[Outcome]:
            try:
                return OutcomesBody.model_validate_json(body).read
            except ValidationError as error:
                raise BadRequestError(problem_in_words(error)) from None

        recorded, refusals = await self._pipeline.record_outcomes(read, "rest")
        return OutcomesReply.of(recorded, refusals)

    async def acknowledge(self, request: Request) -> list[AlarmReply]:
        """Acknowledge an alarm; only from this machine."""
        local = request.client is not None and request.client.host in _LOCAL
        if not local or self._config.acknowledge == "never":
            raise ForbiddenError(
                "alarms can be acknowledged from the sidecar's own machine only; "
                "use kubectl port-forward"
            )
        try:
            name = AlarmName.model_validate_json(await _body(request, _MAX_ALARM_BYTES))
        except ValidationError as error:
            raise BadRequestError(problem_in_words(error)) from None
        self._stream.acknowledge(DetectorId(name.detector, name.attribute))
        return self.alarms()


async def _body(request: Request, most: int) -> bytes:
    """Body of a request, read up to its maximum size."""
    too_large = f"the request is larger than {most} bytes"
    length = request.headers.get("Content-Length", "0")
    if length.isdigit() and int(length) > most:
        raise TooLargeError(too_large)
    parts, size = [], 0
    chunks: AsyncIterator[bytes] = request.stream()
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise TooLargeError(too_large)
        parts.append(chunk)
    return unpacked(b"".join(parts), request.headers.get("Content-Encoding", "").lower(), most)


def _bound(config: ServerConfig) -> socket.socket:
    """A socket bound to the configured address."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.rest_port))
    except OSError as error:
        listener.close()
        raise ServeError(
            f"cannot listen for REST on {config.host}:{config.rest_port}: {error.strerror or error}"
        ) from None
    return listener


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"error": str(error)}, STATUSES[type(error)][0])


async def _not_valid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    location = ".".join(str(part)[:60] for part in problem["loc"])
    return JSONResponse({"error": f"{location}: {problem['msg'].lower()}"}, 400)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    _LOG.error("a request failed: %s", without_values(error))
    return JSONResponse({"error": "internal error"}, 500)
