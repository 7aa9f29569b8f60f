"""The benchmark of the audits compares tests that answer the same question."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.__main__ import _scripts
from benchmarks.audits_permutation import SIX, made_up_rows, scipy_auc, scipy_rates
from benchmarks.audits_projection import linear_program, made_up_boundary
from offline_audit import permutation_test


def test_the_benchmark_is_among_those_that_are_run():
    assert "audits" in _scripts()
    assert {"papers.permutation", "papers.projection"} <= set(_scripts())


def test_the_linear_program_finds_the_statistic():
    for n in (300, 1_000):
        sample = made_up_boundary(n)
        assert linear_program(sample) == pytest.approx(sample.test(), rel=1e-9)


def test_scipy_is_asked_the_same_of_rates():
    rows = made_up_rows(2_000)
    ours = permutation_test(
        metrics=SIX, groups=rows.second.astype(int), decisions=rows.decisions, labels=rows.labels
    )
    peer = scipy_rates(rows, 2_000)
    # Four standard errors of 2,000 draws, and what ties and doubled tails add.
    for comparison in ours:
        assert comparison.p_value == pytest.approx(peer[comparison.metric], abs=0.045 + 0.03)


def test_scipy_is_asked_the_same_of_auc():
    rows = made_up_rows(400)
    ours = permutation_test(
        metrics="auc",
        groups=rows.second.astype(int),
        labels=rows.labels,
        scores=rows.scores,
        bins=0,
    )[0]
    # Not studentized, and all rows change groups: near, not equal.
    assert ours.p_value == pytest.approx(scipy_auc(rows, 200), abs=0.2)


def test_a_test_in_a_process_of_its_own_tells_seconds_and_memory():
    command = [sys.executable, "-m", "benchmarks.audits_projection_run", "5000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["seconds"] > 0
    assert 0 < found["before"] <= found["peak"] < 4
