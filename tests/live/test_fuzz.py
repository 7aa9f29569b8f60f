"""Mutated messages, seeded: each gets an answer or a refusal, and the sidecar stays as it was.

`FUZZ_MESSAGES=100000 make test-live PYTEST_ARGS="-k fuzz"` sends more than the default.
"""

from __future__ import annotations

import asyncio
import collections
import os
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError, EncodeError

from monitor.codec import DATATYPES
from monitor.wire import open_inference_pb2 as wire
from tests.live.sidecar import METHOD, MODEL, VERSION, request_of, sidecar

pytestmark = pytest.mark.live

COUNT = int(os.environ.get("FUZZ_MESSAGES", "10000"))
ALLOWED = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED"}
OUTPUTS = ("score", "decision", "verdict", "contributions", "p_value")
# Values whose digits a log cannot hold by chance.
SECRETS = (48_211.734, 7_919.6836)
_CONCURRENT = 32
_GROWTH = 96 << 20

Request = wire.ModelInferRequest
Rng = np.random.Generator


def seeds(rows: np.ndarray, names: list[str]) -> list[bytes]:
    """Sound messages to begin with: raw, listed, by columns, as text, and with everything in it."""
    raw = request_of(rows, *OUTPUTS, request_id="seed", version=VERSION)
    listed = request_of(rows[:1])
    del listed.raw_input_contents[:]
    listed.inputs[0].contents.fp32_contents.extend(rows[0].tolist())
    texts = Request(model_name=MODEL)
    tensor = texts.inputs.add(name="features", datatype="BYTES", shape=[1, rows.shape[1]])
    tensor.contents.bytes_contents.extend(str(value).encode() for value in rows[0].tolist())
    columns = Request(model_name=MODEL)
    for place, name in enumerate(names):
        columns.inputs.add(name=name, datatype="FP64", shape=[len(rows), 1])
        columns.raw_input_contents.append(rows[:, place].astype("<f8").tobytes())
    columns.parameters["source"].string_param = "branch"
    return [message.SerializeToString() for message in (raw, listed, texts, columns)]


def spoil_bytes(data: bytes, rng: Rng) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    found = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, len(found) + 1))
        size = int(rng.integers(1, 9))
        match int(rng.integers(0, 5)):
            case 0 if at < len(found):
                found[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + 8 * size]
            case 3:
                found[at:at] = rng.bytes(size)
            case _:
                found[at : at + size] = rng.bytes(size)
    return bytes(found[: int(rng.integers(0, len(found) + 1))] if rng.random() < 0.05 else found)


def some_size(rng: Rng) -> int:
    choices = (0, 1, -1, 2, 24, 25, 26, 10_001, 2**31, 2**62, -(2**63), int(rng.integers(-9, 99)))
    return choices[int(rng.integers(0, len(choices)))]


def some_text(rng: Rng) -> str:
    choices = ("", MODEL, "features", "income", "x" * 5_000, "\0", "é\u202e", "%s%n{}", "../..")
    return choices[int(rng.integers(0, len(choices)))]


def spoil_shape(request: Request, rng: Rng) -> None:
    for tensor in request.inputs:
        if rng.random() < 0.5:
            del tensor.shape[:]
            tensor.shape.extend(some_size(rng) for _ in range(int(rng.integers(0, 5))))


def spoil_datatype(request: Request, rng: Rng) -> None:
    for tensor in request.inputs:
        kinds = (*DATATYPES, "", "fp32", "FP8")
        tensor.datatype = kinds[int(rng.integers(0, len(kinds)))]


def spoil_names(request: Request, rng: Rng) -> None:
    field = int(rng.integers(0, 5))
    if field == 0:
        request.model_name = some_text(rng)
    elif field == 1:
        request.model_version = some_text(rng)
    elif field == 2:
        request.id = some_text(rng)
    elif field == 3:
        request.outputs.add(name=some_text(rng))
    for tensor in request.inputs[:1] if field == 4 else ():
        tensor.name = some_text(rng)


def spoil_values(request: Request, rng: Rng) -> None:
    """Numbers of any bit pattern, of the right length or not."""
    for place, data in enumerate(request.raw_input_contents):
        size = len(data) if rng.random() < 0.7 else int(rng.integers(0, 2 * len(data) + 2))
        request.raw_input_contents[place] = rng.bytes(size)
    for tensor in request.inputs:
        if tensor.contents.fp32_contents:
            odd = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0])
            tensor.contents.fp32_contents[int(rng.integers(0, 3))] = odd
        if tensor.contents.bytes_contents:
            odd = (b"", b"nan", b"1e999", b"1_0", b"\xff", b"0x10", b"9" * 200, b" 1 ")
            tensor.contents.bytes_contents[0] = odd[int(rng.integers(0, len(odd)))]


