"""The REST door: the Open Inference Protocol over HTTP, metrics, alarms, and pages about itself."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from monitor.doors.rest_messages import (
    HEADER,
    InferBody,
    InferReply,
    read_call,
    unpacked,
    write_answer,
)
from monitor.drift import Alarm, Watcher
from monitor.errors import (
    BadRequestError,
    ForbiddenError,
    NotOfferedError,
    NotReadyError,
    OverloadedError,
    PredictionError,
    RequestError,
    ServeError,
    TooLargeError,
    UnknownModelError,
    WithheldError,
)
from monitor.logs import told_without_values
from monitor.metadata import EXTENSIONS, NAME, ModelCard, server_version
from monitor.metrics import ServingMetrics
from monitor.pipeline import Pipeline
from monitor.settings import ServerConfig
from monitor.stream import Stream

__all__ = ["RestDoor"]

_LOG = logging.getLogger(__name__)
STATUSES: dict[type[RequestError], tuple[int, str]] = {
    BadRequestError: (400, "bad"),
    UnknownModelError: (404, "unknown"),
    TooLargeError: (413, "too_large"),
    NotReadyError: (503, "not_ready"),
    OverloadedError: (429, "shed"),
    ForbiddenError: (403, "refused"),
    NotOfferedError: (501, "refused"),
    WithheldError: (422, "withheld"),
    PredictionError: (500, "error"),
}


_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class ErrorReply(BaseModel):
    """Why there is no answer."""

    error: str


class AlarmReply(BaseModel):
    """An alarm of the drift watch that nobody has acknowledged."""

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None
    at_prediction: int
    cause: Literal["covariates", "treatment", "unclear"]


class AlarmName(BaseModel):
    """Which alarm is meant."""

    detector: Literal["share", "change", "margin", "status"]
    attribute: str | None = None


class _Uvicorn(uvicorn.Server):
    """A server among others in one process, which listens to signals for all of them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RestDoor:
    """Answers HTTP requests.

    Attributes:
        port: Where it listens.
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
                timeout_graceful_shutdown=max(1, round(config.drain_seconds)),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to answer."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                raise ServeError("the REST door does not open") from self._serving.exception()
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Finish what is being answered, and stop."""
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
        _routes(app, self)
        app.add_exception_handler(RequestError, _refused)
        app.add_exception_handler(RequestValidationError, _not_valid)
        app.add_exception_handler(HTTPException, _no_route)
        app.add_exception_handler(Exception, _failed)
        return app

    async def infer(self, request: Request, model: str, version: str) -> Response:
        """Read a call, ask the pipeline, write its answer."""
        started, outcome = time.perf_counter(), "error"
        try:
            body = await _body(request, self._config.max_message_bytes)
            call, binary, by_default = read_call(body, request.headers.get(HEADER), model, version)
            answer = await self._pipeline.infer(call)
            served = self._pipeline.model
            written, split = write_answer(
                answer, served.name, served.version, binary, by_default=by_default
            )
            outcome = "ok"
        except RequestError as refusal:
            outcome = STATUSES[type(refusal)][1]
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ClientDisconnect:
            # Nobody is there to read it.
            outcome = "cancelled"
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - the door's one catch-all
            return await _failed(request, error)
        finally:
            if self._metrics is not None:
                self._metrics.count_request("rest", outcome, time.perf_counter() - started)
        if split is None:
            return Response(written, media_type="application/json")
        headers = {HEADER: str(split)}
        return Response(written, headers=headers, media_type="application/octet-stream")

    def model_metadata(self, model: str, version: str) -> dict[str, Any]:
        """What the protocol says of a model."""
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
        """Whether the sidecar, or a model of it, answers; 503 where it does not."""
        if model is not None:
            self._pipeline.check_model(model, version)
        ready = self._pipeline.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    def metrics(self, accept: str) -> Response:
        """What Prometheus scrapes."""
        if self._metrics is None:
            raise UnknownModelError("metrics are switched off")
        self._stream.settle()
        self._metrics.settle()
        encode, media_type = choose_encoder(accept)
        return Response(encode(self._metrics.registry), media_type=media_type)

    def alarms(self) -> list[AlarmReply]:
        """Alarms that nobody has acknowledged."""
        return [_alarm(found) for found in self._stream.alarms]

    def acknowledge(self, request: Request, name: AlarmName) -> list[AlarmReply]:
        """Take an alarm down, for those who are on this machine."""
        if request.client is None or not _is_loopback(request.client.host):
            raise ForbiddenError(
                "alarms are acknowledged from the sidecar's own machine: use kubectl port-forward"
            )
        self._stream.acknowledge(Watcher(name.detector, name.attribute))
        return self.alarms()


ModelName = Annotated[str, Path(description="Name of the model.")]
Version = Annotated[str, Path(description="Its version.")]


