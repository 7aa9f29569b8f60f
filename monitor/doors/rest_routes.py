"""The routes of the REST door, and what OpenAPI says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from pydantic import BaseModel

from monitor.doors.alarm_messages import AlarmName, AlarmReply
from monitor.doors.outcome_messages import OutcomesBody, OutcomesReply
from monitor.doors.rest_messages import InferBody, InferReply
from monitor.metadata import EXTENSIONS, NAME, server_version

if TYPE_CHECKING:
    from monitor.doors.rest_door import RestDoor

__all__ = ["add_routes"]

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class ErrorReply(BaseModel):
    """Why there is no answer."""

    error: str


ModelName = Annotated[str, Path(description="Name of the model.")]
Version = Annotated[str, Path(description="Its version.")]


def add_routes(app: FastAPI, door: RestDoor) -> None:
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
    infer: dict[str, Any] = {
        "responses": {200: {"model": InferReply, "content": _BINARY}, **refusals},
        "openapi_extra": {"requestBody": _json_body(InferBody)},
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

    @app.post(
        "/v1/outcomes",
        summary="Tell what became of predictions",
        tags=tags,
        responses={
            **{code: refusals[code] for code in (400, 413, 429, 503)},
            501: {"model": ErrorReply, "description": "This sidecar keeps no outcomes"},
        },
        openapi_extra={"requestBody": _json_body(OutcomesBody)},
    )
    async def outcomes(request: Request) -> OutcomesReply:
        return await door.record_outcomes(request)

    @app.get("/v1/alarms", summary="Alarms of the drift watch", tags=tags)
    async def alarms() -> list[AlarmReply]:
        return door.alarms()

    @app.post(
        "/v1/alarms/acknowledge",
        summary="Acknowledge an alarm, from the sidecar's own machine",
        tags=tags,
        responses={
            **{code: refusals[code] for code in (400, 404, 413)},
            403: {"model": ErrorReply, "description": "From another machine"},
        },
        openapi_extra={"requestBody": _json_body(AlarmName)},
    )
    async def acknowledge(request: Request) -> list[AlarmReply]:
        return await door.acknowledge(request)


def _json_body(model: type[BaseModel]) -> dict[str, Any]:
    """What a body that is read by hand must be, in one piece."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(found: Any) -> Any:
        if isinstance(found, dict):
            if "$ref" in found:
                return whole(parts[found["$ref"].rpartition("/")[2]])
            return {key: whole(value) for key, value in found.items()}
        return [whole(value) for value in found] if isinstance(found, list) else found

    return {"required": True, "content": {"application/json": {"schema": whole(schema)}}}
