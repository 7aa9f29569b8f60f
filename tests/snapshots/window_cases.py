"""Windows of a log, the summary of a log, and findings."""

from __future__ import annotations

import datetime as dt
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from monitor import export_classifier, write_bundle
from monitor.traffic.columns import TrafficColumns
from monitor.traffic.erasure import LogLocation, erase
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store
from offline_audit import Findings, Window, audit_window
from offline_audit.window.summary import summarise
from tests.commands import evenhand
from tests.offline_audit.fliptest.test_window import Scores as LoanScores
from tests.offline_audit.fliptest.test_window import spec as loan_spec
from tests.snapshots.case import Shown, case, folder
from tests.snapshots.figures import plain
from tests.traffic_logs import (
    START,
    outcome_rows,
    outcome_table,
    traffic_rows,
    traffic_table,
    write_outcomes,
    write_traffic,
)

_SINCE, _UNTIL = START + dt.timedelta(minutes=40), START + dt.timedelta(hours=3, minutes=10)
_FEW: dict[str, Any] = {"n_resamples": 39, "n_bootstrap": 10}


@functools.cache
def _log() -> Path:
    root = folder() / "known"
    rows = traffic_rows(600)
    write_traffic(root / "log", rows, lost={"torn": 3})
    write_outcomes(root / "outcomes", outcome_rows(rows))
    fraud = traffic_rows(50, seed=4)
    write_traffic(root / "log", fraud, model="fraud", segment="f", listed=False)
    return root


def _window() -> Window:
    root = _log()
    return Window.read(root / "log", root / "outcomes", _SINCE, _UNTIL, "credit")


@case
def window_provenance() -> Any:
    with _window() as window:
        return window.provenance


@case
def window_without_outcomes() -> Any:
    with Window.read(_log() / "log", model="fraud") as window:
        return window.provenance


@case
def window_facts() -> Any:
    with _window() as window:
        facts = window.facts
        return Shown(text=str(facts), data=plain(facts))


@case
def window_statistics() -> Any:
    with _window() as window:
        sample = window.sample(3, ["sex", "decision"], seed=1)
        return Shown(
            data={
                "counts": _ordered(plain(window.counts(["sex", ("sex", "ethnicity")]))["cells"]),
                "verdicts": plain(window.verdicts()),
                "histogram": plain(window.score_histogram("sex", 5)),
                "sample": sorted(sample.column("logit").to_pylist()),
                "strata": sorted(sample.column("stratum_rows").to_pylist()),
            }
        )


def _ordered(cells: list[Any]) -> list[Any]:
    return sorted(cells, key=str)


@case
def log_summary() -> Any:
    return summarise(_log() / "log", _log() / "outcomes")


@case
def log_inspect() -> Any:
    result = evenhand("log", "inspect", "--log", _log() / "log", "--outcomes", _log() / "outcomes")
    return Shown(text=result.stdout)


@case
def log_erasure() -> Any:
    root = folder() / "erased"
    rows = traffic_rows(60)
    write_traffic(root / "log", rows)
    receipt = erase(
        rows["request_id"][0].as_py(),
        [LogLocation(store=Store.open(root / "log"))],
        Pseudonyms(None),
    )
    random = dict.fromkeys(("salt", "salted_sha256", "at"), "<masked>")
    return Shown(text=str(receipt), data={**receipt.to_dict(), **random})


@case
def findings_permutation() -> Any:
    with _window() as window:
        return audit_window(
            window,
            {"permutation": {"n_resamples": 199}},
            ["sex", "ethnicity", ("sex", "ethnicity")],
        )


@case
def findings_selection() -> Any:
    with _window() as window:
        return audit_window(window, "selection", ["sex", ("sex", "ethnicity")], progress=False)


@case
def findings_permutation_without_outcomes() -> Any:
    with Window.read(_log() / "log", model="credit") as window:
        return audit_window(window)


@case
def findings_one() -> Any:
    with _window() as window:
        return audit_window(
            window, {"permutation": {"metrics": ["tpr"]}}, "sex", correction="holm"
        ).findings[0]


@case
def findings_projection() -> Any:
    with _window() as window:
        separately = audit_window(window, "projection", ["sex", "ethnicity"])
        jointly = audit_window(window, {"projection": {"jointly": True}}, ["sex", "ethnicity"])
        # All in one family of tests.
        return Findings.corrected(
            [*separately, *jointly], window=separately.window, versions=separately.versions
        )


@functools.cache
def _loans() -> Path:
    """A log of loans, its outcomes, and the bundle of the model."""
    root, n = folder() / "loans", 600
    rng = np.random.default_rng(31)
    sex = np.where(rng.random(n) < 0.4, "female", "male")
    care = rng.random(n) < np.where(sex == "female", 0.3, 0.6)
    features = {
        "income": rng.normal(np.where(sex == "female", -0.5, 0.0), 1).astype("f4"),
        "owner": (rng.random(n) < 0.5).astype("f4"),
        "sector=care": care.astype("f4"),
        "sector=trade": (~care).astype("f4"),
    }
    logit = features["income"] + 0.8 * care - 0.4 * ~care + 0.3 * features["owner"]
    since = (START - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1)
    time = since + np.arange(n) * 1_000_000
    ids = {"request_id": [f"r{i:05d}" for i in range(n)], "row": np.zeros(n, int)}
    values = {
        **ids,
        "time": time,
        "score": 1 / (1 + np.exp(-logit)),
        "logit": logit,
        "decision": (logit >= 0).astype("i1"),
        "boundary_distance": np.abs(logit),
        "action": ["none"] * n,
        **features,
    }
    write_traffic(root / "log", traffic_table(values, TrafficColumns.of(loan_spec())))
    outcomes = {
        **ids,
        "label": (rng.random(n) < 0.5).astype("i1"),
        "group_sex": sex,
        "observed_at": time,
        "received_at": time,
        "source": ["file"] * n,
    }
    write_outcomes(root / "outcomes", outcome_table(outcomes, ("sex",)))
    files = {"classifier.pt2": export_classifier(LoanScores(), 4)}
    write_bundle(root / "bundle", loan_spec(), files)
    return root


@case
def findings_fliptest() -> Any:
    root = _loans()
    with Window.read(root / "log", root / "outcomes") as window:
        return audit_window(window, {"fliptest": _FEW}, model=root / "bundle")


@case
def findings_fliptest_of_a_table() -> Any:
    rng = np.random.default_rng(32)
    table = pa.table(
        {
            "income": rng.normal(size=300).astype("f4"),
            "owner": rng.integers(0, 2, 300).astype("f4"),
            "sector=care": np.tile([0, 1], 150).astype("f4"),
            "sector=trade": np.tile([1, 0], 150).astype("f4"),
            "sex": np.repeat(["female", "male"], 150),
        }
    )
    return audit_window(table, {"fliptest": _FEW}, model=_loans() / "bundle", correction="none")
