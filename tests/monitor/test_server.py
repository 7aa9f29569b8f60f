"""The whole sidecar in this process: both transports, metrics, modes, load, restarts."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from monitor import AsyncClient, Bundle, Judge
from monitor.client import EndpointError
from monitor.drift.reference import DetectorId
from monitor.errors import BadRequestError, BundleError, ConfigError, ServeError
from monitor.server import Server
from monitor.wire import evenhand_pb2, evenhand_pb2_grpc
from tests.serving import ATTRIBUTES, NAMES, PEOPLE, WORLD, config, running, served, without_model

ROWS = PEOPLE.features[:300].copy()


def client(server: Server, **options) -> AsyncClient:
    return AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending", **options)


def rest(server: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.rest.port}", trust_env=False)


async def metric(server: Server, name: str) -> float:
    """The sum of a metric's samples, as it is scraped."""
    async with rest(server) as http:
        text = (await http.get("/metrics")).text
    response = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, response))


@pytest.fixture(scope="module")
def library(lending):
    judge = Judge.load(Bundle.read(lending), warn=False)
    return judge.scores(torch.from_numpy(ROWS))


def test_both_transports_return_the_scores_of_the_library(lending, library):
    async def use(server: Server):
        async with client(server) as grpc_client, rest(server) as http:
            alone = await asyncio.gather(*(grpc_client.predict(row[None]) for row in ROWS[:60]))
            together = await grpc_client.predict(ROWS)
            body = {
                "inputs": [
                    {"name": "features", "shape": [300, 25], "datatype": "FP32",
                     "data": ROWS.tolist()}
                ],
                "outputs": [{"name": "score"}, {"name": "flip_probability"}],
            }  # fmt: skip
            over_http = (await http.post("/v2/models/lending/infer", json=body)).json()
        return alone, together, over_http

    alone, together, over_http = served(lending, use)
    logits = library.logit.numpy()
    assert np.allclose([a.output[0, 0] for a in alone], logits[:60], rtol=1e-5, atol=1e-6)
    assert np.allclose(together.output[:, 0], logits, rtol=1e-5, atol=1e-6)
    score, flips = (np.array(output["data"]) for output in over_http["outputs"])
    assert np.allclose(score, logits, rtol=1e-5, atol=1e-6)
    for index, name in enumerate(ATTRIBUTES):
        expected = library.attributes[name].flip_probability.numpy()
        assert np.allclose(together.signals["flip_probability"][name], expected, atol=1e-5)
        assert np.allclose(flips.reshape(300, 2)[:, index], expected, atol=1e-5)
        sensitivity = library.attributes[name].log_prediction_sensitivity.exp().numpy()
        assert np.allclose(together.signals["sensitivity"][name], sensitivity, rtol=1e-4)


def test_rows_unlike_the_training_rows_are_unknown_for_a_stated_reason(lending, tmp_path):
    wrong = ROWS[:40].copy()
    wrong[:, 0] = 1e7
    reason = f"range: {WORLD.features[0].name}"

    async def use(server: Server):
        async with client(server) as endpoint:
            for start in range(0, 300, 50):
                await endpoint.predict(ROWS[start : start + 50])
            assert server.drift is not None
            server.stream.flush()
            before = server.drift.share("sex").share
            result = await endpoint.predict(wrong)
            server.stream.flush()
            seen, after = server.drift.seen, server.drift.share("sex").share
        async with rest(server) as http:
            text = (await http.get("/metrics")).text
        return result, without_model(text), before, after, seen

    result, text, before, after, seen = served(lending, use, traffic={"path": tmp_path / "log"})
    assert result.parameters["evenhand_unknown_reason"] == reason
    assert result.unknown_reasons == (reason,) * 40
    assert not [name for name in result.parameters if "flip_probability" in name]
    assert set(result.verdicts["sex"]) == {"unknown"}
    assert np.isfinite(result.output).all()
    assert 'evenhand_unlike_rows_total{reason="range"} 40.0' in text
    assert 'evenhand_unlike_rows_total{reason="one_hot"} 0.0' in text
    assert after == before
    assert seen == 340
    table = pq.read_table(tmp_path / "log").to_pydict()
    assert [r for r in table["unknown_reason"] if r is not None] == ["range"] * 40
    assert table["decision"].count(None) == 0
    unlike = [i for i, reason in enumerate(table["unknown_reason"]) if reason]
    assert {table["flip_probability_sex"][i] for i in unlike} == {None}


