"""Cancelled requests, SIGTERM under load, restarts, and ports in use."""

from __future__ import annotations

import asyncio
import collections
import json
import signal
import socket
import time

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from monitor.wire import open_inference_pb2 as wire
from tests.live.sidecar import METHOD, MODEL, request_of, sidecar, start

pytestmark = pytest.mark.live

IN_FLIGHT = "evenhand_requests_in_flight"
CANCELLED = 'evenhand_requests_total{outcome="cancelled",transport="%s"}'


def assert_serves(serving, fitted) -> None:
    """Both transports respond, and no request is in flight."""
    with grpc.insecure_channel(serving.grpc) as channel:
        call = channel.unary_unary(METHOD)
        response = call(request_of(fitted.rows[:3]).SerializeToString(), timeout=30)
    assert len(wire.ModelInferResponse.FromString(response).raw_output_contents[0]) == 12
    assert httpx.get(f"{serving.url}/v2/health/ready").json() == {"ready": True}
    assert serving.metric_reaches(IN_FLIGHT, 0)


async def send_and_cancel(address: str, data: bytes, mode: str) -> collections.Counter[str]:
    """Send many requests that are cancelled or exceed their deadline; count their statuses."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)
        calls = [call(data, timeout=0.3 if mode == "deadline" else 60) for _ in range(24)]
        if mode == "cancel":
            await asyncio.sleep(0.3)
            for rpc in calls:
                rpc.cancel()
        codes = await asyncio.gather(*(rpc.code() for rpc in calls))
    return collections.Counter(code.name for code in codes)


@pytest.mark.parametrize(
    ("mode", "status"), [("deadline", "DEADLINE_EXCEEDED"), ("cancel", "CANCELLED")]
)
def test_cancelled_requests_leave_nothing_behind(serving, fitted, mode, status):
    before = serving.metric(CANCELLED % "grpc")
    data = request_of(fitted.rows[:10_000]).SerializeToString()
    codes = asyncio.run(send_and_cancel(serving.grpc, data, mode))
    assert codes[status] > 12
    assert set(codes) <= {status, "OK"}
    assert_serves(serving, fitted)
    # The sidecar noticed the cancellation, and did not process all of them.
    assert serving.metric(CANCELLED % "grpc") > before


def test_a_connection_that_closes_within_a_body_leaves_nothing_behind(serving, fitted):
    before, log = serving.metric(CANCELLED % "rest"), len(serving.log)
    host, port = serving.url.removeprefix("http://").split(":")
    for _ in range(8):
        with socket.create_connection((host, int(port))) as connection:
            head = (
                f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n"
            )
            connection.sendall(head.encode() + b'{"inputs": [')
            time.sleep(0.02)
    assert serving.metric_reaches(CANCELLED % "rest", before + 8)
    # A connection closed by a client is not logged as an error.
    assert '"ERROR"' not in serving.log[log:]
    assert_serves(serving, fitted)


def test_sigterm_under_load_completes_or_rejects_every_request(fitted, tmp_path):
    """Clients send requests until one is rejected; they would then call another replica."""
    # Repeated rows would raise a drift alarm.
    config = {"server": {"drain_seconds": 3}, "drift": {"enabled": False}}
    with sidecar(fitted, tmp_path, config) as serving:
        codes, seconds = asyncio.run(terminate_under_load(serving, fitted.rows))
    assert codes["OK"] > 100
    assert codes["200"] > 20
    # Clients retry after these statuses only, and not after CANCELLED.
    assert set(codes) <= {"OK", "UNAVAILABLE", "200", "503", "no connection"}
    assert seconds < 3 + 10
    messages = [json.loads(connection)["message"] for connection in serving.log.splitlines()]
    assert messages[0].startswith("stopping: ")
    assert messages[1:] == ["stopped"]


async def terminate_under_load(serving, rows) -> tuple[collections.Counter[str], float]:
    """Send requests to both transports without a pause, and SIGTERM after a second."""
    codes: collections.Counter[str] = collections.Counter()

    async def by_grpc(channel, index: int) -> None:
        call = channel.unary_unary(METHOD)
        data = request_of(rows[index : index + 1 + index % 3]).SerializeToString()
        code = grpc.StatusCode.OK
        while code == grpc.StatusCode.OK:
            code = await call(data, timeout=20).code()
            codes[code.name] += 1

    async def by_rest(client: httpx.AsyncClient) -> None:
        tensor = {"name": "features", "shape": [1, 25], "datatype": "FP32"}
        body = {"inputs": [{**tensor, "data": rows[0].tolist()}]}
        status = 200
        while status == 200:
            try:
                status = (await client.post(serving.infer_url, json=body)).status_code
                codes[str(status)] += 1
            except httpx.TransportError:
                status = 0
                codes["no connection"] += 1

    async with grpc.aio.insecure_channel(serving.grpc) as channel, httpx.AsyncClient() as client:
        load = [
            *(asyncio.create_task(by_grpc(channel, index)) for index in range(16)),
            *(asyncio.create_task(by_rest(client)) for _ in range(4)),
        ]
        await asyncio.sleep(1)
        assert set(codes) == {"OK", "200"}
        started = time.monotonic()
        serving.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(serving.process.wait, 60)
        seconds = time.monotonic() - started
        await asyncio.gather(*load)
    return codes, seconds


def test_requests_in_flight_complete_before_the_server_stops(fitted, tmp_path):
    """Meanwhile health probes report NOT_SERVING."""
    with sidecar(fitted, tmp_path, {}) as serving:
        rows, statuses = asyncio.run(terminate_during_requests(serving, fitted.rows))
    assert rows == 10_000
    assert statuses == [
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    ]


async def terminate_during_requests(serving, rows) -> tuple[int, list[int]]:
    async with grpc.aio.insecure_channel(serving.grpc) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=MODEL)
        )
        statuses = [(await watch.read()).status]
        calls = [
            channel.unary_unary(METHOD)(request_of(rows).SerializeToString(), timeout=60)
            for _ in range(4)
        ]
        await asyncio.sleep(0.05)
        serving.process.send_signal(signal.SIGTERM)
        statuses.append((await watch.read()).status)
        responses = await asyncio.gather(*calls)
    counts = {
        len(wire.ModelInferResponse.FromString(a).raw_output_contents[0]) // 4 for a in responses
    }
    return counts.pop() if len(counts) == 1 else -1, statuses


def test_drift_detection_continues_after_a_restart(fitted, tmp_path):
    config = {"drift": {"state_path": str(tmp_path / "state" / "drift.npz")}}
    for round_, count in enumerate((400, 250)):
        with sidecar(fitted, tmp_path / str(round_), config) as serving:
            before = 400 * round_
            assert f"{before} predictions so far" in serving.err.read_text()
            assert serving.metric("evenhand_drift_predictions_total") == before
            with grpc.insecure_channel(serving.grpc) as channel:
                data = request_of(fitted.rows[:count]).SerializeToString()
                channel.unary_unary(METHOD)(data, timeout=30)
            assert serving.metric_reaches("evenhand_drift_predictions_total", before + count)
            assert serving.log == ""


def test_a_port_in_use_is_an_error_without_a_traceback(fitted, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        processes = {
            "gRPC": start(fitted, tmp_path / "grpc", {}, grpc_port=port),
            "REST": start(fitted, tmp_path / "rest", {}, rest_port=port),
        }
        for transport, (process, out, err) in processes.items():
            assert process.wait(60) == 2, err.read_text()
            assert f"error: cannot listen for {transport} on 127.0.0.1:{port}" in err.read_text()
            assert "Traceback" not in err.read_text()
            assert out.read_text() == ""
