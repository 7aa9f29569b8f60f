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
    """Logit of a loan: income, sector and, with a small weight, home ownership."""

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


def loan_rows(seed: int = 0) -> dict[str, np.ndarray]:
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
    """A traffic log and outcomes of the loan rows."""
    root, rows = tmp_path_factory.mktemp("log"), loan_rows()
    columns = TrafficColumns.of(spec())
    logit = (
        rows["income"]
        + 0.8 * rows["sector=care"]
        - 0.4 * rows["sector=trade"]
        + 0.3 * rows["owner"]
    )
    ids = [f"r{index:05d}" for index in range(N)]
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
    outcomes = outcome_table(
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
    write_outcomes(root / "outcomes", outcomes)
    return root


def test_a_window_has_one_finding_per_direction(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        findings = findings_of(window, bundle)
    assert [finding.groups for finding in findings] == [("female", "male"), ("male", "female")]
    for finding in findings:
        assert finding.audit == "fliptest"
        assert finding.outcome == "difference"
        low, high = finding.interval
        assert low < finding.effect < high
        assert finding.adjusted_p_value == pytest.approx(1 / 40)
    # Women have lower values of the features that increase the score.
    women = findings.findings[0].evidence
    assert women["disadvantaged"]["value"] > 5 * women["advantaged"]["value"]
    assert findings.window.rows == N
    assert "POT" in findings.versions


def test_evidence_is_json_without_rows(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        findings = findings_of(window, bundle)
    text = json.dumps(findings.to_dict())
    rows = loan_rows()
    for value in rows["income"][:200]:
        assert f"{value:.6f}"[:7] not in text
    assert "r00001" not in text


def test_files_and_tables_give_the_findings_of_the_window(log, bundle, tmp_path):
    rows = loan_rows()
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "people.parquet")
    csv.write_csv(table, tmp_path / "people.csv")
    with Window.read(log / "log", log / "outcomes") as window:
        expected = findings_of(window, bundle)
    for source in (tmp_path / "people.parquet", str(tmp_path / "people.csv"), table):
        findings = findings_of(source, bundle)
        assert findings.window is None
        for finding, expected_finding in zip(findings, expected, strict=True):
            assert finding.effect == pytest.approx(expected_finding.effect, abs=0.002)
            assert finding.rows == expected_finding.rows


def test_equalized_odds_has_findings_per_label(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        findings = findings_of(window, bundle, criteria=["equalized_odds"])
    assert [finding.metric for finding in findings] == ["flips, label 1"] * 2 + [
        "flips, label 0"
    ] * 2
    assert all(finding.outcome == "difference" for finding in findings)


def test_a_sample_of_the_window_gives_a_warning(log, bundle):
    with Window.read(log / "log", log / "outcomes") as window:
        findings = findings_of(window, bundle, max_rows=300)
    assert findings.findings[0].rows == {"female": 300, "male": 300}
    assert any("sample of the window" in warning for warning in findings.findings[0].warnings)


def test_unknown_groups_cannot_be_determined(log, bundle):
    with Window.read(log / "log") as window:
        findings = findings_of(window, bundle)
    (finding,) = findings
    assert finding.outcome == "cannot be determined"
    assert "none is known" in finding.reason


def test_an_audited_model_needs_the_manifest(log, bundle):
    model = AuditedModel.from_bundle(bundle)
    with Window.read(log / "log", log / "outcomes") as window:
        with pytest.raises(AuditInputError, match="manifest"):
            findings_of(window, model)
        findings = findings_of(window, model, manifest=spec())
    assert len(findings) == 2


def test_an_unknown_attribute_is_named(log, bundle):
    window = Window.read(log / "log", log / "outcomes")
    with window, pytest.raises(UnknownColumnError, match="age"):
        findings_of(window, bundle, ["age"])
    with pytest.raises(UnknownColumnError, match="age"):
        findings_of(pa.table(loan_rows()), bundle, ["age"])


def test_features_missing_from_the_log_are_named(log, tmp_path, bundle):
    columns = TrafficColumns.of(spec(), {"income": "bucket", "owner": "drop"})
    values: dict[str, Any] = {
        name: v for name, v in loan_rows().items() if name not in ("sex", "label", "owner")
    }
    since = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    values |= {"request_id": [f"r{i}" for i in range(N)], "row": np.zeros(N, int)}
    values |= {"time": since + np.arange(N), "decision": np.zeros(N, "i1")}
    write_traffic(tmp_path / "log", traffic_table(values, columns), columns=columns)
    window = Window.read(tmp_path / "log", log / "outcomes")
    with window, pytest.raises(AuditInputError, match="income, owner"):
        findings_of(window, bundle)


def test_missing_columns_of_a_file_are_named(bundle, tmp_path):
    table = pa.table(loan_rows())
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
    class UsesSex(Scores):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return super().forward(features) + 0.8 * features[:, 4] - 0.4

    path = tmp_path / "b"
    write_bundle(path, spec(visible="male"), {"classifier.pt2": export_classifier(UsesSex(), 5)})
    findings = findings_of(pa.table(loan_rows()), path)
    undone = {
        f["name"]: f["undone"]
        for f in findings.findings[0].evidence["transparency"]["disadvantaged"]["features"]
    }
    assert undone["male"] == max(undone.values())
    assert any("do not overlap in male" in w for w in findings.findings[0].warnings)


def test_the_favourable_decision_may_be_0(tmp_path):
    evidence = []
    choices: tuple[Literal[0, 1], ...] = (0, 1)
    for favourable in choices:
        path = tmp_path / str(favourable)
        files = {"classifier.pt2": export_classifier(Scores(), 4)}
        write_bundle(path, spec(favourable=favourable), files)
        evidence.append(findings_of(pa.table(loan_rows()), path).findings[0].evidence)
    favourable_0, favourable_1 = evidence
    assert favourable_0["advantaged"]["value"] == favourable_1["disadvantaged"]["value"]
    assert favourable_0["net"]["value"] == -favourable_1["net"]["value"]