def test_a_data_frame_is_sent_by_column_name(lending):
    pd: Any = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS, columns=NAMES)

    async def use(server: Server):
        async with client(server) as endpoint:
            rows = await endpoint.predict(ROWS)
            shuffled = await endpoint.predict(frame[NAMES[::-1]])
            with pytest.raises(BadRequestError, match=r"no column for 'income'; .* no input 'pay'"):
                await endpoint.predict(frame.rename(columns={"income": "pay"}))
        return rows, shuffled

    rows, shuffled = served(lending, use)
    assert np.array_equal(rows.output, shuffled.output)
    assert rows.verdicts == shuffled.verdicts


def test_metrics_count_requests_and_predictions(lending):
    async def use(server: Server):
        async with client(server) as endpoint:
            for start in range(0, 300, 30):
                await endpoint.predict(ROWS[start : start + 30])
            with pytest.raises(EndpointError, match="INVALID_ARGUMENT"):
                await endpoint.predict(ROWS[:, :3])
        names = ("evenhand_predictions_total", "evenhand_verdicts_total")
        totals = {name: await metric(server, name) for name in names}
        async with rest(server) as http:
            text = (await http.get("/metrics")).text
            opened = await http.get("/metrics", headers={"Accept": "application/openmetrics-text"})
        assert opened.text.endswith("# EOF\n")
        return totals, text

    totals, text = served(lending, use)
    baseline = Judge.load(Bundle.read(lending), warn=False).baseline.levels["sex"].rows
    assert totals == {"evenhand_predictions_total": 300, "evenhand_verdicts_total": 600}
    for line in (
        'evenhand_requests_total{outcome="ok",transport="grpc"} 10.0',
        'evenhand_requests_total{outcome="bad",transport="grpc"} 1.0',
        "evenhand_drift_predictions_total 300.0",
        'evenhand_kernel_info{code="uncompiled",level=""} 1.0',
        'evenhand_flip_share_ratio{attribute="sex",window="all"}',
        'evenhand_flip_share_predictions{attribute="sex",window="all"} 300.0',
        f'evenhand_flip_share_predictions{{attribute="sex",window="baseline"}} {baseline:.1f}',
        'evenhand_flip_share_low_ratio{attribute="sex",window="baseline"}',
        'evenhand_flip_share_lower_bound_ratio{attribute="sex",window="all"}',
        'evenhand_flip_share_lower_bound_low_ratio{attribute="sex",window="all"}',
        'evenhand_flip_share_below_bound{attribute="sex"} 0.0',
        'evenhand_drift_alarm{attribute="sex",detector="share"} 0.0',
        "evenhand_requests_in_flight 0.0",
    ):
        assert line in without_model(text), line
    assert "request_id" not in text


def test_the_metrics_page_lists_exactly_the_exported_metrics(lending, tmp_path):
    async def use(server: Server):
        async with rest(server) as http:
            return (await http.get("/metrics")).text

    logs = {"traffic": {"path": tmp_path / "log"}, "outcomes": {"path": tmp_path / "outcomes"}}
    text = served(lending, use, **logs)
    shown = set(re.findall(r"^# TYPE (evenhand_\S+)", text, re.MULTILINE))
    page = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
    named = set(re.findall(r"^\| `(evenhand_\w+)`", page.read_text(), re.MULTILINE))
    assert shown == named


def test_no_metric_label_contains_a_request_id(lending):
    async def use(server: Server):
        async with client(server) as endpoint:
            for number in range(50):
                await endpoint.predict(ROWS[:1], request_id=f"person-{number}")
        async with rest(server) as http:
            return (await http.get("/metrics")).text

    text = served(lending, use)
    assert "person-" not in text


