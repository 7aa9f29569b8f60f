"""The sidecar logs predictions in named columns, and outcomes separately."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path
from typing import Any

import duckdb
import grpc
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import dataset

from monitor import Bundle, FitData, Judge, Model, fit
from monitor.batching import Waiting
from monitor.errors import ConfigError, ServeError
from monitor.fitting.spec import ProtectedColumn
from monitor.server import Server
from monitor.traffic.columns import TrafficColumns
from monitor.traffic.outcomes import ProtectedFeatures
from monitor.wire import evenhand_pb2 as own
from monitor.wire import evenhand_pb2_grpc as services
from tests.bundles import small_spec
from tests.families import seeded
from tests.serving import ATTRIBUTES, NAMES, PEOPLE, SPEC, WORLD, served
from tests.sidecar_log import REQUESTS, rows_of, send_outcomes, send_requests


def read(folder: Path) -> pa.Table:
    files = sorted(folder.rglob("*.parquet"))
    return (
        pa.concat_tables([dataset.dataset(f).to_table() for f in files]) if files else pa.table({})
    )


def every_byte(*folders: Path) -> bytes:
    return b"".join(f.read_bytes() for folder in folders for f in folder.rglob("*") if f.is_file())


def test_every_prediction_is_logged_with_its_features_and_scores(logged, lending):
    table = read(logged.log).sort_by([("request_id", "ascending"), ("row", "ascending")])
    names = sorted(logged.scores)
    pairs = [(name, row) for name in names for row in range(len(logged.scores[name]))]
    assert (
        list(zip(table["request_id"].to_pylist(), table["row"].to_pylist(), strict=True)) == pairs
    )
    rows = np.concatenate([rows_of(int(name.partition("-")[2])) for name in names])
    for index, name in enumerate(NAMES):
        np.testing.assert_array_equal(table[name].to_numpy(), rows[:, index])
    judge = Judge.load(Bundle.read(lending), warn=False)
    scores = judge.scores(torch.from_numpy(rows))
    answered = np.concatenate([logged.scores[name].ravel() for name in names])
    np.testing.assert_array_equal(table["logit"].to_numpy(), answered)
    np.testing.assert_allclose(table["score"].to_numpy(), 1 / (1 + np.exp(-answered)), rtol=1e-6)
    assert table["decision"].to_pylist() == scores.decision.int().tolist()
    assert scores.boundary_distance is not None
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(table["boundary_distance"], scores.boundary_distance, **close)
    for name in ATTRIBUTES:
        signals = scores.attributes[name]
        assert signals.log_prediction_sensitivity is not None
        np.testing.assert_allclose(
            table[f"prediction_sensitivity_{name}"],
            signals.log_prediction_sensitivity.double().exp(),
            **close,
        )
        np.testing.assert_allclose(
            table[f"flip_probability_{name}"], signals.flip_probability, **close
        )
        np.testing.assert_allclose(
            table[f"expected_change_{name}"], signals.expected_change, **close
        )
        p_values = judge.p_values(scores, name)
        likely_flip, unusual = signals.flip_probability.numpy() >= 0.5, p_values <= 0.01
        assert table[f"likely_flip_{name}"].to_pylist() == likely_flip.tolist()
        assert table[f"unusual_{name}"].to_pylist() == unusual.tolist()
        verdicts = np.where(likely_flip | unusual, "above", "within")
        assert table[f"verdict_{name}"].to_pylist() == verdicts.tolist()
        np.testing.assert_allclose(
            table[f"p_value_{name}"].to_numpy(),
            p_values,
            atol=0.01,
        )


def test_duckdb_reads_the_log_and_joins_outcomes(logged):
    log, outcomes = (f"'{path}/**/*.parquet'" for path in (logged.log, logged.outcomes))
    with duckdb.connect() as connection:
        ((count, labelled, model, version),) = connection.execute(
            f"select count(*), count(label), any_value(model), any_value(version) "  # noqa: S608
            f"from {log} left join {outcomes} using (request_id, row, model)"
        ).fetchall()
    assert (count, labelled) == (2 * REQUESTS, REQUESTS // 2)
    assert (model, str(version)) == ("lending", "1")


@pytest.mark.parametrize("mode", ["async", "off"])
def test_other_modes_are_logged_too(lending, tmp_path, mode):
    scores = served(lending, send_requests, traffic={"path": tmp_path}, monitoring={"mode": mode})
    table = read(tmp_path)
    assert set(table["request_id"].to_pylist()) == set(scores)
    assert len(table) == 2 * REQUESTS
    assert table["decision"].null_count == 0
    unjudged = len(table) if mode == "off" else 0
    assert table["verdict_sex"].null_count == unjudged
    assert table["flip_probability_sex"].null_count == unjudged


def test_async_mode_logs_predictions_that_were_not_scored(lending, tmp_path):
    monitoring = {"mode": "async", "async_rows": 1}
    scores = served(lending, send_requests, traffic={"path": tmp_path}, monitoring=monitoring)
    table = read(tmp_path)
    assert sorted(set(table["request_id"].to_pylist())) == sorted(scores)
    assert len(table) == 2 * REQUESTS
    assert table["verdict_sex"].null_count > 0


def test_a_prediction_that_could_not_be_scored_is_logged_without_signals(
    lending, tmp_path, monkeypatch
):
    def broken(self, features):
        raise RuntimeError("no gradient today")

    monkeypatch.setattr(Judge, "joint", broken)
    scores = served(lending, send_requests, traffic={"path": tmp_path})
    table = read(tmp_path)
    assert len(table) == 2 * REQUESTS
    assert set(table["verdict_sex"].to_pylist()) == {"unknown"}
    assert table["flip_probability_sex"].null_count == len(table)
    answered = {name: score.ravel()[0] for name, score in scores.items()}
    first = table.filter(pa.compute.equal(table["row"], 0))
    logits = dict(zip(first["request_id"].to_pylist(), first["logit"].to_pylist(), strict=True))
    assert logits == pytest.approx(answered)


def test_with_a_key_no_file_contains_an_id_and_outcomes_can_be_joined(lending, tmp_path):
    log, outcomes, key = tmp_path / "log", tmp_path / "outcomes", tmp_path / "key"
    key.write_bytes(os.urandom(32))

    async def use(server: Server):
        await send_requests(server)
        await send_outcomes(server, [{"request_id": f"person-{n}", "label": 1} for n in range(10)])

    settings = {"path": log, "key_path": key}
    served(lending, use, traffic=settings, outcomes={"path": outcomes})
    assert b"person-" not in every_byte(log, outcomes)
    ids = [set(read(folder)["request_id"].to_pylist()) for folder in (log, outcomes)]
    assert len(ids[0]) == REQUESTS
    assert len(ids[1]) == 10
    assert ids[1] < ids[0]
    assert not any("person" in name for name in ids[0])


def test_features_are_kept_hashed_dropped_and_bucketed(lending, tmp_path):
    key, log = tmp_path / "key", tmp_path / "log"
    key.write_bytes(os.urandom(32))
    group = next(iter(WORLD.one_hot_groups))
    first, second = "income", "loan_amount"
    binary = next(f.name for f in WORLD.features if f.kind == "binary")
    treated = {
        first: {"treatment": "bucket", "width": 500},
        second: "bucket",
        binary: "hash",
        group.name: "drop",
    }
    served(lending, send_requests, traffic={"path": log, "key_path": key, "features": treated})
    table = read(log)
    assert not set(group.features) & set(table.column_names)
    rows = {f"person-{n}": rows_of(n) for n in range(REQUESTS)}
    index = NAMES.index(first)
    buckets = table[first].to_numpy()
    assert set(np.unique(buckets % 500)) == {0}
    low = {float(b) for b in buckets}
    assert low == {float(500 * (v // 500)) for r in rows.values() for v in r[:, index]}
    assert len(set(table[second].to_pylist())) <= 40
    assert {len(text) for text in table[binary].to_pylist()} == {16}
    assert len(set(table[binary].to_pylist())) == 2


def test_a_treatment_of_an_unknown_feature_is_rejected(lending, tmp_path):
    with pytest.raises(ConfigError, match=r"traffic\.features\.incme"):
        served(lending, send_requests, traffic={"path": tmp_path, "features": {"incme": "drop"}})


def test_a_feature_with_the_name_of_a_log_column_gets_a_prefix():
    spec = small_spec()
    features = tuple(
        feature.model_copy(update={"name": name})
        for feature, name in zip(spec.features, ("Score", "score", *"cdefghij"), strict=False)
    )
    renamed = [f.name for f in features]
    columns = TrafficColumns.of(spec.model_copy(update={"features": features}))
    names = [column.name for column in columns.features]
    folded = [name.casefold() for name in columns.schema.names]
    assert len(set(folded)) == len(folded)
    assert names[:2] == ["feature_Score", "feature_score_2"]
    assert [column.feature for column in columns.features][: len(names)] == [
        name for name in renamed if name in {c.feature for c in columns.features}
    ]


@pytest.fixture(scope="module")
def owners(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A bundle of which a protected attribute is a feature, and that feature."""
    index, feature = next((i, f) for i, f in enumerate(WORLD.features) if f.kind == "binary")
    groups = (PEOPLE.features[:, index] == 1).astype(np.int64)
    spec = SPEC.model_copy(
        update={
            "model": Model(name="lending", version="own"),
            "protected_attributes": (
                ProtectedColumn(
                    name="own", groups=("no", "yes"), feature=feature.name, column="own"
                ),
            ),
        }
    )
    path = tmp_path_factory.mktemp("owners") / "bundle"
    data = FitData(features=PEOPLE.features, groups={"own": groups})
    fit(seeded("MLP"), data, spec, path, compiled=False)
    return path, feature.name


