"""Verdicts over the wire equal the library's, for both transports and all batch sizes."""

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

# Tolerance of scores between batches: float32 rounding.
_ROUNDING = 2e-5
# Flip probability of a likely flip, by default.
_LIKELY = 0.5


class Expected:
    """Results of the library for all rows."""

    def __init__(self, fitted) -> None:
        judge = fitted.judge
        scores = judge.scores(torch.from_numpy(fitted.rows))
        self.score = scores.logit.numpy()
        self.decision = np.where(scores.decision.numpy(), "granted", "refused")
        # Within rounding of the threshold, both results are accepted.
        self.unambiguous = np.abs(scores.signed_margin.numpy()) > _ROUNDING
        verdicts, p_values, unambiguous = [], [], []
        for name, (signal, alpha) in RULES.items():
            p_values.append(judge.p_values(scores, name, signal=signal))
            flips = scores.attributes[name].flip_probability.numpy()
            above = (p_values[-1] <= alpha) | (flips >= _LIKELY)
            known = scores.unlike.numpy() == 0
            verdicts.append(np.where(known, np.where(above, "above", "within"), "unknown"))
            values = signal_values(scores.attributes[name])[signal]
            shifted = [
                judge.baseline.p_values(name, signal, values + sign * _ROUNDING * scale) <= alpha
                for scale in [1 + np.abs(values)]
                for sign in (-1, 1)
            ]
            near = np.abs(flips - _LIKELY) <= _ROUNDING
            unambiguous.append((shifted[0] == shifted[1]) & ~near)
        self.verdict = np.array(verdicts).T
        self.p_value = np.array(p_values).T
        self.unambiguous_verdict = np.array(unambiguous).T


@pytest.fixture(scope="module")
def expected(fitted) -> Expected:
    library = Expected(fitted)
    # Nearly all verdicts are unambiguous, and both verdicts of both attributes are common.
    assert library.unambiguous_verdict.mean() > 0.995
    shares = (library.verdict == "above").mean(0)
    assert (shares > 0.05).all()
    assert (shares < 0.7).all()
    return library


def check(expected: Expected, responses: Iterable[tuple[slice, Outputs]]) -> int:
    """Compare responses with the library's results; return their number of rows."""
    rows = 0
    for at, outputs in responses:
        count = at.stop - at.start
        rows += count
        np.testing.assert_allclose(
            outputs["score"].ravel(), expected.score[at], rtol=1e-5, atol=1e-5
        )
        unambiguous = expected.unambiguous_verdict[at]
        verdict = outputs["verdict"].reshape(count, len(RULES))
        assert (verdict == expected.verdict[at])[unambiguous].all()
        p_value = outputs["p_value"].reshape(count, len(RULES))
        # Rounding can change the rank among the baseline's 800 rows by one or two.
        np.testing.assert_allclose(p_value, expected.p_value[at], atol=3 / 800)
        assert (outputs["decision"].ravel() == expected.decision[at])[
            expected.unambiguous[at]
        ].all()
    return rows


def decode_outputs(response: wire.ModelInferResponse) -> Outputs:
    """The outputs of a raw response, flat."""
    outputs = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        if output.datatype == "BYTES":
            texts, offset = [], 0
            while offset < len(raw):
                end = offset + 4 + int.from_bytes(raw[offset : offset + 4], "little")
                texts.append(raw[offset + 4 : end].decode())
                offset = end
            outputs[output.name] = np.array(texts)
        else:
            outputs[output.name] = np.frombuffer(
                raw, {"FP32": "<f4", "FP64": "<f8"}[output.datatype]
            )
    return outputs


def parts(total: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


async def infer_by_grpc(
    address: str, rows: NDArray[np.float32], size: int
) -> list[tuple[slice, Outputs]]:
    """Send all rows in requests of `size` rows, 64 requests at a time."""
    slices = parts(len(rows), size)
    responses = []

    async def work(call) -> None:
        for at in slices:
            data = await call(request_of(rows[at], *OUTPUTS).SerializeToString(), timeout=60)
            responses.append((at, decode_outputs(wire.ModelInferResponse.FromString(data))))

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        await asyncio.gather(*(work(call) for _ in range(_CONCURRENT)))
    return responses


@pytest.mark.parametrize("size", [1, 7, 256, 3_000], ids="{} rows a request".format)
def test_grpc_verdicts_equal_the_librarys(serving, fitted, expected, size):
    responses = asyncio.run(infer_by_grpc(serving.grpc, fitted.rows, size))
    assert check(expected, responses) == len(fitted.rows)


def infer_by_rest(
    url: str, rows: NDArray[np.float32], size: int
) -> Iterator[tuple[slice, Outputs]]:
    with httpx.Client() as client:
        for at in parts(len(rows), size):
            tensor = {
                "name": "features",
                "datatype": "FP32",
                "shape": list(rows[at].shape),
                "data": rows[at].tolist(),
            }
            requested = [{"name": name} for name in OUTPUTS]
            response = client.post(url, json={"inputs": [tensor], "outputs": requested})
            assert response.status_code == 200, response.text
            # JSON has null for NaN.
            kinds = {"BYTES": None, "FP32": float, "FP64": float}
            yield (
                at,
                {
                    o["name"]: np.array(o["data"], kinds[o["datatype"]])
                    for o in response.json()["outputs"]
                },
            )


@pytest.mark.parametrize(("size", "count"), [(1, 500), (1_000, 10_000)])
def test_rest_verdicts_equal_the_librarys(serving, fitted, expected, size, count):
    responses = infer_by_rest(serving.infer_url, fitted.rows[:count], size)
    assert check(expected, responses) == count