def test_async_responds_first_and_scores_afterwards(lending):
    async def use(server: Server):
        async with client(server) as endpoint:
            response = await endpoint.predict(ROWS)
        assert response.verdicts == {}
        assert "evenhand_verdict" not in response.parameters
        for _ in range(200):
            if await metric(server, "evenhand_verdicts_total") == 600:
                return response
            await asyncio.sleep(0.02)
        pytest.fail("no row was scored")

    response = served(lending, use, monitoring={"mode": "async"})
    assert len(response.output) == 300


def test_async_drops_and_counts_rows_above_the_limit(lending):
    async def use(server: Server):
        async with client(server) as endpoint:
            await endpoint.predict(ROWS)
        return await metric(server, "evenhand_unscored_predictions_total")

    assert served(lending, use, monitoring={"mode": "async", "async_rows": 10}) == 300


def test_off_predicts_without_scores(lending, library):
    async def use(server: Server):
        async with client(server) as endpoint:
            response = await endpoint.predict(ROWS)
        return response, await metric(server, "evenhand_verdicts_total"), server.introduction

    response, verdicts, introduction = served(lending, use, monitoring={"mode": "off"})
    assert np.allclose(response.output[:, 0], library.logit.numpy(), rtol=1e-5, atol=1e-6)
    assert verdicts == 0
    assert "scoring off" in introduction


def test_a_fault_in_monitoring_changes_no_score_and_is_counted(lending, library, monkeypatch):
    def fails(self, scores):
        raise ValueError("secret")

    monkeypatch.setattr("monitor.scoring.scorer.Scorer.p_values", fails)

    async def use(server: Server):
        async with client(server) as endpoint:
            response = await endpoint.predict(ROWS)
        return response, await metric(server, "evenhand_monitoring_faults_total")

    response, faults = served(lending, use)
    assert np.allclose(response.output[:, 0], library.logit.numpy(), rtol=1e-5, atol=1e-6)
    assert set(response.verdicts["sex"]) == {"unknown"}
    assert response.parameters["evenhand_fault"] == "monitoring failed"
    assert faults >= 1


def test_requests_above_max_in_flight_are_rejected_at_once_and_others_succeed(lending):
    many = np.tile(ROWS, (10, 1))

    async def use(server: Server):
        async with client(server) as endpoint:
            await endpoint.predict(ROWS[:1])
            large = asyncio.create_task(endpoint.predict(many))
            for _ in range(2_000):
                await asyncio.sleep(0.001)
                if server.pipeline.in_flight:
                    break
            with pytest.raises(EndpointError) as error:
                await endpoint.predict(ROWS[:1])
            assert not large.done()
            response = await large
            after = await endpoint.predict(ROWS[:1])
        assert (len(response.output), len(after.output)) == (len(many), 1)
        async with rest(server) as http:
            return error.value, (await http.get("/metrics")).text

    settings: dict[str, Any] = {
        "server": {"max_in_flight": 1},
        "monitoring": {"max_batch_rows": 16},
    }
    error, text = served(lending, use, **settings)
    assert error.status == "RESOURCE_EXHAUSTED"
    assert 'evenhand_requests_total{outcome="shed",transport="grpc"} 1.0' in without_model(text)


