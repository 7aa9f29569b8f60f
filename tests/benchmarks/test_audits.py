"""The benchmark of the audits compares implementations of the same test."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.__main__ import _scripts
from benchmarks.audits_permutation import SIX, scipy_auc, scipy_rates, synthetic_rows
from benchmarks.audits_projection import linear_program, synthetic_boundary
from offline_audit import permutation_test


def test_the_benchmark_and_the_papers_run_in_smoke_and_full_runs():
    assert "audits" in _scripts()
    assert {"papers.permutation", "papers.projection"} <= set(_scripts())


def test_the_linear_program_has_the_same_statistic():
    for n in (300, 1_000):
        sample = synthetic_boundary(n)
        assert linear_program(sample) == pytest.approx(sample.test(), rel=1e-9)


def test_scipy_has_the_same_p_values_for_rates():
    rows = synthetic_rows(2_000)
    ours = permutation_test(
        metrics=SIX, groups=rows.second.astype(int), decisions=rows.decisions, labels=rows.labels
    )
    peer = scipy_rates(rows, 2_000)
    # Four standard errors of 2,000 draws, and the effect of ties and doubled tails.
    for comparison in ours:
        assert comparison.p_value == pytest.approx(peer[comparison.metric], abs=0.045 + 0.03)


def test_scipy_has_about_the_same_p_value_for_auc():
    rows = synthetic_rows(400)
    ours = permutation_test(
        metrics="auc",
        groups=rows.second.astype(int),
        labels=rows.labels,
        scores=rows.scores,
        bins=0,
    )[0]
    # scipy's test is not studentized and permutes all rows, so p-values are close, not equal.
    assert ours.p_value == pytest.approx(scipy_auc(rows, 200), abs=0.2)


def test_a_run_in_its_own_process_prints_seconds_and_memory():
    command = [sys.executable, "-m", "benchmarks.audits_projection_run", "5000"]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(process.stdout)
    assert result["seconds"] > 0
    assert 0 < result["before"] <= result["peak"] < 4
