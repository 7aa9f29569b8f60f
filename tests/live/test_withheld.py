"""The score of a withheld prediction is in no response, header, metric or log."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import httpx
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from monitor.wire import open_inference_pb2 as wire
from tests.live.sidecar import METHOD, VERSION, Fitted, Sidecar, request_of, sidecar

pytestmark = pytest.mark.live

OUTPUTS = (
    *("score", "decision", "verdict", "action", "p_value"),
    *("sensitivity", "flip_probability", "expected_change", "contributions"),
)
EVERYTHING = {"action": "withhold", "rule": "either", "alpha": 0.99, "flip_probability": 1e-9}
FORMS = {
    "masked": {**EVERYTHING, "withheld": "masked"},
    "fallback": {**EVERYTHING, "withheld": "fallback", "fallback": 0.25},
    "error": {**EVERYTHING, "withheld": "error"},
}
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
_NUMBER = re.compile(rb"[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePatterns:
    """A score in every form in which it could be written.

    Attributes:
        raw: Bytes of float32 and float64, in both byte orders.
        prefixes: Its first seven digits, with which a number could begin.
        rounded: Numbers of four digits and more that it could be rounded to.
    """

    raw: frozenset[bytes]
    prefixes: frozenset[bytes]
    rounded: frozenset[bytes]

    @classmethod
    def of(cls, logit: float) -> ScorePatterns:
        """Patterns of the logit, its probability, and the probability of the other class."""
        p = 1 / (1 + np.exp(-logit))
        values = [abs(logit), float(p), float(1 - p)]
        rounded = {
            format(value, f".{digits}{kind}").encode()
            for value in values
            for kind, least in (("g", 4), ("f", 3))
            for digits in range(least, 12)
        }
        return cls(
            raw=frozenset(
                struct.pack(f"{order}{kind}", sign * value)
                for value in values
                for sign in (1, -1)
                for order in "<>"
                for kind in "fd"
            ),
            prefixes=frozenset(repr(value)[:8].encode() for value in values),
            rounded=frozenset(text for text in rounded if len(text.strip(b"0.")) >= 4),
        )

    def matches(self, data: bytes) -> set[bytes]:
        """Patterns that occur in some bytes."""
        numbers = set(_NUMBER.findall(data))
        return {
            *(pattern for pattern in self.raw if pattern in data),
            *(number for number in numbers if number.startswith(tuple(self.prefixes))),
            *(number for number in numbers if number in self.rounded),
        }


def responses_of(
    serving: Sidecar, rows: NDArray[np.float32], outputs: tuple[str, ...]
) -> Iterator[bytes]:
    """All bytes of the responses over both transports, to raw and to listed requests."""
    request = request_of(rows, *outputs, request_id="person")
    with grpc.insecure_channel(serving.grpc) as channel:
        yield from _by_grpc(channel, request)
        request.inputs[0].contents.fp32_contents.extend(rows.ravel().tolist())
        del request.raw_input_contents[:]
        yield from _by_grpc(channel, request)
    tensor = {"name": "features", "datatype": "FP32", "shape": list(rows.shape)}
    for binary in (True, False):
        body = {
            "inputs": [{**tensor, "data": rows.ravel().tolist()}],
            "outputs": [{"name": name} for name in outputs],
            "parameters": {"binary_data_output": binary},
        }
        response = httpx.post(serving.infer_url, json=body)
        yield response.content + repr(response.headers.raw).encode()


def _by_grpc(channel: grpc.Channel, request: wire.ModelInferRequest) -> Iterator[bytes]:
    call = channel.unary_unary(METHOD).future(request.SerializeToString(), timeout=30)
    if call.code() == grpc.StatusCode.OK:
        # Listed floats are packed, so their bytes equal the raw ones.
        yield call.result()
    else:
        assert call.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert call.details().startswith("the prediction is withheld by policy: rows 0")
        yield call.details().encode()
    yield repr((call.initial_metadata(), call.trailing_metadata())).encode()


def public_output(serving: Sidecar) -> bytes:
    """All other output of the sidecar: metrics in both formats, pages, stdout and stderr."""
    pages = [
        httpx.get(f"{serving.url}/metrics", headers={"Accept": accept}).content
        for accept in ("", OPEN_METRICS)
    ]
    pages += [
        httpx.get(serving.url + path).content for path in ("/v1/alarms", "/v2/models/lending")
    ]
    return b"\n".join([*pages, serving.out.read_bytes(), serving.err.read_bytes()])


def score_patterns(fitted: Fitted, rows: NDArray[np.float32]) -> list[ScorePatterns]:
    return [
        ScorePatterns.of(logit)
        for logit in fitted.judge.scores(torch.from_numpy(rows)).logit.tolist()
    ]


def test_the_search_finds_a_score_in_a_response(serving, fitted):
    """Over both transports and in all request formats, if nothing is withheld."""
    rows = fitted.rows[:1]
    (pattern,) = score_patterns(fitted, rows)
    responses = [part for part in responses_of(serving, rows, ()) if not part.startswith(b"((")]
    assert len(responses) == 4
    assert all(pattern.matches(part) for part in responses)
    assert pattern.matches(b"margin %.4f" % fitted.judge.scores(torch.from_numpy(rows)).logit)


@pytest.mark.parametrize("form", FORMS)
def test_a_withheld_score_is_in_no_output(fitted, tmp_path, form):
    rows = fitted.rows[:12]
    patterns = score_patterns(fitted, rows)
    config = {"policy": FORMS[form], "log": {"level": "debug"}}
    with sidecar(fitted, tmp_path, config) as serving:
        # Matches before the first request are chance.
        before = public_output(serving)
        for index, pattern in enumerate(patterns):
            row = rows[index : index + 1]
            outputs_seen = [
                part for outputs in ((), OUTPUTS) for part in responses_of(serving, row, outputs)
            ]
            if index == 0:
                # After a single row, any mean over rows would be the score itself.
                outputs_seen.append(public_output(serving))
            leaked = pattern.matches(b"\n".join(outputs_seen)) - pattern.matches(before)
            assert not leaked, (index, leaked)
        batch_output = b"\n".join([*responses_of(serving, rows, OUTPUTS), public_output(serving)])
        for pattern in patterns:
            assert not pattern.matches(batch_output) - pattern.matches(before)
        assert serving.metric('evenhand_actions_total{action="withhold"}') == 12 * 8 + 12 * 4
    assert not [n for n in patterns if n.matches(serving.err.read_bytes())]


@pytest.fixture(scope="module")
def withholding(fitted, tmp_path_factory) -> Iterator[Sidecar]:
    """A sidecar that withholds some predictions, and returns others."""
    policy = {"action": "withhold", "alpha": 0.2}
    with sidecar(fitted, tmp_path_factory.mktemp("withholding"), {"policy": policy}) as running:
        yield running


def infer(serving: Sidecar, rows: NDArray[np.float32], name: str) -> wire.ModelInferResponse:
    with grpc.insecure_channel(serving.grpc) as channel:
        data = request_of(rows, *OUTPUTS, request_id=name).SerializeToString()
        return wire.ModelInferResponse.FromString(channel.unary_unary(METHOD)(data, timeout=30))


def test_the_replacement_of_a_withheld_prediction_is_marked(fitted, withholding):
    """If some rows of a batch are withheld, only those lack their score."""
    rows = fitted.rows[:200]
    scores = fitted.judge.scores(torch.from_numpy(rows)).logit.numpy()
    response = infer(withholding, rows, "a-batch")
    raw = dict(zip([o.name for o in response.outputs], response.raw_output_contents, strict=True))
    received = np.frombuffer(raw["score"], "<f4")
    withheld = np.isnan(received)
    assert 20 < withheld.sum() < 180
    assert np.allclose(received[~withheld], scores[~withheld], rtol=1e-5, atol=1e-5)
    withheld_rows = (
        response.parameters["evenhand_withheld_rows"].string_param.removesuffix(",…").split(",")
    )
    assert [int(row) for row in withheld_rows] == np.flatnonzero(withheld).tolist()[:100]
    assert raw["decision"].count(b"withheld") == withheld.sum()
    assert raw["action"].count(b"withhold") == withheld.sum()
    for name, width in (("sensitivity", 8), ("flip_probability", 4), ("expected_change", 4)):
        signal = np.frombuffer(raw[name], f"<f{width}").reshape(len(rows), 2)
        assert np.isnan(signal[withheld]).all()
        assert np.isfinite(signal[~withheld]).all()
    assert response.model_version == VERSION
    # Rounded numbers of a hundred rows match by chance, and so do bytes that span two elements of a
    # large tensor: tensors are searched element by element.
    numbers = [raw.pop(output.name) for output in response.outputs if output.datatype != "BYTES"]
    elements = {part for tensor in numbers for part in _elements(tensor)}
    del response.raw_output_contents[:]
    rest = b"\n".join([response.SerializeToString(), *raw.values(), public_output(withholding)])
    assert {score.tobytes() for score in received[~withheld]} <= elements
    for score in scores[withheld]:
        patterns = ScorePatterns.of(float(score)).raw
        assert not patterns & elements
        assert not [pattern for pattern in patterns if pattern in rest]


def _elements(tensor: bytes) -> set[bytes]:
    """The bytes of a tensor, cut into elements of four and of eight bytes."""
    return {tensor[at : at + size] for size in (4, 8) for at in range(0, len(tensor), size)}


def test_masked_signals_are_in_no_metric(fitted, withholding):
    """Exemplars would publish them, with the request id, to every client of /metrics."""
    action = ""
    for index in range(200, 260):
        response = infer(withholding, fitted.rows[index : index + 1], f"held-{index}")
        action = response.parameters["evenhand_action"].string_param
        if action == "withhold":
            break
    assert action == "withhold"
    assert "held-" not in public_output(withholding).decode()