def test_drift_state_and_alarms_persist_across_a_restart(lending, tmp_path):
    drift = {"state_path": tmp_path / "state" / "drift.npz", "run_length": 1e6}

    async def first(server: Any):
        async with client(server) as endpoint:
            await endpoint.predict(ROWS)
        # Simulates an alarm.
        server.stream.flush()
        server.drift._alarms.latch(DetectorId("change", "sex"), 300, 9.0)

    async def second(server: Any):
        async with rest(server) as http:
            alarms = (await http.get("/v1/alarms")).json()
            name = {"detector": "change", "attribute": "sex"}
            remaining = await http.post("/v1/alarms/acknowledge", json=name)
            again = await http.post("/v1/alarms/acknowledge", json=name)
            bad = await http.post("/v1/alarms/acknowledge", json={"detector": "weather"})
        return server.drift.seen, alarms, remaining.json(), again.status_code, bad

    served(lending, first, drift=drift)
    seen, alarms, remaining, again, bad = served(lending, second, drift=drift)
    assert seen == 300
    assert [(a["detector"], a["attribute"]) for a in alarms] == [("change", "sex")]
    assert (alarms[0]["cause"], alarms[0]["pages"]) == ("unclear", False)
    assert alarms[0]["flip_share_below_bound"] is False
    assert "too few predictions since the alarm" in alarms[0]["text"]
    assert alarms[0]["since_alarm"]["flip_share"] is None
    assert set(alarms[0]["since_alarm"]["expected_change_by_group"].values()) == {None}
    assert (remaining, again, bad.status_code) == ([], 404, 400)
    assert "error" in bad.json()

    async def third(server: Any):
        return server.drift.seen, server.drift.alarms

    assert served(lending, third, drift=drift) == (300, ())


def test_a_damaged_state_starts_a_new_watch_with_a_log_message(lending, tmp_path, caplog):
    path = tmp_path / "drift.npz"
    path.write_bytes(b"damaged")

    async def use(server: Any):
        return server.drift.seen

    assert served(lending, use, drift={"state_path": path}) == 0
    assert "the drift watch starts from scratch" in caplog.text


def test_reviews_are_recorded_before_the_response(lending, tmp_path):
    async def use(server: Server):
        async with client(server) as endpoint:
            response = await endpoint.predict(ROWS, request_id="loans-1")
            return response, [f.read_text() for f in tmp_path.glob("review-*.jsonl")]

    policy = {"action": "review", "alpha": 0.05, "review_path": tmp_path}
    response, files = served(lending, use, policy=policy)
    held = np.isnan(response.output[:, 0])
    records = [json.loads(line) for line in "".join(files).splitlines()]
    assert [record["row"] for record in records] == np.flatnonzero(held).tolist()
    assert {record["request_id"] for record in records} == {"loans-1"}
    assert held.any()


def test_a_review_that_cannot_be_recorded_is_withheld_and_counted(lending, tmp_path, monkeypatch):
    def fails(self, batch, judged):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("monitor.review.ReviewLog.record", fails)

    async def use(server: Server):
        async with client(server) as endpoint:
            response = await endpoint.predict(ROWS)
        return response, await metric(server, "evenhand_monitoring_faults_total")

    policy = {"action": "review", "alpha": 0.05, "review_path": tmp_path}
    response, faults = served(lending, use, policy=policy)
    assert np.isnan(response.output).any()
    assert faults >= 1


def test_outcomes_are_rejected_without_a_path_for_them(lending):
    async def use(server: Server):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            stub = evenhand_pb2_grpc.MonitorStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.RecordOutcomes(evenhand_pb2.RecordOutcomesRequest())
            return error.value

    error = served(lending, use)
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert "records no outcomes" in error.details()


async def acknowledge(server: Server, address: str = "127.0.0.1", body: bytes = b"{}") -> Any:
    transport = httpx.AsyncHTTPTransport(local_address=address)
    headers = {"X-Forwarded-For": "127.0.0.1"}
    async with httpx.AsyncClient(transport=transport, trust_env=False, headers=headers) as http:
        port = server.rest.port
        return await http.post(f"http://127.0.0.1:{port}/v1/alarms/acknowledge", content=body)


def test_acknowledgements_from_other_addresses_or_if_disabled_are_rejected(lending):
    async def from_another_address(server: Server):
        # Address from which a service mesh forwards requests.
        return await acknowledge(server, "127.0.0.6")

    for settings, use in (
        ({}, from_another_address),
        ({"server": {"acknowledge": "never"}}, acknowledge),
    ):
        response = served(lending, use, **settings)
        assert response.status_code == 403
        assert "kubectl port-forward" in response.json()["error"]


def test_a_large_acknowledgement_is_rejected(lending):
    async def use(server: Server):
        return await acknowledge(server, body=b"x" * 5_000)

    assert served(lending, use).status_code == 413