def test_a_protected_feature_is_recorded_with_the_outcomes_only(owners, tmp_path):
    bundle, feature = owners
    log, outcomes = tmp_path / "log", tmp_path / "outcomes"
    served(bundle, send_requests, traffic={"path": log}, outcomes={"path": outcomes})
    assert feature not in read(log).column_names
    result = read(outcomes).to_pylist()
    index = NAMES.index(feature)
    assert {(r["request_id"], r["row"]): r["group_own"] for r in result} == {
        (f"person-{n}", row): "yes" if values[index] == 1 else "no"
        for n in range(REQUESTS)
        for row, values in enumerate(rows_of(n))
    }
    assert {r["source"] for r in result} == {"feature"}


def test_groups_are_decoded_from_binary_and_one_hot_features():
    spec = small_spec()
    attribute = spec.protected_attributes[0]
    onehot = spec.one_hot_groups[0]
    sizes = len(onehot.features) + (onehot.dropped is not None)
    groups = tuple(f"g{n}" for n in range(sizes))
    changed = attribute.model_copy(
        update={"name": "kind", "groups": groups, "feature": onehot.name}
    )
    own_groups = ProtectedFeatures(spec.model_copy(update={"protected_attributes": (changed,)}))
    indices = [[f.name for f in spec.features].index(name) for name in onehot.features]
    rows = np.zeros((len(indices) + 2, len(spec.features)), np.float32)
    for number, index in enumerate(indices):
        rows[number, index] = 1
    rows[-1, indices] = 0.5

    async def make() -> list[Waiting]:
        future = asyncio.get_running_loop().create_future
        return [Waiting("r", 5, rows, 0.0, future())]

    result = {o.row - 5: o.groups for o in own_groups.outcomes(asyncio.run(make()), rows)}
    expected = {n: {"kind": f"g{n}"} for n in range(len(indices))}
    if onehot.dropped is not None:
        expected[len(indices)] = {"kind": f"g{len(indices)}"}
    assert result == expected


