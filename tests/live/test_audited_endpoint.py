"""An audit requests decisions from a real sidecar that may withhold some, or be restarted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monitor import Bundle, Manifest
from offline_audit import AuditedModel
from offline_audit.errors import ModelFailedError, ModelUnreachableError
from tests.live.sidecar import MODEL, VERSION, Fitted, Sidecar, sidecar, start

pytestmark = pytest.mark.live

# Tolerance of scores between batches: float32 rounding.
_ROUNDING = 2e-5
# Repeated rows would raise a drift alarm.
QUIET = {"drift": {"enabled": False}}


def endpoint(address: str, **options: Any) -> AuditedModel:
    options = {"class_names": ("refused", "granted"), **options}
    return AuditedModel.from_endpoint(address, model=MODEL, version=VERSION, **options)


@pytest.fixture(scope="module")
def manifest(fitted: Fitted) -> Manifest:
    return Bundle.read(fitted.path).manifest


@pytest.fixture(scope="module")
def people(fitted: Fitted) -> NDArray[np.float32]:
    """Rows farther from the decision threshold than the rounding error."""
    margins = fitted.judge.scores(torch.from_numpy(fitted.rows)).signed_margin.numpy()
    unambiguous = np.abs(margins) > _ROUNDING
    assert unambiguous.mean() > 0.99
    return fitted.rows[unambiguous]


@pytest.fixture(scope="module")
def expected(fitted: Fitted, people: NDArray[np.float32]) -> NDArray[np.int8]:
    """Decisions of the bundle on these rows."""
    return AuditedModel.of(fitted.path).decide(people)


@pytest.mark.parametrize("rule", ["names", "scores"])
def test_the_endpoint_decides_as_the_bundle_does(serving, people, manifest, expected, rule):
    options = {"manifest": manifest} if rule == "names" else {"threshold": 0.5, "output": "logit"}
    model = endpoint(serving.grpc, class_names=None, **options)
    decisions = model.decide(people[:5_000])
    np.testing.assert_array_equal(decisions, expected[:5_000])
    assert 0.1 < decisions.mean() < 0.9
    assert model.warnings == ()


def test_rows_that_the_sidecar_rejects_are_reported(serving, people, expected):
    rows, bad = people[:3_000].copy(), [0, 1_234, 2_999]
    rows[bad, 3] = np.nan
    model = endpoint(serving.grpc)
    decisions = model.decide(rows)
    assert np.flatnonzero(decisions == -1).tolist() == bad
    np.testing.assert_array_equal(np.delete(decisions, bad), np.delete(expected[:3_000], bad))
    assert model.warnings == (
        "3 rows got no decision: the model failed on them (INVALID_ARGUMENT)",
    )


def test_an_unknown_model_raises_immediately(serving, people):
    model = AuditedModel.from_endpoint(serving.grpc, model="gone", class_names=("a", "b"))
    with pytest.raises(ModelFailedError, match="NOT_FOUND; check that it serves model 'gone'"):
        model.decide(people)


@contextmanager
def started_sidecar(
    fitted: Fitted, folder: Path, grpc_port: int, rest_port: int
) -> Iterator[Sidecar]:
    """Start a sidecar without waiting until it is ready; kill it at the end."""
    process, out, err = start(fitted, folder, QUIET, grpc_port=grpc_port, rest_port=rest_port)
    try:
        yield Sidecar(
            process=process,
            grpc=f"127.0.0.1:{grpc_port}",
            url=f"http://127.0.0.1:{rest_port}",
            out=out,
            err=err,
        )
    finally:
        process.kill()
        process.wait()


def free_ports() -> tuple[int, int]:
    with (
        socket.create_server(("127.0.0.1", 0)) as first_socket,
        socket.create_server(("127.0.0.1", 0)) as second_socket,
    ):
        return first_socket.getsockname()[1], second_socket.getsockname()[1]


def test_an_audit_continues_after_the_sidecar_was_killed(fitted, people, tmp_path, expected):
    """A second run requests only the remaining rows, and waits until the sidecar has started."""
    rows, ports, reports = people[:4_000], free_ports(), []
    options: dict[str, Any] = {"cache": tmp_path / "cache", "batch_rows": 500, "retries": 50}
    with started_sidecar(fitted, tmp_path / "first", *ports) as first:

        def kill(done: int, total: int) -> None:
            if done >= 1_500:
                first.process.kill()
                first.process.wait()

        endpoint(first.grpc, **options, patience=60.0).decide(rows[:500])
        impatient = endpoint(first.grpc, **options, patience=2.0)
        with pytest.raises(ModelUnreachableError, match=r"UNAVAILABLE.* 1,500 of 4,000 rows are"):
            impatient.decide(rows, progress=kill)
    with started_sidecar(fitted, tmp_path / "second", *ports) as second:
        model = endpoint(second.grpc, **options, patience=60.0)
        decisions = model.decide(rows, progress=lambda *at: reports.append(at))
        assert second.metric("evenhand_predictions_total") == 2_500
    np.testing.assert_array_equal(decisions, expected[:4_000])
    assert model.warnings == ()
    assert reports == [(done, 4_000) for done in range(1_500, 4_001, 500)]
    # All decisions are cached, so no sidecar is needed.
    later = endpoint(second.grpc, **options, patience=0.0)
    np.testing.assert_array_equal(later.decide(rows), expected[:4_000])


@pytest.mark.parametrize("form", ["masked", "fallback", "error"])
def test_withheld_predictions_are_not_decisions(fitted, people, tmp_path, expected, form):
    policy = {"action": "withhold", "alpha": 0.2, "withheld": form}
    if form == "fallback":
        policy["fallback"] = 0.25
    rows = people[: 300 if form == "error" else 3_000]
    with sidecar(fitted, tmp_path, {**QUIET, "policy": policy}) as serving:
        model = endpoint(serving.grpc)
        decisions = model.decide(rows)
        n_withheld = int(serving.metric('evenhand_actions_total{action="withhold"}'))
    undecided = decisions == -1
    assert 0.05 < undecided.mean() < 0.95
    np.testing.assert_array_equal(decisions[~undecided], expected[: len(rows)][~undecided])
    assert model.failures.withheld == model.failures.undecided == undecided.sum()
    assert model.warnings == (f"{undecided.sum():,} rows got no decision: policy withheld them",)
    if form != "error":
        assert n_withheld == undecided.sum()