def test_both_readiness_paths_answer_503_while_the_sidecar_is_not_ready(lending):
    async def use(server: Server):
        server.pipeline.ready = False
        async with rest(server) as http:
            paths = ("/readyz", "/v2/health/ready", "/livez", "/healthz")
            return [(await http.get(path)).status_code for path in paths]

    assert served(lending, use) == [503, 503, 200, 200]


def test_rest_endpoints_for_health_metadata_and_docs(lending):
    async def use(server: Server):
        async with rest(server) as http:
            responses = {}
            for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/healthz",
                         "/livez", "/readyz",
                         "/v2/models/lending", "/v2/models/lending/ready",
                         "/v2/models/lending/versions/1", "/v2/models/lending/versions/1/ready",
                         "/v2/models/nobody", "/v2/models/lending/versions/9/ready", "/nowhere",
                         "/docs", "/openapi.json"):  # fmt: skip
                response = await http.get(path)
                responses[path] = (response.status_code, response.text)
        return responses

    responses = served(lending, use)
    codes = {path: code for path, (code, _) in responses.items()}
    assert {path for path, code in codes.items() if code == 404} == {
        *("/v2/models/nobody", "/v2/models/lending/versions/9/ready", "/nowhere")
    }
    assert set(codes.values()) == {200, 404}
    for path, code in codes.items():
        if code == 404:
            assert list(json.loads(responses[path][1])) == ["error"]
    assert json.loads(responses["/v2"][1])["name"] == "evenhand"
    metadata = json.loads(responses["/v2/models/lending"][1])
    assert metadata["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, 25]}]
    assert metadata["outputs"][0] == {"name": "score", "datatype": "FP32", "shape": [-1, 1]}
    # The page loads no resources of other hosts.
    assert "https://" not in responses["/docs"][1]


def test_tensor_names_are_those_of_the_config(lending):
    async def use(server: Server):
        async with client(server) as endpoint:
            return await endpoint.predict(ROWS[:2])

    names = {"input_name": "INPUT__0", "output_name": "OUTPUT__0"}
    assert served(lending, use, server=names).output.shape == (2, 1)


def test_shutdown_completes_requests_in_flight_and_accepts_no_others(lending):
    many = np.tile(ROWS, (20, 1))

    async def run():
        async with running(lending, monitoring={"max_batch_rows": 16}) as server:
            endpoint = client(server)
            await endpoint.predict(ROWS[:1])
            last = asyncio.create_task(endpoint.predict(many))
            # The request is scored in parts, so the server can stop before its end.
            for _ in range(2_000):
                await asyncio.sleep(0.001)
                if server.pipeline.in_flight:
                    break
            assert server.pipeline.in_flight == 1
        response = await last
        with pytest.raises(EndpointError, match="UNAVAILABLE"):
            await endpoint.predict(ROWS[:1])
        await endpoint.close()
        return response

    assert len(asyncio.run(run()).output) == len(many)


def make(settings) -> None:
    async def run() -> None:
        Server(settings)

    asyncio.run(run())


def test_a_port_in_use_is_named_in_the_error(lending):
    async def use(server: Server):
        for name, port in (("gRPC", server.grpc.port), ("REST", server.rest.port)):
            field = f"{name.lower()}_port"
            with pytest.raises(ServeError, match=f"cannot listen for {name} on 127.0.0.1:{port}"):
                Server(config(lending, server={field: port}))

    served(lending, use)


def test_a_bundle_that_cannot_score_is_rejected(bundle_path):
    with pytest.raises(BundleError, match="create the bundle with `evenhand fit`"):
        make(config(bundle_path))


@pytest.mark.parametrize(
    "policy",
    [{"action": "flag"}, {"attributes": {"sex": {"action": "withhold"}}}, {"on_fault": "withhold"}],
)
def test_a_policy_with_actions_is_rejected_in_async_mode(lending, policy):
    with pytest.raises(ConfigError, match="async responds before it scores"):
        make(config(lending, policy=policy, monitoring={"mode": "async"}))
