"""Findings of the selection table and the scoring table equal the tables of the rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from offline_audit import AuditInputError, audit_window, scoring_table, selection_table
from offline_audit.permutation.selection_window import findings


def groups_of(known):
    return {a: [row[f"group_{a}"] for row in known.rows] for a in ("sex", "ethnicity")}


def test_every_group_is_compared_with_the_highest_of_the_table(window, known):
    by: list[str | tuple[str, ...]] = ["sex", "ethnicity", ("sex", "ethnicity")]
    groups = groups_of(known)
    tables = {
        "selection_rate": selection_table(groups, [r["decision"] for r in known.rows], by=by),
        "scoring_rate": scoring_table(groups, [r["score"] for r in known.rows], by=by),
    }
    results = findings(window, by)
    compared = Counter((f.metric, " × ".join(f.attributes)) for f in results)
    for metric, table in tables.items():
        for attribute in ("sex", "ethnicity", "sex × ethnicity"):
            rows = [r for r in table.table if r.attribute == attribute and r.group is not None]
            assert compared[metric, attribute] == len(rows) - 1
    for finding in results:
        table = tables[finding.metric]
        row, best = (table.of(g, " × ".join(finding.attributes)) for g in finding.groups)
        assert best.best
        assert finding.effect is not None
        assert row.rate is not None
        assert best.rate is not None
        assert finding.effect == pytest.approx(row.rate - best.rate)
        assert f"Impact ratio {row.impact_ratio:.3f}" in finding.sentences[1]
        assert finding.disadvantaged == (row.group if finding.effect < 0 else None)


def test_p_values_and_intervals_are_corrected_for_the_number_of_groups(window, known):
    """The highest group was picked, so that the comparison with it is one of several."""
    results = findings(window, "ethnicity", metrics="selection_rate")
    assert len(results) > 1
    table = selection_table(groups_of(known)["ethnicity"], [r["decision"] for r in known.rows])
    for finding in results:
        rows = [table.of(group) for group in finding.groups]
        variances = [row.selected * (row.rows - row.selected) / row.rows**3 for row in rows]
        assert finding.interval is not None
        low, high = finding.interval
        assert high - low > 2 * 1.96 * np.sqrt(sum(variances))


def test_unknown_groups_and_missing_scores_are_counted(window, known):
    (finding,) = findings(window, "sex", metrics="scoring_rate")
    scored = [row for row in known.rows if row["score"] is not None]
    unknown = sum(row["group_sex"] is None for row in scored)
    assert unknown
    text = f"{unknown:,} predictions with an unknown group of sex are not included in the ratios of"
    assert f"{text} scoring rates." in finding.warnings
    missing = len(known.rows) - len(scored)
    assert any(f"{missing:,} prediction" in w for w in finding.warnings) == bool(missing)


def test_the_audit_runs_next_to_others(window):
    results = audit_window(window, ["selection", "permutation"], "sex", progress=False)
    assert {finding.audit for finding in results} == {"selection", "permutation"}
    assert all(f.adjusted_p_value is not None for f in results if f.p_value is not None)


@pytest.mark.parametrize("metrics", ["tpr", [], ["selection_rate", "tpr"]])
def test_other_metrics_are_refused(window, metrics):
    with pytest.raises(AuditInputError, match="metrics: choose one or both of"):
        findings(window, metrics=metrics)
