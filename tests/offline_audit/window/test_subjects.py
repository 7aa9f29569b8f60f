"""Windows with repeated people: rows of one person are permuted together in every audit."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor import export_classifier, write_bundle
from monitor.traffic.columns import SUBJECT, TrafficColumns, group_column
from offline_audit import Window, audit_window, permutation_test, projection_test
from tests.offline_audit.test_contract import QUICK, SPEC, Scores
from tests.traffic_logs import (
    START,
    outcome_table,
    traffic_table,
    write_outcomes,
    write_traffic,
)

PEOPLE, TIMES = 300, 4
RNG = np.random.default_rng(17)
PERSON = np.repeat(np.arange(PEOPLE), TIMES)
FEMALE = RNG.random(PEOPLE) < 0.5
FEATURES = RNG.normal(np.where(FEMALE, -0.3, 0.2)[:, None], 1.0, (PEOPLE, 2)).astype(np.float32)
LABELS = (RNG.random(PEOPLE) < 1 / (1 + np.exp(-FEATURES.sum(1)))).astype(int)


def write(
    folder: Path, *, subjects: Any = None, sexes: Any = None, columns: Any = ("sex",)
) -> Path:
    """A log in which everyone asks four times with the same features; columns `[n]`."""
    n, logit = len(PERSON), FEATURES.sum(1)[PERSON]
    start = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    keys = {"request_id": [f"r{i:05d}" for i in range(n)], "row": np.zeros(n, int)}
    times = start + np.arange(n) * 1_000_000
    traffic = {
        **keys,
        "time": times,
        "score": 1 / (1 + np.exp(-logit)),
        "logit": logit,
        "decision": (logit >= 0).astype("i1"),
        "boundary_distance": np.abs(logit) / np.sqrt(2),
        "action": ["none"] * n,
        "income": FEATURES[PERSON, 0],
        "savings": FEATURES[PERSON, 1],
    }
    names = np.where(FEMALE, "female", "male")[PERSON] if sexes is None else sexes
    outcomes = {
        **keys,
        "label": LABELS[PERSON],
        group_column("sex"): names,
        "observed_at": times,
        "received_at": times,
        "source": ["file"] * n,
    }
    known = TrafficColumns.of(SPEC)
    write_traffic(folder / "log", traffic_table(traffic, known), columns=known)
    table = outcome_table(outcomes, columns)
    if subjects is not None:
        table = table.append_column(SUBJECT, pa.array(subjects, pa.string()))
    write_outcomes(folder / "outcomes", table)
    write_bundle(folder / "bundle", SPEC, {"classifier.pt2": export_classifier(Scores(), 2)})
    return folder


def audited(folder: Path, audit: str, **options: Any) -> Any:
    with Window.read(folder / "log", folder / "outcomes") as window:
        return audit_window(
            window,
            {audit: {**QUICK.get(audit, {}), **options}},
            "sex",
            model=folder / "bundle",
            progress=False,
        )


NAMES = [f"person {n}" for n in PERSON]


@pytest.fixture(scope="module")
def named(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("named"), subjects=NAMES)


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp("unnamed"))


def test_a_window_has_the_subjects_of_its_rows(named, unnamed):
    with Window.read(named / "log", named / "outcomes") as window:
        assert window.has_subjects
        table = pa.Table.from_batches(window.batches(["request_id", SUBJECT]))
        rows = zip(table["request_id"].to_pylist(), table[SUBJECT].to_pylist(), strict=True)
        assert dict(rows) == {f"r{i:05d}": name for i, name in enumerate(NAMES)}
        assert SUBJECT in window.sample(5, ["sex"]).column_names
        assert not any(SUBJECT in warning for warning in window.provenance.warnings)
    with Window.read(unnamed / "log", unnamed / "outcomes") as window:
        assert not window.has_subjects
        assert SUBJECT not in window.table.columns


def test_permutation_findings_are_those_of_people(named, unnamed):
    """As many p-values as for the arrays with units; intervals are twice as wide as without."""
    decisions = (FEATURES.sum(1) >= 0).astype(int)
    for metric in ("selection_rate", "auc", "mean_score"):
        (finding,) = audited(named, "permutation", metrics=[metric], n_resamples=499)
        (without,) = audited(unnamed, "permutation", metrics=[metric], n_resamples=499)
        expected = permutation_test(
            metrics=metric,
            groups={"sex": np.where(FEMALE, "female", "male")[PERSON]},
            decisions=decisions[PERSON],
            labels=LABELS[PERSON],
            scores=1 / (1 + np.exp(-FEATURES.sum(1).astype(float)))[PERSON],
            units=PERSON,
            n_resamples=499,
            progress=False,
        )[0]
        assert finding.p_value == pytest.approx(expected.p_value, abs=0.02)
        assert finding.interval == pytest.approx(expected.interval, abs=1e-4)
        assert finding.rows == without.rows
        widths = [high - low for low, high in (finding.interval, without.interval)]
        assert widths[0] > 1.7 * widths[1]
        assert not any("exact copies" in text for text in finding.warnings)
        assert any("record `evenhand_subject`" in text for text in without.warnings)


def test_projection_findings_are_those_of_people(named, unnamed):
    finding, without = (
        next(iter(audited(folder, "projection", criteria=["statistical_parity"])))
        for folder in (named, unnamed)
    )
    logit = FEATURES.sum(1)[PERSON]
    expected = projection_test(
        groups={"sex": np.where(FEMALE, "female", "male")[PERSON]},
        decisions=logit >= 0,
        distances=(np.abs(logit) / np.sqrt(2)).astype(np.float32),
        units=PERSON,
    )
    assert finding.p_value == pytest.approx(expected.p_value, rel=1e-6)
    assert without.p_value < finding.p_value / 5
    assert any("record `evenhand_subject`" in text for text in without.warnings)
    assert not any("exact copies" in text for text in finding.warnings)


def test_fliptest_findings_are_those_of_people(named, unnamed):
    finding, without = (next(iter(audited(folder, "fliptest"))) for folder in (named, unnamed))
    assert finding.rows == without.rows
    widths = [f.share_interval[1] - f.share_interval[0] for f in (finding, without)]
    assert widths[0] > 1.3 * widths[1]
    assert any("record `evenhand_subject`" in text for text in without.warnings)
    assert not any("exact copies" in text for text in finding.warnings)


@pytest.mark.parametrize("audit", ["permutation", "projection", "fliptest"])
def test_rows_without_a_subject_are_people_of_their_own_and_counted(tmp_path, audit):
    some = [name if n < 400 else None for n, name in enumerate(NAMES)]
    folder = write(tmp_path, subjects=some)
    options = {"metrics": ["selection_rate"]} if audit == "permutation" else {}
    for finding in audited(folder, audit, **options):
        assert "800 of 1,200 rows are without a subject; each counts as another person." in (
            finding.warnings
        )


@pytest.mark.parametrize("audit", ["permutation", "projection", "fliptest"])
def test_people_with_several_groups_are_excluded_and_counted(tmp_path, audit):
    sexes = np.where(FEMALE, "female", "male")[PERSON].copy()
    sexes[[0, 4]] = np.where(sexes[[0, 4]] == "male", "female", "male")
    folder = write(tmp_path, subjects=NAMES, sexes=sexes)
    options = {"metrics": ["selection_rate"]} if audit == "permutation" else {}
    for finding in audited(folder, audit, **options):
        assert "8 rows of 2 people with several groups are excluded." in finding.warnings
        assert finding.p_value is not None
        assert sum(finding.rows.values()) == len(PERSON) - 8


def test_files_without_subjects_are_older_files(tmp_path):
    """Some outcomes may have arrived before subjects were recorded."""
    folder = write(tmp_path, subjects=NAMES)
    older = outcome_table(
        {
            "request_id": ["r00000"],
            "row": [0],
            "label": [1],
            "observed_at": [0],
            "received_at": [0],
            "source": ["file"],
        },
        ("sex",),
    )
    write_outcomes(folder / "outcomes", older, segment="20250101T000000Z-00000001-00001")
    with Window.read(folder / "log", folder / "outcomes") as window:
        table = pa.Table.from_batches(window.batches(["request_id", SUBJECT]))
        assert table[SUBJECT].null_count == 0


@pytest.mark.parametrize("metric", ["selection_rate", "scoring_rate"])
def test_selection_takes_the_rows_of_a_person_together(named, unnamed, metric):
    """Four rows of everyone have intervals twice as wide as four times as many people."""
    widths = []
    for folder in (named, unnamed):
        with Window.read(folder / "log", folder / "outcomes") as window:
            (finding,) = audit_window(window, {"selection": {"metrics": metric}}, "sex")
        assert finding.interval is not None
        widths.append(finding.interval[1] - finding.interval[0])
        text = " ".join(finding.warnings)
        assert ("Rows of one person are taken together" in text) == (folder == named)
        assert ("exact copies of another row" in text) == (folder == unnamed)
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.1)
