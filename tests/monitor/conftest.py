"""One fitted bundle for all tests of the sidecar."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.fit.data import FitData
from monitor.fit.run import fit
from tests.families import seeded
from tests.serving import PEOPLE, SPEC


@pytest.fixture(scope="session")
def lending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle without compiled code, of two protected attributes."""
    path = tmp_path_factory.mktemp("lending") / "bundle"
    data = FitData(features=PEOPLE.features, groups=PEOPLE.groups)
    fit(seeded("MLP"), data, SPEC, path, compiled=False)
    return path
