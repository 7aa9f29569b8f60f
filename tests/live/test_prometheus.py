"""The metrics, queries and alerts of the docs, in the real promtool and Prometheus."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from monitor import Client
from monitor.client import EndpointError
from tests.live.prometheus import Prometheus, PrometheusUnavailableError, executable, prometheus
from tests.live.sidecar import MODEL, Fitted, Sidecar, often_flipping, sidecar

pytestmark = pytest.mark.live

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
FAMILIES = set(re.findall(r"^\| `(evenhand_\w+)`", PAGE, re.MULTILINE))
QUERIES = [
    query
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL)
    for query in block.strip().split("\n\n")
]
(RULES,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ALARM = 'evenhand_drift_alarm{attribute="sex",detector="change"}'


@pytest.fixture(scope="module")
def monitored(uncompiled: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """A sidecar that has seen ordinary traffic, errors, outcomes, and rows that often flip."""
    home = tmp_path_factory.mktemp("monitored")
    config: dict[str, Any] = {
        "server": {"non_finite": "pass"},
        "metrics": {"exemplars": True},
        "drift": {
            "run_length": 1e4,
            "window": 400,
            "state_path": str(home / "drift.npz"),
            "save_seconds": 0.2,
        },
        "traffic": {"path": str(home / "log")},
        "outcomes": {"path": str(home / "outcomes")},
    }
    with sidecar(uncompiled, home, config) as running:
        send_ordinary_requests(running, uncompiled.rows)
        with Client(running.grpc, model=MODEL) as client:
            client.predict(often_flipping(uncompiled, 900))
        assert running.metric_reaches(ALARM, 1)
        yield running


def send_ordinary_requests(running: Sidecar, rows: np.ndarray) -> None:
    """Requests over both transports, some of them refused, and outcomes."""
    body = {"shape": [3, rows.shape[1]], "datatype": "FP32", "data": rows[:3].tolist()}
    with Client(running.grpc, model=MODEL) as client:
        for start in range(0, 200, 20):
            client.predict(rows[start : start + 20], request_id=f"loan-{start}")
        client.predict(np.full_like(rows[:2], np.nan))
        with pytest.raises(EndpointError):
            client.predict(rows[:2, :3])
    for name, status in (("features", 200), ("wrong", 400)):
        reply = httpx.post(running.infer_url, json={"inputs": [{"name": name, **body}]})
        assert reply.status_code == status
    outcomes = [
        {"request_id": "loan-20", "label": 1, "groups": {"sex": "woman"}},
        {"request_id": "loan-40", "label": 1, "groups": {"weather": "sunny"}},
    ]
    reply = httpx.post(f"{running.url}/v1/outcomes", json={"outcomes": outcomes})
    assert reply.json()["recorded"] == 1


@pytest.fixture
def promtool(skip_or_fail: Callable[[str], None]) -> Path:
    return found("promtool", skip_or_fail)


def found(name: str, skip_or_fail: Callable[[str], None]) -> Path:
    try:
        return executable(name)
    except PrometheusUnavailableError as error:
        skip_or_fail(str(error))
        raise


def check(promtool: Path, *arguments: str | Path, text: str = "") -> str:
    """Output of promtool, which must succeed."""
    command = [promtool, *arguments]
    done = subprocess.run(command, input=text, check=False, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    return output


def test_promtool_has_no_complaint_about_any_metric(monitored, promtool):
    text = httpx.get(f"{monitored.url}/metrics").text
    samples = re.findall(r"^(evenhand_\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ", text, re.MULTILINE)
    assert {name for name, _ in samples} == FAMILIES
    assert all(f'model="{MODEL}"' in labels for _, labels in samples)
    assert check(promtool, "check", "metrics", text=text) == ""
    bad = '# HELP evenhand_new New.\n# TYPE evenhand_new gauge\nevenhand_new{quantile="0.5"} 1\n'
    with pytest.raises(AssertionError, match='should not have "quantile" label'):
        check(promtool, "check", "metrics", text=text + bad)


def test_a_new_cause_changes_the_text_of_an_alert_and_not_its_identity(promtool, tmp_path):
    alarm = 'evenhand_drift_alarm{model="lending",attribute="sex",detector="change",instance="a"}'
    cause = alarm.replace("alarm{", "alarm_cause_info{")[:-1] + ',cause="%s"}'
    series = {alarm: "0 1 1 1 1 1", cause % "unclear": "_ 1 1 stale", cause % "model": "_ _ _ 1 1"}
    labels = {"model": MODEL, "attribute": "sex", "detector": "change", "severity": "warning"}
    summary = "lending: alarm change sex"
    expected = [
        {
            "eval_time": minutes,
            "alertname": "EvenhandDrift",
            "exp_alerts": [
                {
                    "exp_labels": labels,
                    "exp_annotations": {
                        "summary": summary,
                        "description": "Scores have changed, which need not be unfair. "
                        f"Likely cause: {likely} ",
                    },
                }
            ],
        }
        for minutes, likely in (("2m", "unclear"), ("4m", "model"))
    ]
    case = {
        "interval": "1m",
        "input_series": [{"series": s, "values": values} for s, values in series.items()],
        "alert_rule_test": expected,
    }
    (tmp_path / "rules.yaml").write_text(RULES)
    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    assert "5 rules found" in check(promtool, "check", "rules", tmp_path / "rules.yaml")
    check(promtool, "test", "rules", tests)


@pytest.fixture(scope="module")
def server(
    monitored: Sidecar,
    uncompiled: Fitted,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    """A server that scrapes the sidecar under two names, as if there were two replicas."""
    required = request.config.getoption("--require-components")
    found("prometheus", pytest.fail if required else pytest.skip)
    port = monitored.url.rpartition(":")[2]
    targets = [f"127.0.0.1:{port}", f"localhost:{port}"]
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus(folder, targets, yaml.safe_load(RULES)) as running:
        end = time.monotonic() + 30
        counted = "rate(evenhand_flip_probability_count[1m]) > 0"
        with Client(monitored.grpc, model=MODEL) as client:
            while len(running.query(counted)) < 4:
                client.predict(uncompiled.rows[:10])
                assert time.monotonic() < end
                time.sleep(0.2)
        yield running


def test_prometheus_scrapes_every_metric_of_every_replica_by_model(server):
    """The scrape is in OpenMetrics, whose rules are stricter than those of the text format."""
    assert {sample["value"][1] for sample in server.query("up")} == {"1"}
    counts = server.query('count by (model, instance) ({__name__=~"evenhand_.+"})')
    assert {sample["metric"].get("model") for sample in counts} == {MODEL}
    assert len(counts) == 2
    families = server.query('count by (__name__) ({__name__=~"evenhand_.+"})')
    names = {re.sub("_(bucket|sum|count)$", "", s["metric"]["__name__"]) for s in families}
    assert names == FAMILIES


@pytest.mark.parametrize("query", QUERIES)
def test_queries_of_the_docs_aggregate_replicas(server, query):
    samples = server.query(query)
    assert {sample["metric"]["model"] for sample in samples} == {MODEL}
    assert all("instance" not in sample["metric"] for sample in samples)
    assert all(np.isfinite(float(sample["value"][1])) for sample in samples)


def test_flip_shares_of_equal_replicas_average_to_the_share_of_one(server, monitored):
    (query,) = (q for q in QUERIES if "evenhand_flip_share_predictions" in q)
    expected = {
        name: monitored.metric(f'evenhand_flip_share_ratio{{attribute="{name}",window="rolling"}}')
        for name in ("sex", "ethnicity")
    }
    end = time.monotonic() + 30
    # The newest scrape may be older than the last request.
    while averages(server.query(query)) != pytest.approx(expected):
        assert time.monotonic() < end
        time.sleep(0.2)


def averages(samples: list[dict[str, Any]]) -> dict[str, float]:
    """Values by attribute."""
    return {sample["metric"]["attribute"]: float(sample["value"][1]) for sample in samples}


def test_alerts_of_the_docs_name_the_model_and_one_cause(server):
    end = time.monotonic() + 30
    while "EvenhandDrift" not in (names := {a["labels"]["alertname"] for a in server.alerts()}):
        assert time.monotonic() < end, names
        time.sleep(0.2)
    drifts = [a for a in server.alerts() if a["labels"]["alertname"] == "EvenhandDrift"]
    identities = [tuple(sorted(alert["labels"].items())) for alert in drifts]
    assert len(set(identities)) == len(identities)
    (change,) = (
        alert
        for alert in drifts
        if (alert["labels"]["detector"], alert["labels"].get("attribute")) == ("change", "sex")
    )
    assert change["labels"].keys() == {"alertname", "model", "attribute", "detector", "severity"}
    assert re.search(
        r"Likely cause: (covariates|model|treatment|unclear) ?$",
        change["annotations"]["description"],
    )
