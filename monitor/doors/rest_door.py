"""The REST door: the Open Inference Protocol over HTTP, metrics, alarms, and pages about itself."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from prometheus_client.exposition import choose_encoder
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from monitor.doors.alarm_messages import AlarmName, AlarmReply, alarm_reply
from monitor.doors.outcome_messages import OutcomesBody, OutcomesReply
from monitor.doors.rest_messages import (
    HEADER,
    problem_in_words,
    read_call,
    unpacked,
    write_answer,
)
from monitor.doors.rest_routes import add_routes
from monitor.drift import Watcher
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
from monitor.metadata import ModelCard, server_version
from monitor.metrics import ServingMetrics
from monitor.pipeline import Pipeline
from monitor.settings import ServerConfig
from monitor.stream import Stream
from monitor.traffic.outcome import Outcome

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


# A mesh hands requests of others on from further addresses of the loopback range.
_LOCAL = ("127.0.0.1", "::1")
_LONGEST_NAME = 4096


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
                # Who is at the other end is not for the other end to say.
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, round(config.max_wait_seconds)),
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
        add_routes(app, self)
        app.add_exception_handler(RequestError, _refused)
        app.add_exception_handler(RequestValidationError, _not_valid)
        app.add_exception_handler(HTTPException, _no_route)
        app.add_exception_handler(Exception, _failed)
        return app

    async def infer(self, request: Request, model: str, version: str) -> Response:
        """Read a call, ask the pipeline, write its answer."""
        started, outcome = time.perf_counter(), "error"
        try:
            self._pipeline.check_load()
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
        return [alarm_reply(found) for found in self._stream.alarms]

    async def record_outcomes(self, request: Request) -> OutcomesReply:
        """Write down what became of predictions."""
        body = await _body(request, self._config.max_message_bytes)

        def read() -> list[Outcome]:
            try:
                return OutcomesBody.model_validate_json(body).read
            except ValidationError as error:
                raise BadRequestError(problem_in_words(error)) from None

        recorded, refusals = await self._pipeline.record_outcomes(read, "rest")
        return OutcomesReply.of(recorded, refusals)

    async def acknowledge(self, request: Request) -> list[AlarmReply]:
        """Take an alarm down, for those who are on this machine."""
        local = request.client is not None and request.client.host in _LOCAL
        if not local or self._config.acknowledge == "never":
            raise ForbiddenError(
                "alarms are acknowledged from the sidecar's own machine: use kubectl port-forward"
            )
        try:
            name = AlarmName.model_validate_json(await _body(request, _LONGEST_NAME))
        except ValidationError as error:
            raise BadRequestError(problem_in_words(error)) from None
        self._stream.acknowledge(Watcher(name.detector, name.attribute))
        return self.alarms()


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
    return unpacked(b"".join(parts), request.headers.get("Content-Encoding", "").lower(), most)


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
