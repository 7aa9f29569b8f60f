"""An audit asks a real sidecar for decisions, which may withhold some, be killed and come back."""

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

# By how much a score may differ between batches: no more than rounding of float32 explains.
_ROUNDING = 2e-5
# The same people again and again are a change that the drift watch would rightly tell of.
QUIET = {"drift": {"enabled": False}}


def endpoint(address: str, **options: Any) -> AuditedModel:
    options = {"class_names": ("refused", "granted"), **options}
    return AuditedModel.from_endpoint(address, model=MODEL, version=VERSION, **options)


@pytest.fixture(scope="module")
def manifest(fitted: Fitted) -> Manifest:
    return Bundle.read(fitted.path).manifest


@pytest.fixture(scope="module")
def people(fitted: Fitted) -> NDArray[np.float32]:
    """Rows of whom none is within rounding of the bound, where both decisions are right."""
    margins = fitted.judge.scores(torch.from_numpy(fitted.rows)).signed_margin.numpy()
    sure = np.abs(margins) > _ROUNDING
    assert sure.mean() > 0.99
    return fitted.rows[sure]


@pytest.fixture(scope="module")
def decided(fitted: Fitted, people: NDArray[np.float32]) -> NDArray[np.int8]:
    """What the bundle decides of them."""
    return AuditedModel.of(fitted.path).decide(people)


@pytest.mark.parametrize("how", ["names", "scores"])
def test_the_endpoint_decides_as_the_bundle_does(serving, people, manifest, decided, how):
    told = {"manifest": manifest} if how == "names" else {"threshold": 0.5, "output": "logit"}
    model = endpoint(serving.grpc, class_names=None, **told)
    found = model.decide(people[:5_000])
    np.testing.assert_array_equal(found, decided[:5_000])
    assert 0.1 < found.mean() < 0.9
    assert model.warnings == ()


def test_rows_that_the_sidecar_refuses_are_reported(serving, people, decided):
    rows, bad = people[:3_000].copy(), [0, 1_234, 2_999]
    rows[bad, 3] = np.nan
    model = endpoint(serving.grpc)
    found = model.decide(rows)
    assert np.flatnonzero(found == -1).tolist() == bad
    np.testing.assert_array_equal(np.delete(found, bad), np.delete(decided[:3_000], bad))
    assert model.warnings == (
        "3 rows got no decision: the model failed on them (INVALID_ARGUMENT)",
    )


def test_an_unknown_model_is_an_error_at_once(serving, people):
    model = AuditedModel.from_endpoint(serving.grpc, model="gone", class_names=("a", "b"))
    with pytest.raises(ModelFailedError, match="NOT_FOUND; does it serve model 'gone'"):
        model.decide(people)


@contextmanager
def begun(fitted: Fitted, folder: Path, grpc_port: int, rest_port: int) -> Iterator[Sidecar]:
    """A sidecar that may not answer yet, and may be killed."""
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
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        return one.getsockname()[1], two.getsockname()[1]


def test_an_audit_continues_after_the_sidecar_was_killed(fitted, people, tmp_path, decided):
    """Another run asks for the rest only, and waits for a sidecar that has yet to start."""
    rows, ports, told = people[:4_000], free_ports(), []
    options: dict[str, Any] = {"cache": tmp_path / "cache", "batch_rows": 500, "retries": 50}
    with begun(fitted, tmp_path / "first", *ports) as first:

        def kill(done: int, in_all: int) -> None:
            if done >= 1_500:
                first.process.kill()
                first.process.wait()

        endpoint(first.grpc, **options, patience=60.0).decide(rows[:500])
        impatient = endpoint(first.grpc, **options, patience=2.0)
        with pytest.raises(ModelUnreachableError, match=r"UNAVAILABLE.* 1,500 of 4,000 rows are"):
            impatient.decide(rows, progress=kill)
    with begun(fitted, tmp_path / "second", *ports) as second:
        model = endpoint(second.grpc, **options, patience=60.0)
        found = model.decide(rows, progress=lambda *at: told.append(at))
        assert second.metric("evenhand_predictions_total") == 2_500
    np.testing.assert_array_equal(found, decided[:4_000])
    assert model.warnings == ()
    assert told == [(done, 4_000) for done in range(1_500, 4_001, 500)]
    # Nobody answers any more, and nobody has to.
    later = endpoint(second.grpc, **options, patience=0.0)
    np.testing.assert_array_equal(later.decide(rows), decided[:4_000])


@pytest.mark.parametrize("form", ["masked", "fallback", "error"])
def test_withheld_predictions_are_not_decisions(fitted, people, tmp_path, decided, form):
    policy = {"action": "withhold", "alpha": 0.2, "withheld": form}
    if form == "fallback":
        policy["fallback"] = 0.25
    rows = people[: 300 if form == "error" else 3_000]
    with sidecar(fitted, tmp_path, {**QUIET, "policy": policy}) as serving:
        model = endpoint(serving.grpc)
        found = model.decide(rows)
        held = int(serving.metric('evenhand_actions_total{action="withhold"}'))
    lost = found == -1
    assert 0.05 < lost.mean() < 0.95
    np.testing.assert_array_equal(found[~lost], decided[: len(rows)][~lost])
    assert model.failures.withheld == model.failures.undecided == lost.sum()
    assert model.warnings == (f"{lost.sum():,} rows got no decision: policy withheld them",)
    if form != "error":
        assert held == lost.sum()
