"""Options and fixtures that every test may use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from monitor import write_bundle
from tests.bundles import exported_classifier, small_spec

# Small tensors gain nothing from threads, and wait for them on a busy machine.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-components",
        action="store_true",
        help="fail, instead of skipping, where a component that a test needs cannot be had",
    )


@pytest.fixture
def lacking(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Skip the test for want of a component, or fail it under --require-components."""
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
    """A sound bundle of four files that the test may spoil."""
    return shutil.copytree(_pristine_bundle, tmp_path / "bundle")
