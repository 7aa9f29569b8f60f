"""Requests and outcomes sent to a sidecar, for tests that read or change its log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from monitor import AsyncClient
from monitor.server import Server
from tests.serving import PEOPLE

REQUESTS = 60


class Logged(NamedTuple):
    """Directories of a log and its outcomes, and the returned scores by request id."""

    log: Path
    outcomes: Path
    scores: dict[str, np.ndarray]


def rows_of(number: int) -> np.ndarray:
    """Features of the request of that number: one to three rows."""
    return PEOPLE.features[3 * number : 3 * number + 1 + number % 3]


async def send_requests(server: Server, count: int = REQUESTS) -> dict[str, np.ndarray]:
    """Scores by request id, of concurrent requests."""
    async with AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client:
        responses = await asyncio.gather(
            *(client.predict(rows_of(n), request_id=f"person-{n}") for n in range(count))
        )
    return {response.request_id: response.output for response in responses}


async def send_outcomes(server: Server, outcomes: list[dict[str, object]]) -> httpx.Response:
    """Send outcomes over REST."""
    address = f"http://127.0.0.1:{server.rest.port}/v1/outcomes"
    async with httpx.AsyncClient(trust_env=False) as http:
        return await http.post(address, json={"outcomes": outcomes})