def test_outcomes_are_recorded_or_rejected_and_private(lending, tmp_path):
    async def use(server: Server):
        good = own.Outcome(request_id="a", row=1, label=1, groups={"sex": "man"})
        timed = own.Outcome(request_id="a", label=0)
        timed.observed_at.FromJsonString("2026-01-02T03:04:05Z")
        bad = [
            own.Outcome(request_id="", label=1),
            own.Outcome(request_id="a"),
            own.Outcome(request_id="a", label=2),
            own.Outcome(request_id="a", groups={"sex": "mann"}),
            own.Outcome(request_id="a", groups={"age": "old"}),
            own.Outcome(request_id="a", row=2**32 - 1, label=1),
        ]
        late = own.Outcome(request_id="a", label=1)
        late.observed_at.FromJsonString("2999-01-01T00:00:00Z")
        request = own.RecordOutcomesRequest(outcomes=[good, timed, *bad, late])
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            answer = await services.MonitorStub(channel).RecordOutcomes(request)
        return answer, await send_outcomes(server, [{"request_id": "b", "label": True}])

    answer, rest = served(lending, use, outcomes={"path": tmp_path / "outcomes"})
    assert answer.recorded == 2
    assert [rejection.index for rejection in answer.refusals] == [2, 3, 4, 5, 6, 7, 8]
    assert "mann" not in str(answer)
    assert "man, woman" in answer.refusals[3].reason
    assert rest.status_code == 400
    assert "outcomes.0.label" in rest.json()["error"]
    result = read(tmp_path / "outcomes").to_pylist()
    assert [(r["request_id"], r["row"], r["label"], r["group_sex"]) for r in result] == [
        ("a", 1, 1, "man"),
        ("a", 0, 0, None),
    ]
    assert result[1]["observed_at"].isoformat() == "2026-01-02T03:04:05+00:00"
    for path in (tmp_path / "outcomes").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_outcomes_that_cannot_be_written_can_be_sent_again(lending, tmp_path, monkeypatch):
    real, broken = os.write, [True]

    def write(handle: int, data: bytes) -> int:
        if broken[0] and b"EVH" in data[:4]:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    async def use(server: Server):
        monkeypatch.setattr(os, "write", write)
        first = await send_outcomes(server, [{"request_id": "a", "label": 1}])
        broken[0] = False
        return first, await send_outcomes(server, [{"request_id": "a", "label": 1}])

    first, second = served(lending, use, outcomes={"path": tmp_path})
    assert (first.status_code, second.status_code) == (503, 200)
    assert len(read(tmp_path)) == 1


