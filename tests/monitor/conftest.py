"""One fitted bundle, and one log of a sidecar, for all tests of the monitor."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from monitor import FitData, fit
from monitor.server import Server
from tests.families import seeded
from tests.serving import PEOPLE, SPEC, served
from tests.sidecar_log import REQUESTS, Logged, send_outcomes, send_requests


@pytest.fixture(scope="session")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle without compiled code, of two protected attributes."""
    path = tmp_path_factory.mktemp("lending") / "bundle"
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fit(seeded("MLP"), data, SPEC, path, compiled=False)
    return path


@pytest.fixture(scope="session")
def _recorded_log(lending: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    home = tmp_path_factory.mktemp("recorded")
    log, outcomes = home / "log", home / "outcomes"

    async def use(server: Server) -> dict[str, np.ndarray]:
        scores = await send_requests(server)
        known = [
            {"request_id": f"person-{n}", "label": n % 2, "groups": {"sex": "woman"}}
            for n in range(0, REQUESTS, 2)
        ]
        assert (await send_outcomes(server, known)).json() == {
            "recorded": REQUESTS // 2,
            "refusals": [],
        }
        return scores

    scores = served(lending, use, traffic={"path": log}, outcomes={"path": outcomes})
    return Logged(log, outcomes, scores)


@pytest.fixture
def logged(_recorded_log: Logged, tmp_path: Path) -> Logged:
    """A copy of a log that a sidecar wrote, with outcomes; a test may change it."""
    log, outcomes = tmp_path / "log", tmp_path / "outcomes"
    shutil.copytree(_recorded_log.log, log)
    shutil.copytree(_recorded_log.outcomes, outcomes)
    return Logged(log, outcomes, _recorded_log.scores)
