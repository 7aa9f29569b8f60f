"""Options and fixtures that every test may use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from monitor import write_bundle
from tests.bundles import exported_classifier, small_spec

# Threads do not speed up small tensors, and they slow them down on a busy machine.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-components",
        action="store_true",
        help="fail, instead of skipping, if a component that a test needs is not available",
    )


@pytest.fixture
def skip_or_fail(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Skips a test whose component is missing; fails it under --require-components."""
    if request.config.getoption("--require-components"):
        return pytest.fail
    return pytest.skip


@pytest.fixture(scope="session")
def _pristine_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "bundle"
    extra = {"maps.npz": b"some maps", "kernel/avx2/kernel.so": b"some native code"}
    write_bundle(path, small_spec(), {"classifier.pt2": exported_classifier(), **extra})
    return path


@pytest.fixture
def bundle_path(_pristine_bundle: Path, tmp_path: Path) -> Path:
    """A valid bundle of four files, which the test may damage."""
    return shutil.copytree(_pristine_bundle, tmp_path / "bundle")
