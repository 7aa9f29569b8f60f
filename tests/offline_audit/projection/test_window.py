"""Findings of a window are those of its rows."""

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
    (found,) = findings(window, [("sex", "ethnicity")], criteria=["statistical_parity"])
    pairs = [(row["group_sex"], row["group_ethnicity"]) for row in known.rows]
    groups = [None if None in pair else " × ".join(pair) for pair in pairs]
    wanted = direct(known, {"sex × ethnicity": groups})
    assert found.attributes == ("sex", "ethnicity")
    assert "female × a" in found.rows
    assert found.p_value == pytest.approx(wanted.p_value, rel=1e-4)
    assert sum(found.rows.values()) == sum(count.rows for count in wanted.counts)


def test_jointly_tests_all_attributes_by_one_p_value(known, window):
    (found,) = findings(window, jointly=True, criteria=["statistical_parity"])
    groups = {a: [row[f"group_{a}"] for row in known.rows] for a in ("sex", "ethnicity")}
    wanted = direct(known, groups)
    assert set(found.attributes) == {"sex", "ethnicity"}
    assert found.p_value == pytest.approx(wanted.p_value, rel=1e-4)


def test_each_attribute_and_criterion_has_a_finding_without_correction(window):
    found = findings(window, alpha=0.2)
    assert [(f.attributes, f.metric) for f in found] == [
        ((attribute,), criterion)
        for attribute in window.attributes
        for criterion in ("statistical_parity", "equalized_odds")
    ]
    assert {f.adjusted_p_value for f in found} == {None}


def test_the_effect_is_the_largest_gap_with_unit_and_direction(window):
    (found,) = findings(window, "ethnicity", criteria=["statistical_parity"])
    gaps = {tuple(e["groups"]): e["gap"] for e in found.evidence["effects"]}
    assert found.effect is not None
    assert abs(found.effect) == max(map(abs, gaps.values()))
    assert found.effect == gaps[found.groups]
    assert found.unit == "rate"
    comparative = "more" if found.effect > 0 else "less"
    assert found.direction == (
        f"{found.groups[0]} gets the favourable decision {comparative} often"
    )


def test_progress_counts_the_tests(window):
    steps = []
    findings(window, "sex", progress=lambda *step: steps.append(step))
    assert steps[-1][1:] == (2, 2)


def test_an_unknown_attribute_is_refused(window):
    with pytest.raises(AuditInputError, match="age"):
        findings(window, ["age"])
