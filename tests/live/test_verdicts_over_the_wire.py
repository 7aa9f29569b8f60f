"""Verdicts over the wire are the library's, by whichever door and in whatever batches they come."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monitor.scoring.judge import signal_values
from monitor.wire import open_inference_pb2 as wire
from tests.live.conftest import RULES
from tests.live.sidecar import METHOD, request_of

pytestmark = pytest.mark.live

OUTPUTS = ("score", "verdict", "p_value", "decision")
_CONCURRENT = 64
Outputs = dict[str, NDArray[Any]]

# By how much a score may differ between batches: no more than rounding of float32 explains.
_ROUNDING = 2e-5


class Expected:
    """What the library says of all rows."""

    def __init__(self, fitted) -> None:
        judge = fitted.judge
        scores = judge.scores(torch.from_numpy(fitted.rows))
        self.score = scores.logit.numpy()
        self.decision = np.where(scores.decision.numpy(), "granted", "refused")
        # Of a score within rounding of the bound both verdicts are right.
        self.sure = np.abs(scores.signed_margin.numpy()) > _ROUNDING
        verdicts, p_values, sure = [], [], []
        for name, (signal, alpha) in RULES.items():
            p_values.append(judge.p_values(scores, name, signal=signal))
            verdicts.append(np.where(p_values[-1] <= alpha, "above", "within"))
            values = signal_values(scores.attributes[name])[signal]
            near = [
                judge.baseline.p_values(name, signal, values + sign * _ROUNDING * spread) <= alpha
                for spread in [1 + np.abs(values)]
                for sign in (-1, 1)
            ]
            sure.append(near[0] == near[1])
        self.verdict = np.array(verdicts).T
        self.p_value = np.array(p_values).T
        self.sure_verdict = np.array(sure).T


@pytest.fixture(scope="module")
def expected(fitted) -> Expected:
    found = Expected(fitted)
    # Nearly all are sure, and both verdicts of both attributes are common.
    assert found.sure_verdict.mean() > 0.995
    shares = (found.verdict == "above").mean(0)
    assert (shares > 0.05).all()
    assert (shares < 0.4).all()
    return found


def check(expected: Expected, answers: Iterable[tuple[slice, Outputs]]) -> int:
    """Compare answers with the library's, and count their rows."""
    rows = 0
    for at, found in answers:
        count = at.stop - at.start
        rows += count
        np.testing.assert_allclose(found["score"].ravel(), expected.score[at], rtol=1e-5, atol=1e-5)
        sure = expected.sure_verdict[at]
        verdict = found["verdict"].reshape(count, len(RULES))
        assert (verdict == expected.verdict[at])[sure].all()
        p_value = found["p_value"].reshape(count, len(RULES))
        # A rank of the baseline's 800 rows, or two, is what rounding can make.
        np.testing.assert_allclose(p_value, expected.p_value[at], atol=3 / 800)
        assert (found["decision"].ravel() == expected.decision[at])[expected.sure[at]].all()
    return rows


def by_raw(response: wire.ModelInferResponse) -> Outputs:
    """The outputs of a raw answer, flat."""
    found = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.datatype == "BYTES":
            texts, place = [], 0
            while place < len(raw):
                end = place + 4 + int.from_bytes(raw[place : place + 4], "little")
                texts.append(raw[place + 4 : end].decode())
                place = end
            found[output.name] = np.array(texts)
        else:
            found[output.name] = np.frombuffer(raw, {"FP32": "<f4", "FP64": "<f8"}[output.datatype])
    return found


def parts(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


async def ask_by_grpc(
    address: str, rows: NDArray[np.float32], size: int
) -> list[tuple[slice, Outputs]]:
    """All rows in requests of so many, with 64 under way at any time."""
    waiting = parts(len(rows), size)
    found = []

    async def work(call) -> None:
        for at in waiting:
            data = await call(request_of(rows[at], *OUTPUTS).SerializeToString(), timeout=60)
            found.append((at, by_raw(wire.ModelInferResponse.FromString(data))))

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        await asyncio.gather(*(work(call) for _ in range(_CONCURRENT)))
    return found


@pytest.mark.parametrize("size", [1, 7, 256, 3_000], ids="{} rows a request".format)
def test_grpc_verdicts_are_the_librarys(serving, fitted, expected, size):
    found = asyncio.run(ask_by_grpc(serving.grpc, fitted.rows, size))
    assert check(expected, found) == len(fitted.rows)


def ask_by_rest(url: str, rows: NDArray[np.float32], size: int) -> Iterator[tuple[slice, Outputs]]:
    with httpx.Client() as client:
        for at in parts(len(rows), size):
            tensor = {
                "name": "features",
                "datatype": "FP32",
                "shape": list(rows[at].shape),
                "data": rows[at].tolist(),
            }
            wanted = [{"name": name} for name in OUTPUTS]
            answer = client.post(url, json={"inputs": [tensor], "outputs": wanted})
            assert answer.status_code == 200, answer.text
            yield at, {o["name"]: np.array(o["data"]) for o in answer.json()["outputs"]}


@pytest.mark.parametrize(("size", "count"), [(1, 500), (1_000, 10_000)])
def test_rest_verdicts_are_the_librarys(serving, fitted, expected, size, count):
    found = ask_by_rest(serving.infer_url, fitted.rows[:count], size)
    assert check(expected, found) == count
