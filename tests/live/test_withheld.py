"""The score of a prediction that is withheld is nowhere: in no answer, header, metric or log."""

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
class Needles:
    """A score in every form that it could be written in.

    Attributes:
        raw: Bytes of float32 and float64, both ways round.
        prefixes: Its first seven digits, with which a number could begin.
        rounded: Numbers of four digits and more that it could be rounded to.
    """

    raw: frozenset[bytes]
    prefixes: frozenset[bytes]
    rounded: frozenset[bytes]

    @classmethod
    def of(cls, logit: float) -> Needles:
        """Of the score, its probability, and the probability of the other class."""
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

    def in_(self, hay: bytes) -> set[bytes]:
        """Those that are found in some bytes."""
        numbers = set(_NUMBER.findall(hay))
        return {
            *(needle for needle in self.raw if needle in hay),
            *(number for number in numbers if number.startswith(tuple(self.prefixes))),
            *(number for number in numbers if number in self.rounded),
        }


def heard(serving: Sidecar, rows: NDArray[np.float32], outputs: tuple[str, ...]) -> Iterator[bytes]:
    """Every byte that two clients are answered, of which some ask raw and some listed."""
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
        answer = httpx.post(serving.infer_url, json=body)
        yield answer.content + repr(answer.headers.raw).encode()


def _by_grpc(channel: grpc.Channel, request: wire.ModelInferRequest) -> Iterator[bytes]:
    call = channel.unary_unary(METHOD).future(request.SerializeToString(), timeout=30)
    if call.code() == grpc.StatusCode.OK:
        # Listed floats are packed, and so stand there as they would raw.
        yield call.result()
    else:
        assert call.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert call.details().startswith("the prediction is withheld by policy: rows 0")
        yield call.details().encode()
    yield repr((call.initial_metadata(), call.trailing_metadata())).encode()


def around(serving: Sidecar) -> bytes:
    """What the sidecar says to others: metrics in both formats, pages, stdout and stderr."""
    pages = [
        httpx.get(f"{serving.url}/metrics", headers={"Accept": accept}).content
        for accept in ("", OPEN_METRICS)
    ]
    pages += [
        httpx.get(serving.url + path).content for path in ("/v1/alarms", "/v2/models/lending")
    ]
    return b"\n".join([*pages, serving.out.read_bytes(), serving.err.read_bytes()])


def needles(fitted: Fitted, rows: NDArray[np.float32]) -> list[Needles]:
    return [Needles.of(x) for x in fitted.judge.scores(torch.from_numpy(rows)).logit.tolist()]


def test_the_search_finds_a_score_in_a_response(serving, fitted):
    """By every door and way of asking, where nothing is withheld."""
    rows = fitted.rows[:1]
    (needle,) = needles(fitted, rows)
    said = [part for part in heard(serving, rows, ()) if not part.startswith(b"((")]
    assert len(said) == 4
    assert all(needle.in_(part) for part in said)
    assert needle.in_(b"margin %.4f" % fitted.judge.scores(torch.from_numpy(rows)).logit)


@pytest.mark.parametrize("form", FORMS)
def test_a_withheld_score_is_in_no_output(fitted, tmp_path, form):
    rows = fitted.rows[:12]
    wanted = needles(fitted, rows)
    config = {"policy": FORMS[form], "log": {"level": "debug"}}
    with sidecar(fitted, tmp_path, config) as serving:
        # What is there before anybody asks is chance.
        before = around(serving)
        for place, needle in enumerate(wanted):
            row = rows[place : place + 1]
            said = [part for outputs in ((), OUTPUTS) for part in heard(serving, row, outputs)]
            if place == 0:
                # Alone, so that a mean of all would be the score itself.
                said.append(around(serving))
            found = needle.in_(b"\n".join(said)) - needle.in_(before)
            assert not found, (place, found)
        together = b"\n".join([*heard(serving, rows, OUTPUTS), around(serving)])
        for needle in wanted:
            assert not needle.in_(together) - needle.in_(before)
        assert serving.metric('evenhand_actions_total{action="withhold"}') == 12 * 8 + 12 * 4
    assert not [n for n in wanted if n.in_(serving.err.read_bytes())]


@pytest.fixture(scope="module")
def withholding(fitted, tmp_path_factory) -> Iterator[Sidecar]:
    """A sidecar that withholds some predictions, and passes others."""
    policy = {"action": "withhold", "alpha": 0.2}
    with sidecar(fitted, tmp_path_factory.mktemp("withholding"), {"policy": policy}) as found:
        yield found


def asked(serving: Sidecar, rows: NDArray[np.float32], name: str) -> wire.ModelInferResponse:
    with grpc.insecure_channel(serving.grpc) as channel:
        data = request_of(rows, *OUTPUTS, request_id=name).SerializeToString()
        return wire.ModelInferResponse.FromString(channel.unary_unary(METHOD)(data, timeout=30))


def test_the_replacement_of_a_withheld_prediction_is_marked(fitted, withholding):
    """Of a batch of which some rows are withheld, those and no others lack their score."""
    rows = fitted.rows[:200]
    scores = fitted.judge.scores(torch.from_numpy(rows)).logit.numpy()
    answer = asked(withholding, rows, "a-batch")
    raw = dict(zip([o.name for o in answer.outputs], answer.raw_output_contents, strict=True))
    found = np.frombuffer(raw["score"], "<f4")
    held = np.isnan(found)
    assert 20 < held.sum() < 180
    assert np.allclose(found[~held], scores[~held], rtol=1e-5, atol=1e-5)
    marked = answer.parameters["evenhand_withheld_rows"].string_param.removesuffix(",…").split(",")
    assert [int(row) for row in marked] == np.flatnonzero(held).tolist()[:100]
    assert raw["decision"].count(b"withheld") == held.sum()
    assert raw["action"].count(b"withhold") == held.sum()
    for name, width in (("sensitivity", 8), ("flip_probability", 4), ("expected_change", 4)):
        signal = np.frombuffer(raw[name], f"<f{width}").reshape(len(rows), 2)
        assert np.isnan(signal[held]).all()
        assert np.isfinite(signal[~held]).all()
    assert answer.model_version == VERSION
    # Rounded numbers of a hundred people occur by chance, and so do the bytes of a score across the
    # border of two elements of a large tensor: tensors are searched element by element.
    numbers = [raw.pop(output.name) for output in answer.outputs if output.datatype != "BYTES"]
    elements = {part for tensor in numbers for part in _elements(tensor)}
    del answer.raw_output_contents[:]
    rest = b"\n".join([answer.SerializeToString(), *raw.values(), around(withholding)])
    assert _elements(found[~held].tobytes()) <= elements
    for score in scores[held]:
        needles = Needles.of(float(score)).raw
        assert not needles & elements
        assert not [needle for needle in needles if needle in rest]


def _elements(tensor: bytes) -> set[bytes]:
    """The bytes of a tensor, cut into elements of four and of eight bytes."""
    return {tensor[at : at + size] for size in (4, 8) for at in range(0, len(tensor), size)}


def test_masked_signals_are_in_no_metric(fitted, withholding):
    """Exemplars tell them to everybody who can scrape, by the request's id."""
    action = ""
    for place in range(200, 260):
        answer = asked(withholding, fitted.rows[place : place + 1], f"held-{place}")
        action = answer.parameters["evenhand_action"].string_param
        if action == "withhold":
            break
    assert action == "withhold"
    assert "held-" not in around(withholding).decode()
