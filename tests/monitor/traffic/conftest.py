"""A log that a sidecar wrote, with outcomes, for tests that read or change one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest

from monitor.client import AsyncClient
from monitor.server import Server
from tests.serving import PEOPLE, served

REQUESTS = 60


class Logged(NamedTuple):
    """Where a log and its outcomes are, and what clients were answered by request id."""

    log: Path
    outcomes: Path
    scores: dict[str, np.ndarray]


def rows_of(number: int) -> np.ndarray:
    """What the client sends as its request of that number: one to three people."""
    return PEOPLE.features[3 * number : 3 * number + 1 + number % 3]


async def ask(server: Server, count: int = REQUESTS) -> dict[str, np.ndarray]:
    """Scores by request id, of some requests at once."""
    async with AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client:
        found = await asyncio.gather(
            *(client.predict(rows_of(n), request_id=f"person-{n}") for n in range(count))
        )
    return {answer.request_id: answer.score for answer in found}


async def tell(server: Server, outcomes: list[dict[str, object]]) -> httpx.Response:
    """Send outcomes over REST."""
    address = f"http://127.0.0.1:{server.rest.port}/v1/outcomes"
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(address, json={"outcomes": outcomes})


@pytest.fixture(scope="session")
def _recorded(lending: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    home = tmp_path_factory.mktemp("recorded")
    log, outcomes = home / "log", home / "outcomes"

    async def use(server: Server) -> dict[str, np.ndarray]:
        scores = await ask(server)
        known = [
            {"request_id": f"person-{n}", "label": n % 2, "groups": {"sex": "woman"}}
            for n in range(0, REQUESTS, 2)
        ]
        assert (await tell(server, known)).json() == {"recorded": REQUESTS // 2, "refusals": []}
        return scores

    scores = served(lending, use, traffic={"path": log}, outcomes={"path": outcomes})
    return Logged(log, outcomes, scores)


@pytest.fixture
def logged(_recorded: Logged, tmp_path: Path) -> Logged:
    """A copy of it that a test may spoil."""
    log, outcomes = tmp_path / "log", tmp_path / "outcomes"
    shutil.copytree(_recorded.log, log)
    shutil.copytree(_recorded.outcomes, outcomes)
    return Logged(log, outcomes, _recorded.scores)