def _routes(app: FastAPI, door: RestDoor) -> None:
    """Every route, and what it calls."""
    refusals: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorReply, "description": words}
        for code, words in (
            (400, "Malformed"),
            (404, "Unknown model or version"),
            (413, "Too large"),
            (422, "Withheld by policy"),
            (429, "Overloaded"),
            (500, "The classifier or the sidecar fails"),
            (503, "Not ready"),
        )
    }
    unknown: dict[int | str, Any] = {404: refusals[404]}
    body = {"required": True, "content": {"application/json": {"schema": _schema()}}}
    infer: dict[str, Any] = {
        "responses": {200: {"model": InferReply, "content": _BINARY}, **refusals},
        "openapi_extra": {"requestBody": body},
        "tags": ["inference"],
    }

    @app.post("/v2/models/{model}/infer", summary="Ask the model", **infer)
    async def infer_model(request: Request, model: ModelName) -> Response:
        return await door.infer(request, model, "")

    @app.post("/v2/models/{model}/versions/{version}/infer", summary="Ask a version", **infer)
    async def infer_version(request: Request, model: ModelName, version: Version) -> Response:
        return await door.infer(request, model, version)

    _metadata_routes(app, door, unknown, refusals[503])
    _own_routes(app, door, refusals)


def _metadata_routes(
    app: FastAPI, door: RestDoor, unknown: dict[int | str, Any], not_ready: dict[str, Any]
) -> None:
    tags: list[Any] = ["inference"]
    maybe: dict[int | str, Any] = {**unknown, 503: {"description": not_ready["description"]}}

    @app.get("/v2", summary="Who answers here", tags=tags)
    async def server_metadata() -> dict[str, Any]:
        return {"name": NAME, "version": server_version(), "extensions": list(EXTENSIONS)}

    @app.get("/v2/health/live", summary="Is the process up?", tags=tags)
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Can the model be asked?", tags=tags, responses=maybe)
    async def ready() -> Response:
        return door.ready()

    @app.get("/v2/models/{model}", summary="Its tensors", tags=tags, responses=unknown)
    async def model_metadata(model: ModelName) -> dict[str, Any]:
        return door.model_metadata(model, "")

    @app.get("/v2/models/{model}/versions/{version}", tags=tags, responses=unknown)
    async def version_metadata(model: ModelName, version: Version) -> dict[str, Any]:
        return door.model_metadata(model, version)

    @app.get("/v2/models/{model}/ready", tags=tags, responses=maybe)
    async def model_ready(model: ModelName) -> Response:
        return door.ready(model)

    @app.get("/v2/models/{model}/versions/{version}/ready", tags=tags, responses=maybe)
    async def version_ready(model: ModelName, version: Version) -> Response:
        return door.ready(model, version)


def _own_routes(app: FastAPI, door: RestDoor, refusals: dict[int | str, Any]) -> None:
    tags: list[Any] = ["monitoring"]

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        return door.metrics(request.headers.get("Accept", ""))

    @app.get("/v1/alarms", summary="Alarms of the drift watch", tags=tags)
    async def alarms() -> list[AlarmReply]:
        return door.alarms()

    @app.post(
        "/v1/alarms/acknowledge",
        summary="Acknowledge an alarm, from the sidecar's own machine",
        tags=tags,
        responses={400: refusals[400], 404: refusals[404], 403: {"model": ErrorReply}},
    )
    async def acknowledge(request: Request, name: AlarmName) -> list[AlarmReply]:
        return door.acknowledge(request, name)


def _schema() -> dict[str, Any]:
    """The schema of a request's body in one piece, since nothing else refers to its parts."""
    schema = InferBody.model_json_schema()
    parts = schema.pop("$defs")

    def whole(found: Any) -> Any:
        if isinstance(found, dict):
            if "$ref" in found:
                return whole(parts[found["$ref"].rpartition("/")[2]])
            return {key: whole(value) for key, value in found.items()}
        return [whole(value) for value in found] if isinstance(found, list) else found

    inlined: dict[str, Any] = whole(schema)
    return inlined


async def _body(request: Request, most: int) -> bytes:
    """A request's body, read no further than it may be long."""
    told = f"the request is larger than {most} bytes"
    length = request.headers.get("Content-Length", "0")
    if length.isdigit() and int(length) > most:
        raise TooLargeError(told)
    parts, size = [], 0
    chunks: AsyncIterator[bytes] = request.stream()
    async for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise TooLargeError(told)
        parts.append(chunk)
    return unpacked(b"".join(parts), request.headers.get("Content-Encoding", ""), most)


def _bound(config: ServerConfig) -> socket.socket:
    """A socket that listens where the config says."""
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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _alarm(found: Alarm) -> AlarmReply:
    return AlarmReply(
        detector=found.watcher.kind,
        attribute=found.watcher.attribute,
        at_prediction=found.at,
        cause=found.cause,
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse({"error": str(error)}, STATUSES[type(error)][0])


async def _not_valid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    place = ".".join(str(part)[:60] for part in problem["loc"])
    return JSONResponse({"error": f"{place}: {problem['msg'].lower()}"}, 400)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


async def _failed(_: Request, error: Exception) -> Response:
    _LOG.error("a request failed: %s", told_without_values(error))
    return JSONResponse({"error": "internal error"}, 500)
