"""A sidecar in this process, with a small bundle of the lending world without compiled code."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from monitor import FitSpec, Model, World
from monitor.fitting.spec import Output, ProtectedColumn
from monitor.server import Server
from monitor.settings import Config

WORLD = World()
PEOPLE = WORLD.people(3_000, seed=5)
ATTRIBUTES = ("sex", "ethnicity")
NAMES = [feature.name for feature in WORLD.features]
SPEC = FitSpec(
    model=Model(name="lending", version="1"),
    classifier=Output(output="logit"),
    features=WORLD.features,
    one_hot_groups=WORLD.one_hot_groups,
    protected_attributes=tuple(
        ProtectedColumn(column=attribute.name, **attribute.model_dump())
        for attribute in WORLD.attributes
    ),
)


def without_model(metrics: str) -> str:
    """Text of `/metrics` without the label `model`, which every series of evenhand has."""
    label = 'model="lending"'
    return re.sub(rf"{{{label}}}|(?<=[{{,]){label},|,{label}(?=}})", "", metrics)


def config(bundle: Path, **parts: dict[str, Any]) -> Config:
    """A config for tests: free ports, and the sections in `parts`."""
    server = {"grpc_port": 0, "rest_port": 0, **parts.pop("server", {})}
    return Config.model_validate({"bundle": {"path": bundle}, "server": server, **parts})


@asynccontextmanager
async def running(bundle: Path, **parts: dict[str, Any]) -> AsyncIterator[Server]:
    """Run a sidecar, and stop it normally at the end."""
    server = Server(config(bundle, **parts))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def served(bundle: Path, use: Callable[[Server], Awaitable[Any]], **parts: dict[str, Any]) -> Any:
    """Start a sidecar, call `use` with it, and stop it; return the result of `use`."""

    async def run() -> Any:
        async with running(bundle, **parts) as server:
            return await use(server)

    return asyncio.run(run())
