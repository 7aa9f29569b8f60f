"""The routes of the REST transport, and their OpenAPI descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from pydantic import BaseModel

from monitor.metadata import EXTENSIONS, NAME, server_version
from monitor.transport.outcome_messages import OutcomesBody, OutcomesReply
from monitor.transport.rest_messages import AlarmName, AlarmReply, InferBody, InferReply

if TYPE_CHECKING:
    from monitor.transport.rest_server import RestTransport

__all__ = ["add_routes"]

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class ErrorReply(BaseModel):
    """Why a request was refused."""

    error: str


ModelName = Annotated[str, Path(description="Name of the model.")]
Version = Annotated[str, Path(description="Version of the model.")]


def add_routes(app: FastAPI, rest: RestTransport) -> None:
    """Add every route to the app."""
    refusals: dict[int | str, dict[str, Any]] = {
        code: {"model": ErrorReply, "description": words}
        for code, words in (
            (400, "Malformed request"),
            (404, "Unknown model or version"),
            (413, "Too large"),
            (422, "Withheld by policy"),
            (429, "Overloaded"),
            (500, "The classifier or the sidecar failed"),
            (503, "Not ready"),
        )
    }
    unknown: dict[int | str, Any] = {404: refusals[404]}
    infer: dict[str, Any] = {
        "responses": {200: {"model": InferReply, "content": _BINARY}, **refusals},
        "openapi_extra": {"requestBody": _json_body(InferBody)},
        "tags": ["inference"],
    }

    @app.post("/v2/models/{model}/infer", summary="Predict", **infer)
    async def infer_model(request: Request, model: ModelName) -> Response:
        return await rest.infer(request, model, "")

    @app.post(
        "/v2/models/{model}/versions/{version}/infer", summary="Predict with a version", **infer
    )
    async def infer_version(request: Request, model: ModelName, version: Version) -> Response:
        return await rest.infer(request, model, version)

    _metadata_routes(app, rest, unknown, refusals[503])
    _own_routes(app, rest, refusals)


def _metadata_routes(
    app: FastAPI, rest: RestTransport, unknown: dict[int | str, Any], not_ready: dict[str, Any]
) -> None:
    tags: list[Any] = ["inference"]
    maybe: dict[int | str, Any] = {**unknown, 503: {"description": not_ready["description"]}}

    @app.get("/v2", summary="Server metadata", tags=tags)
    async def server_metadata() -> dict[str, Any]:
        return {"name": NAME, "version": server_version(), "extensions": list(EXTENSIONS)}

    @app.get("/v2/health/live", summary="Liveness", tags=tags)
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/livez", include_in_schema=False)
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Readiness", tags=tags, responses=maybe)
    async def ready() -> Response:
        return rest.ready()

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        return rest.ready()

    @app.get("/v2/models/{model}", summary="Model metadata", tags=tags, responses=unknown)
    async def model_metadata(model: ModelName) -> dict[str, Any]:
        return rest.model_metadata(model, "")

    @app.get("/v2/models/{model}/versions/{version}", tags=tags, responses=unknown)
    async def version_metadata(model: ModelName, version: Version) -> dict[str, Any]:
        return rest.model_metadata(model, version)

    @app.get("/v2/models/{model}/ready", tags=tags, responses=maybe)
    async def model_ready(model: ModelName) -> Response:
        return rest.ready(model)

    @app.get("/v2/models/{model}/versions/{version}/ready", tags=tags, responses=maybe)
    async def version_ready(model: ModelName, version: Version) -> Response:
        return rest.ready(model, version)


def _own_routes(app: FastAPI, rest: RestTransport, refusals: dict[int | str, Any]) -> None:
    tags: list[Any] = ["monitoring"]

    @app.get("/metrics", include_in_schema=False)
    async def metrics(request: Request) -> Response:
        return rest.metrics(request.headers.get("Accept", ""))

    @app.post(
        "/v1/outcomes",
        summary="Record outcomes of predictions",
        tags=tags,
        responses={
            **{code: refusals[code] for code in (400, 413, 429, 503)},
            501: {"model": ErrorReply, "description": "This sidecar records no outcomes"},
        },
        openapi_extra={"requestBody": _json_body(OutcomesBody)},
    )
    async def outcomes(request: Request) -> OutcomesReply:
        return await rest.record_outcomes(request)

    @app.get("/v1/alarms", summary="Unacknowledged alarms of the drift watch", tags=tags)
    async def alarms() -> list[AlarmReply]:
        return rest.alarms()

    @app.post(
        "/v1/alarms/acknowledge",
        summary="Acknowledge an alarm, from the sidecar's own machine",
        tags=tags,
        responses={
            **{code: refusals[code] for code in (400, 404, 413)},
            403: {"model": ErrorReply, "description": "Request from another machine"},
        },
        openapi_extra={"requestBody": _json_body(AlarmName)},
    )
    async def acknowledge(request: Request) -> list[AlarmReply]:
        return await rest.acknowledge(request)


def _json_body(model: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI description of a body that the route parses itself, with references resolved."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(schema_part: Any) -> Any:
        if isinstance(schema_part, dict):
            if "$ref" in schema_part:
                return whole(parts[schema_part["$ref"].rpartition("/")[2]])
            return {key: whole(value) for key, value in schema_part.items()}
        return (
            [whole(value) for value in schema_part]
            if isinstance(schema_part, list)
            else schema_part
        )

    return {"required": True, "content": {"application/json": {"schema": whole(schema)}}}