def spoil_contents(request: Request, rng: Rng) -> None:
    """Elements in fields where they do not belong."""
    for tensor in request.inputs[:2]:
        contents = tensor.contents
        lists: Any = (contents.int_contents, contents.uint64_contents, contents.bool_contents)
        lists[int(rng.integers(0, 3))].extend([1] * int(rng.integers(0, 60)))


def spoil_order(request: Request, rng: Rng) -> None:
    """Inputs, raw entries and outputs lost, doubled and swapped."""
    lists: Any = (request.inputs, request.raw_input_contents, request.outputs)
    for entries in lists:
        for _ in range(int(rng.integers(0, 3))):
            if len(entries):
                at = int(rng.integers(0, len(entries)))
                kept = entries[at]
                if rng.random() < 0.5:
                    del entries[at]
                else:
                    entries.extend([kept])


def spoil_parameters(request: Request, rng: Rng) -> None:
    request.parameters[some_text(rng)].double_param = float(rng.normal())
    request.parameters["binary_data_output"].int64_param = some_size(rng)


SPOILERS: tuple[Callable[[Request, Rng], None], ...] = (
    *(spoil_shape, spoil_datatype, spoil_names, spoil_values),
    *(spoil_contents, spoil_order, spoil_parameters),
)


def spoil_fields(data: bytes, rng: Rng) -> bytes:
    request = Request.FromString(data)
    for _ in range(int(rng.integers(1, 4))):
        SPOILERS[int(rng.integers(0, len(SPOILERS)))](request, rng)
    return request.SerializeToString()


def mutated(sound: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = sound[int(rng.integers(0, len(sound)))]
        if rng.random() < 0.6:
            try:
                data = spoil_fields(data, rng)
            except (DecodeError, EncodeError, ValueError):
                continue
        if rng.random() < 0.6:
            data = spoil_bytes(data, rng)
        yield data


async def send(address: str, messages: Iterator[bytes]) -> dict[str, list[Any]]:
    """All messages with some under way at a time, and of each status how many and an example."""
    codes: dict[str, list[Any]] = collections.defaultdict(lambda: [0, b"", ""])

    async def work(call) -> None:
        for data in messages:
            answer = call(data, timeout=30)
            report = codes[(await answer.code()).name]
            report[0] += 1
            report[1], report[2] = data, await answer.details()

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        await asyncio.gather(*(work(call) for _ in range(_CONCURRENT)))
    return codes


def test_fuzzed_messages_get_a_response_or_an_error_and_leak_nothing(fitted, tmp_path):
    rows = fitted.rows[:3].copy()
    rows[:, 0], rows[:, 1] = SECRETS
    names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
    sound = seeds(rows, names)
    with sidecar(fitted, tmp_path, {"log": {"level": "debug"}}) as serving:
        # What is set up once, such as a tensor's memory, is no growth.
        warm = asyncio.run(send(serving.grpc, iter(sound * 50 + list(mutated(sound, 500, 1)))))
        assert warm["OK"][0] >= 200
        before = serving.resident_bytes
        codes = asyncio.run(send(serving.grpc, mutated(sound, COUNT, 7)))
        counts = {name: report[0] for name, report in codes.items()}
        assert set(codes) <= ALLOWED, {n: t[1:] for n, t in codes.items() if n not in ALLOWED}
        assert sum(counts.values()) > 0.95 * COUNT
        # Both what passes and what is refused is common: the mutations are neither mild nor wild.
        assert min(counts["OK"], counts["INVALID_ARGUMENT"]) > 0.05 * COUNT
        assert serving.resident_bytes - before < _GROWTH
        after = asyncio.run(send(serving.grpc, iter(sound)))
        assert {name: report[0] for name, report in after.items()} == {"OK": len(sound)}
        assert serving.settled("evenhand_requests_in_flight", 0)
        assert serving.metric("evenhand_monitoring_faults_total") == 0
        log = serving.log
    assert "Traceback" not in log
    assert '"ERROR"' not in log
    for secret in SECRETS:
        assert str(secret)[:7] not in log
