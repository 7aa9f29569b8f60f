"""Every mutated message gets a response or an error, and the sidecar leaks nothing.

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
# Values whose digits do not occur in a log by chance.
SECRETS = (48_211.734, 7_919.6836)
_CONCURRENT = 32
_GROWTH = 96 << 20

Request = wire.ModelInferRequest
Rng = np.random.Generator


def seed_messages(rows: np.ndarray, names: list[str]) -> list[bytes]:
    """Valid messages to mutate: raw, listed, as text, and by columns."""
    raw = request_of(rows, *OUTPUTS, request_id="seed", version=VERSION)
    listed = request_of(rows[:1])
    del listed.raw_input_contents[:]
    listed.inputs[0].contents.fp32_contents.extend(rows[0].tolist())
    texts = Request(model_name=MODEL)
    tensor = texts.inputs.add(name="features", datatype="BYTES", shape=[1, rows.shape[1]])
    tensor.contents.bytes_contents.extend(str(value).encode() for value in rows[0].tolist())
    columns = Request(model_name=MODEL)
    for index, name in enumerate(names):
        columns.inputs.add(name=name, datatype="FP64", shape=[len(rows), 1])
        columns.raw_input_contents.append(rows[:, index].astype("<f8").tobytes())
    columns.parameters["source"].string_param = "branch"
    return [message.SerializeToString() for message in (raw, listed, texts, columns)]


def mutate_bytes(data: bytes, rng: Rng) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        offset = int(rng.integers(0, len(changed) + 1))
        size = int(rng.integers(1, 9))
        match int(rng.integers(0, 5)):
            case 0 if offset < len(changed):
                changed[offset] ^= 1 << int(rng.integers(0, 8))
            case 1:
                del changed[offset : offset + size]
            case 2:
                changed[offset:offset] = changed[offset : offset + 8 * size]
            case 3:
                changed[offset:offset] = rng.bytes(size)
            case _:
                changed[offset : offset + size] = rng.bytes(size)
    return bytes(
        changed[: int(rng.integers(0, len(changed) + 1))] if rng.random() < 0.05 else changed
    )


def random_size(rng: Rng) -> int:
    choices = (0, 1, -1, 2, 24, 25, 26, 10_001, 2**31, 2**62, -(2**63), int(rng.integers(-9, 99)))
    return choices[int(rng.integers(0, len(choices)))]


def random_text(rng: Rng) -> str:
    choices = ("", MODEL, "features", "income", "x" * 5_000, "\0", "é\u202e", "%s%n{}", "../..")
    return choices[int(rng.integers(0, len(choices)))]


def mutate_shape(request: Request, rng: Rng) -> None:
    for tensor in request.inputs:
        if rng.random() < 0.5:
            del tensor.shape[:]
            tensor.shape.extend(random_size(rng) for _ in range(int(rng.integers(0, 5))))


def mutate_datatype(request: Request, rng: Rng) -> None:
    for tensor in request.inputs:
        datatypes = (*DATATYPES, "", "fp32", "FP8")
        tensor.datatype = datatypes[int(rng.integers(0, len(datatypes)))]


def mutate_names(request: Request, rng: Rng) -> None:
    field = int(rng.integers(0, 5))
    if field == 0:
        request.model_name = random_text(rng)
    elif field == 1:
        request.model_version = random_text(rng)
    elif field == 2:
        request.id = random_text(rng)
    elif field == 3:
        request.outputs.add(name=random_text(rng))
    for tensor in request.inputs[:1] if field == 4 else ():
        tensor.name = random_text(rng)


def mutate_values(request: Request, rng: Rng) -> None:
    """Random bytes and special values, of the right length or not."""
    for index, data in enumerate(request.raw_input_contents):
        size = len(data) if rng.random() < 0.7 else int(rng.integers(0, 2 * len(data) + 2))
        request.raw_input_contents[index] = rng.bytes(size)
    for tensor in request.inputs:
        if tensor.contents.fp32_contents:
            special = rng.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45, -0.0])
            tensor.contents.fp32_contents[int(rng.integers(0, 3))] = special
        if tensor.contents.bytes_contents:
            special = (b"", b"nan", b"1e999", b"1_0", b"\xff", b"0x10", b"9" * 200, b" 1 ")
            tensor.contents.bytes_contents[0] = special[int(rng.integers(0, len(special)))]


def mutate_contents(request: Request, rng: Rng) -> None:
    """Elements in the fields of other datatypes."""
    for tensor in request.inputs[:2]:
        contents = tensor.contents
        lists: Any = (contents.int_contents, contents.uint64_contents, contents.bool_contents)
        lists[int(rng.integers(0, 3))].extend([1] * int(rng.integers(0, 60)))


def mutate_order(request: Request, rng: Rng) -> None:
    """Remove and duplicate inputs, raw entries and outputs."""
    lists: Any = (request.inputs, request.raw_input_contents, request.outputs)
    for entries in lists:
        for _ in range(int(rng.integers(0, 3))):
            if len(entries):
                index = int(rng.integers(0, len(entries)))
                entry = entries[index]
                if rng.random() < 0.5:
                    del entries[index]
                else:
                    entries.extend([entry])


def mutate_parameters(request: Request, rng: Rng) -> None:
    request.parameters[random_text(rng)].double_param = float(rng.normal())
    request.parameters["binary_data_output"].int64_param = random_size(rng)


MUTATIONS: tuple[Callable[[Request, Rng], None], ...] = (
    *(mutate_shape, mutate_datatype, mutate_names, mutate_values),
    *(mutate_contents, mutate_order, mutate_parameters),
)


def mutate_fields(data: bytes, rng: Rng) -> bytes:
    request = Request.FromString(data)
    for _ in range(int(rng.integers(1, 4))):
        MUTATIONS[int(rng.integers(0, len(MUTATIONS)))](request, rng)
    return request.SerializeToString()


def mutations(valid: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = valid[int(rng.integers(0, len(valid)))]
        if rng.random() < 0.6:
            try:
                data = mutate_fields(data, rng)
            except (DecodeError, EncodeError, ValueError):
                continue
        if rng.random() < 0.6:
            data = mutate_bytes(data, rng)
        yield data


async def send(address: str, messages: Iterator[bytes]) -> dict[str, list[Any]]:
    """Send messages concurrently; return for each status a count, an example and its details."""
    codes: dict[str, list[Any]] = collections.defaultdict(lambda: [0, b"", ""])

    async def send_all(call) -> None:
        for data in messages:
            response = call(data, timeout=30)
            result = codes[(await response.code()).name]
            result[0] += 1
            result[1], result[2] = data, await response.details()

    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        await asyncio.gather(*(send_all(call) for _ in range(_CONCURRENT)))
    return codes


def test_fuzzed_messages_get_a_response_or_an_error_and_leak_nothing(fitted, tmp_path):
    rows = fitted.rows[:3].copy()
    rows[:, 0], rows[:, 1] = SECRETS
    names = [feature.name for feature in fitted.judge.sensitivity.spec.features]
    valid = seed_messages(rows, names)
    with sidecar(fitted, tmp_path, {"log": {"level": "debug"}}) as serving:
        # Memory that is allocated once is not counted as growth.
        warmup = asyncio.run(send(serving.grpc, iter(valid * 50 + list(mutations(valid, 500, 1)))))
        assert warmup["OK"][0] >= 200
        before = serving.resident_bytes
        codes = asyncio.run(send(serving.grpc, mutations(valid, COUNT, 7)))
        counts = {name: result[0] for name, result in codes.items()}
        assert set(codes) <= ALLOWED, {n: t[1:] for n, t in codes.items() if n not in ALLOWED}
        assert sum(counts.values()) > 0.95 * COUNT
        # Both valid and rejected messages are common among the mutations.
        assert min(counts["OK"], counts["INVALID_ARGUMENT"]) > 0.05 * COUNT
        assert serving.resident_bytes - before < _GROWTH
        after = asyncio.run(send(serving.grpc, iter(valid)))
        assert {name: result[0] for name, result in after.items()} == {"OK": len(valid)}
        assert serving.metric_reaches("evenhand_requests_in_flight", 0)
        assert serving.metric("evenhand_monitoring_faults_total") == 0
        log = serving.log
    assert "Traceback" not in log
    assert '"ERROR"' not in log
    for secret in SECRETS:
        assert str(secret)[:7] not in log
