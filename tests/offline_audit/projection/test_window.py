"""Findings of a window equal the results of the test on its rows."""

from __future__ import annotations

import pytest

from offline_audit import AuditInputError, projection_test
from offline_audit.projection.window import findings


def direct(known, groups, **options):
    rows = known.rows
    return projection_test(
        groups=groups,
        decisions=[row["decision"] for row in rows],
        distances=[row["boundary_distance"] for row in rows],
        **options,
    )


def test_a_tuple_is_the_crossing_of_its_attributes(known, window):
    (finding,) = findings(window, [("sex", "ethnicity")], criteria=["statistical_parity"])
    pairs = [(row["group_sex"], row["group_ethnicity"]) for row in known.rows]
    groups = [None if None in pair else " × ".join(pair) for pair in pairs]
    expected = direct(known, {"sex × ethnicity": groups})
    assert finding.attributes == ("sex", "ethnicity")
    assert "female × a" in finding.rows
    assert finding.p_value == pytest.approx(expected.p_value, rel=1e-4)
    assert sum(finding.rows.values()) == sum(count.rows for count in expected.counts)


def test_jointly_tests_all_attributes_by_one_p_value(known, window):
    (finding,) = findings(window, jointly=True, criteria=["statistical_parity"])
    groups = {a: [row[f"group_{a}"] for row in known.rows] for a in ("sex", "ethnicity")}
    expected = direct(known, groups)
    assert set(finding.attributes) == {"sex", "ethnicity"}
    assert finding.p_value == pytest.approx(expected.p_value, rel=1e-4)


def test_each_attribute_and_criterion_has_a_finding_without_correction(window):
    all_findings = findings(window, alpha=0.2)
    assert [(f.attributes, f.metric) for f in all_findings] == [
        ((attribute,), criterion)
        for attribute in window.attributes
        for criterion in ("statistical_parity", "equalized_odds")
    ]
    assert {f.adjusted_p_value for f in all_findings} == {None}


def test_the_effect_is_the_largest_gap_with_unit_and_direction(window):
    (finding,) = findings(window, "ethnicity", criteria=["statistical_parity"])
    gaps = {tuple(e["groups"]): e["gap"] for e in finding.evidence["effects"]}
    assert finding.effect is not None
    assert abs(finding.effect) == max(map(abs, gaps.values()))
    assert finding.effect == gaps[finding.groups]
    assert finding.unit == "rate"
    comparative = "more" if finding.effect > 0 else "less"
    assert finding.direction == (
        f"{finding.groups[0]} gets the favourable decision {comparative} often than "
        f"{finding.groups[1]}"
    )


def test_progress_counts_the_tests(window):
    steps = []
    findings(window, "sex", progress=lambda *step: steps.append(step))
    assert steps[-1][1:] == (2, 2)


def test_an_unknown_attribute_is_rejected(window):
    with pytest.raises(AuditInputError, match="age"):
        findings(window, ["age"])