def test_a_hung_disk_of_outcomes_delays_neither_predictions_nor_shutdown(
    lending, tmp_path, monkeypatch
):
    real, hung = os.write, threading.Event()

    def write(handle: int, data: bytes) -> int:
        if threading.current_thread().name.startswith("traffic-outcomes"):
            hung.wait(30)
        return real(handle, data)

    async def use(server: Server):
        monkeypatch.setattr(os, "write", write)
        requests = [
            asyncio.create_task(send_outcomes(server, [{"request_id": "a", "label": 1}]))
            for _ in range(80)
        ]
        await asyncio.sleep(0.5)
        await send_requests(server, 20)
        rejected_codes = [task.result().status_code for task in requests if task.done()]
        hung.set()
        answers = [answer.status_code for answer in await asyncio.gather(*requests)]
        return rejected_codes, answers

    paths = {"traffic": {"path": tmp_path / "log"}, "outcomes": {"path": tmp_path / "outcomes"}}
    rejected_codes, answers = served(lending, use, server={"max_in_flight": 20}, **paths)
    assert set(rejected_codes) == {429}
    assert answers.count(200) == 64
    assert len(read(tmp_path / "log")) == 39
    assert len(read(tmp_path / "outcomes")) == 64


def test_an_invalid_setting_does_not_leave_a_lock(lending, tmp_path):
    traffic = {"path": tmp_path / "log", "features": {"incme": "drop"}}
    for _ in range(2):
        with pytest.raises(ConfigError, match="incme"):
            served(
                lending, send_requests, traffic=traffic, outcomes={"path": tmp_path / "outcomes"}
            )


@pytest.mark.parametrize("inside", ["", "outcomes", "x/../outcomes"])
def test_outcomes_must_not_be_inside_the_traffic_log(lending, tmp_path, inside):
    with pytest.raises(ConfigError, match="overlap"):
        served(
            lending, send_requests, traffic={"path": tmp_path}, outcomes={"path": tmp_path / inside}
        )


def test_a_directory_of_another_sidecar_is_rejected(lending, tmp_path):
    async def use(server: Server):
        with pytest.raises(ServeError, match="another process writes to this directory"):
            Server(server.config)

    served(lending, use, traffic={"path": tmp_path})
