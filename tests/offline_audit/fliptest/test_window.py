"""FlipTest on windows, files and tables: findings with their evidence."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv
from pyarrow import parquet as pq
from torch import nn

from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
    export_classifier,
    write_bundle,
)
from monitor.traffic.columns import TrafficColumns
from offline_audit import AuditedModel, AuditInputError, Window, audit_window
from offline_audit.errors import UnknownColumnError
from tests.traffic_logs import (
    MODEL,
    START,
    outcome_table,
    traffic_table,
    write_outcomes,
    write_traffic,
)

N = 1_500


def findings_of(source: Any, model: Any, by: Any = None, **options: Any) -> Any:
    """Findings with few resamples."""
    options = {"n_resamples": 39, "n_bootstrap": 10, **options}
    return audit_window(source, {"fliptest": options}, by, model=model, progress=False)


class Scores(nn.Module):
    """Loans by income, by sector, and a little by whether someone owns a home."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features[:, 0] + 0.8 * features[:, 2] - 0.4 * features[:, 3] + 0.3 * features[:, 1]


def spec(*, visible: str | None = None, favourable: Literal[0, 1] = 1) -> BundleSpec:
    features = [
        Feature(name="income", kind="numeric"),
        Feature(name="owner", kind="binary"),
        Feature(name="sector=care", kind="onehot"),
        Feature(name="sector=trade", kind="onehot"),
    ]
    if visible:
        features.append(Feature(name=visible, kind="binary"))
    return BundleSpec(
        model=Model(name=MODEL, version="1"),
        classifier=ClassifierFile(output="logit"),
        features=tuple(features),
        one_hot_groups=(OneHotGroup(name="sector", features=("sector=care", "sector=trade")),),
        protected_attributes=(
            ProtectedAttribute(name="sex", groups=("female", "male"), feature=visible),
        ),
        decision=Decision(favourable=favourable, class_names=("no", "yes")),
        fitted=Fitted.now(seed=0, rows=0),
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "b"
    files = {"classifier.pt2": export_classifier(Scores(), 4)}
    write_bundle(path, spec(), files)
    return path


def people(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sex = np.where(rng.random(N) < 0.4, "female", "male")
    care = rng.random(N) < np.where(sex == "female", 0.3, 0.6)
    return {
        "income": rng.normal(np.where(sex == "female", -0.5, 0.0), 1).astype("f4"),
        "owner": (rng.random(N) < 0.5).astype("f4"),
        "sector=care": care.astype("f4"),
        "sector=trade": (~care).astype("f4"),
        "sex": sex,
        "label": (rng.random(N) < 0.5).astype("i1"),
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log and outcomes of these people."""
    root, rows = tmp_path_factory.mktemp("log"), people()
    columns = TrafficColumns.of(spec())
    logit = (
        rows["income"]
        + 0.8 * rows["sector=care"]
        - 0.4 * rows["sector=trade"]
        + 0.3 * rows["owner"]
    )
    ids = [f"r{place:05d}" for place in range(N)]
    since = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    values = {
        "request_id": ids,
        "row": np.zeros(N, int),
        "time": since + np.arange(N) * 1_000_000,
        "score": 1 / (1 + np.exp(-logit)),
        "logit": logit,
        "decision": (logit >= 0).astype("i1"),
        "boundary_distance": np.abs(logit),
        "action": ["none"] * N,
        **{name: rows[name] for name in rows if name not in ("sex", "label")},
    }
    write_traffic(root / "log", traffic_table(values, columns))
    told = outcome_table(
        {
            "request_id": ids,
            "row": np.zeros(N, int),
            "label": rows["label"],
            "group_sex": rows["sex"],
            "observed_at": values["time"],
            "received_at": values["time"],
            "source": ["file"] * N,
        },
        ("sex",),
    )
    write_outcomes(root / "outcomes", told)
    return root


def test_a_window_has_one_finding_per_direction(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        found = findings_of(window, bundle)
    assert [finding.groups for finding in found] == [("female", "male"), ("male", "female")]
    for finding in found:
        assert finding.audit == "fliptest"
        assert finding.outcome == "difference"
        low, high = finding.interval
        assert low < finding.effect < high
        assert finding.adjusted_p_value == pytest.approx(1 / 40)
    # Women have less of what counts.
    women = found.findings[0].evidence
    assert women["disadvantaged"]["value"] > 5 * women["advantaged"]["value"]
    assert found.window.rows == N
    assert "POT" in found.versions


def test_evidence_is_json_without_rows(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        found = findings_of(window, bundle)
    text = json.dumps(found.to_dict())
    rows = people()
    for value in rows["income"][:200]:
        assert f"{value:.6f}"[:7] not in text
    assert "r00001" not in text


def test_files_and_tables_give_the_findings_of_the_window(log, bundle, tmp_path):
    rows = people()
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "people.parquet")
    csv.write_csv(table, tmp_path / "people.csv")
    with Window.read(log / "log", log / "outcomes") as window:
        expected = findings_of(window, bundle)
    for source in (tmp_path / "people.parquet", str(tmp_path / "people.csv"), table):
        found = findings_of(source, bundle)
        assert found.window is None
        for one, other in zip(found, expected, strict=True):
            assert one.effect == pytest.approx(other.effect, abs=0.002)
            assert one.rows == other.rows


def test_flips_within_labels(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        found = findings_of(window, bundle, criteria=["equalized_odds"])
    assert [finding.metric for finding in found] == ["flips, label 1"] * 2 + ["flips, label 0"] * 2
    assert all(finding.outcome == "difference" for finding in found)


def test_a_sample_of_the_window_is_a_warning(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        found = findings_of(window, bundle, max_rows=300)
    assert found.findings[0].rows == {"female": 300, "male": 300}
    assert any("sample of the window" in warning for warning in found.findings[0].warnings)


def test_unknown_groups_are_not_enough_data(log, bundle):
    with Window.read(log / "log") as window:
        found = findings_of(window, bundle)
    (finding,) = found
    assert finding.outcome == "not enough data"
    assert "none is known" in finding.reason


def test_an_audited_model_needs_the_manifest(log, bundle):
    model = AuditedModel.from_bundle(bundle)
    with Window.read(log / "log", log / "outcomes") as window:
        with pytest.raises(AuditInputError, match="manifest"):
            findings_of(window, model)
        found = findings_of(window, model, manifest=spec())
    assert len(found) == 2


def test_an_unknown_attribute_is_named(log, bundle):
    window = Window.read(log / "log", log / "outcomes")
    with window, pytest.raises(UnknownColumnError, match="age"):
        findings_of(window, bundle, ["age"])
    with pytest.raises(UnknownColumnError, match="age"):
        findings_of(pa.table(people()), bundle, ["age"])


def test_features_missing_from_the_log_are_named(log, tmp_path, bundle):
    columns = TrafficColumns.of(spec(), {"income": "bucket", "owner": "drop"})
    values: dict[str, Any] = {
        name: v for name, v in people().items() if name not in ("sex", "label", "owner")
    }
    since = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    values |= {"request_id": [f"r{i}" for i in range(N)], "row": np.zeros(N, int)}
    values |= {"time": since + np.arange(N), "decision": np.zeros(N, "i1")}
    write_traffic(tmp_path / "log", traffic_table(values, columns), columns=columns)
    window = Window.read(tmp_path / "log", log / "outcomes")
    with window, pytest.raises(AuditInputError, match="income, owner"):
        findings_of(window, bundle)


def test_missing_columns_of_a_file_are_named(bundle, tmp_path):
    table = pa.table(people())
    with pytest.raises(AuditInputError, match="income"):
        findings_of(table.drop_columns("income"), bundle)
    with pytest.raises(AuditInputError, match="group_sex"):
        findings_of(table.drop_columns("sex"), bundle)
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    with pytest.raises(AuditInputError, match="not a readable Parquet or CSV"):
        findings_of(tmp_path / "broken.parquet", bundle)
    with pytest.raises(AuditInputError, match="no such file"):
        findings_of(tmp_path / "absent.parquet", bundle)


def test_a_protected_feature_is_read_from_the_group(tmp_path):
    class Sees(Scores):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return super().forward(features) + 0.8 * features[:, 4] - 0.4

    path = tmp_path / "b"
    write_bundle(path, spec(visible="male"), {"classifier.pt2": export_classifier(Sees(), 5)})
    found = findings_of(pa.table(people()), path)
    plain = {
        f["name"]: f["undone"]
        for f in found.findings[0].evidence["transparency"]["disadvantaged"]["features"]
    }
    assert plain["male"] == max(plain.values())
    assert any("do not overlap in male" in w for w in found.findings[0].warnings)


def test_the_favourable_decision_may_be_0(tmp_path):
    paths = []
    choices: tuple[Literal[0, 1], ...] = (0, 1)
    for favourable in choices:
        path = tmp_path / str(favourable)
        files = {"classifier.pt2": export_classifier(Scores(), 4)}
        write_bundle(path, spec(favourable=favourable), files)
        paths.append(findings_of(pa.table(people()), path).findings[0].evidence)
    turned, plain = paths
    assert turned["advantaged"]["value"] == plain["disadvantaged"]["value"]
    assert turned["net"]["value"] == -plain["net"]["value"]
