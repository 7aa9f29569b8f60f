"""Findings of a window equal the results on its rows, or have a reason why there is none."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import compute as pc

from offline_audit import (
    AuditInputError,
    Findings,
    Window,
    audit_window,
    permutation_test,
    projection_test,
)
from offline_audit.errors import UnknownColumnError
from offline_audit.run import AUDITS
from tests.offline_audit.conftest import SINCE, UNTIL
from tests.traffic_logs import traffic_rows, write_outcomes, write_traffic


def column(rows, name):
    return [row[name] for row in rows]


@pytest.fixture(scope="module")
def found(window) -> Findings:
    return audit_window(window, by=["sex", "ethnicity", ("sex", "ethnicity")])


def test_rates_equal_those_of_the_rows(known, found):
    arrays = {
        "groups": {a: column(known.rows, f"group_{a}") for a in ("sex", "ethnicity")},
        "decisions": column(known.rows, "decision"),
        "labels": column(known.rows, "label"),
    }
    direct = permutation_test(metrics=["selection_rate", "tpr"], **arrays)
    by_key = {(f.metric, f.attributes, f.groups): f for f in found}
    for one in direct:
        assert one.other is not None
        same = by_key[one.metric, (one.attribute,), (one.group.name, one.other.name)]
        assert same.effect == pytest.approx(one.effect)
        assert same.p_value == pytest.approx(one.p_value)
        assert same.rows == {one.group.name: one.group.rows, one.other.name: one.other.rows}


def test_binned_scores_give_nearly_the_same_result(known, found):
    rows = [row for row in known.rows if row["score"] is not None]
    direct = permutation_test(
        metrics=["auc", "calibration_gap"],
        groups={"sex": column(rows, "group_sex")},
        labels=column(rows, "label"),
        scores=column(rows, "score"),
    )
    for one in direct:
        (same,) = [f for f in found if f.metric == one.metric and f.attributes == ("sex",)]
        assert same.effect == pytest.approx(one.effect, abs=2e-3)
        assert same.p_value == pytest.approx(one.p_value, abs=0.03)


def test_crossed_attributes_are_compared_by_rates(found):
    crossed = [f for f in found if f.attributes == ("sex", "ethnicity")]
    assert {f.metric for f in crossed} == {"selection_rate", "tpr", "fpr", "ppv"}
    assert "female × a" in {f.groups[0] for f in crossed}


def test_every_p_value_is_corrected_for_the_number_of_tests(found):
    tested = [f for f in found if f.p_value is not None]
    assert len(tested) > 10
    assert all(f.adjusted_p_value >= f.p_value for f in tested)


def test_findings_are_json_and_contain_no_row(found, known):
    text = json.dumps(found.to_dict())
    data = json.loads(text)
    assert data["window"]["rows"] == len(known.rows)
    assert len(data["window"]["sha256"]) == 64
    assert data["versions"]["numpy"] == np.__version__
    assert known.rows[0]["request_id"] not in text


def test_the_text_has_a_table_and_the_guarantee(found):
    text = str(found)
    assert "0 of 48 tests show a" in text
    assert "Benjamini" in text
    assert "selection_rate" in found._repr_html_()


def test_the_projection_test_equals_that_of_the_rows(known, window):
    (found,) = audit_window(window, {"projection": {"criteria": ["equalized_odds"]}}, "sex")
    direct = projection_test(
        groups={"sex": column(known.rows, "group_sex")},
        decisions=np.array(column(known.rows, "decision")),
        distances=np.array(column(known.rows, "boundary_distance")),
        labels=column(known.rows, "label"),
        criterion="equalized_odds",
    )
    assert found.statistic == pytest.approx(direct.statistic, rel=1e-5)
    assert found.p_value == pytest.approx(direct.p_value, rel=1e-4)
    assert found.evidence["explanation"]["rows_moved"] > 0


def test_two_attributes_tested_jointly_are_one_finding(window):
    (found,) = audit_window(
        window,
        {"projection": {"criteria": ["statistical_parity"], "jointly": True}},
        ["sex", "ethnicity"],
    )
    assert found.attributes == ("sex", "ethnicity")
    assert found.p_value is not None
    assert {name.split(":")[0] for name in found.rows} == {"sex", "ethnicity"}


def swapped(table: pa.Table, *names: str) -> pa.Table:
    """The same rows with 0 for 1 and 1 for 0."""
    for name in names:
        index = table.schema.get_field_index(name)
        other = pc.subtract(pa.scalar(1, table.schema.field(name).type), table[name])
        table = table.set_column(index, table.schema.field(name), other)
    return table


def test_the_favourable_decision_counts_as_positive(known, tmp_path, window):
    write_traffic(
        tmp_path / "log", swapped(known.traffic, "decision", "score"), favourable=0, lost=None
    )
    write_outcomes(tmp_path / "outcomes", swapped(known.outcome_rows, "label"))
    with Window.read(tmp_path / "log", tmp_path / "outcomes", SINCE, UNTIL) as other:
        for audit in ("permutation", "projection"):
            pairs = zip(audit_window(window, audit), audit_window(other, audit), strict=True)
            for one, same in pairs:
                assert (same.metric, same.groups) == (one.metric, one.groups)
                assert same.effect == pytest.approx(one.effect, abs=1e-3)
                assert same.p_value == pytest.approx(one.p_value, abs=0.02)


def test_a_change_of_the_favourable_decision_is_an_error(known, tmp_path):
    write_traffic(tmp_path, known.traffic)
    write_traffic(tmp_path, traffic_rows(50, seed=9), segment="s2", version="2", favourable=0)
    with (
        Window.read(tmp_path) as window,
        pytest.raises(AuditInputError, match="favourable decision changed within the window"),
    ):
        audit_window(window)


def test_labels_of_one_decision_only_give_a_reason(known, tmp_path):
    """Refused loans have no outcome, so rates among people with a given label are unknown."""
    granted = known.traffic.filter(pc.equal(known.traffic["decision"], 1))
    labelled = known.outcome_rows.join(
        granted.select(["request_id", "row"]), ["request_id", "row"], join_type="left semi"
    )
    rest = known.outcome_rows.join(
        granted.select(["request_id", "row"]), ["request_id", "row"], join_type="left anti"
    )
    index = rest.schema.get_field_index("label")
    rest = rest.set_column(index, rest.schema.field("label"), pa.nulls(len(rest), pa.int8()))
    write_traffic(tmp_path / "log", known.traffic)
    write_outcomes(tmp_path / "outcomes", pa.concat_tables([labelled, rest]))
    with Window.read(tmp_path / "log", tmp_path / "outcomes") as window:
        found = {f.metric: f for f in audit_window(window, by=["sex"])}
        assert found["selection_rate"].p_value is not None
        assert found["ppv"].p_value is not None
        for metric in ("tpr", "fpr", "auc"):
            assert found[metric].outcome == "cannot be determined"
            assert "not identified" in (found[metric].reason or "")
        (odds,) = audit_window(window, {"projection": {"criteria": ["equalized_odds"]}}, "sex")
        assert odds.p_value is None
        assert "not identified" in (odds.reason or "")


def test_without_outcomes_there_is_a_reason_and_no_effect(known):
    with Window.read(known.log) as window:
        for audit in ("permutation", "projection"):
            findings = audit_window(window, audit)
            assert {f.outcome for f in findings} == {"cannot be determined"}
            assert all("none is known" in (f.reason or "") for f in findings)
            assert all(f.effect is None for f in findings)


def test_a_reference_applies_to_the_attribute_that_has_it(window):
    for reference in ("male", {"sex": "male"}):
        found = audit_window(
            window, {"permutation": {"metrics": ["selection_rate"], "reference": reference}}
        )
        assert {f.groups for f in found if f.attributes == ("sex",)} == {("female", "male")}
        assert len([f for f in found if f.attributes == ("ethnicity",)]) == 3
    for reference in ("nobody", {"sexx": "male"}):
        with pytest.raises(AuditInputError, match="reference"):
            audit_window(
                window, {"permutation": {"metrics": ["selection_rate"], "reference": reference}}
            )


def test_intervals_have_95_percent_confidence_whatever_the_alpha(window):
    found = [audit_window(window, "projection", by=["sex"], alpha=alpha) for alpha in (0.05, 0.2)]
    assert [f.interval for f in found[0]] == [f.interval for f in found[1]]
    assert {f.alpha for f in found[1]} == {0.2}


def test_the_plot_has_every_finding_with_an_effect(found):
    figure = found.plot()
    shown = [label for axes in figure.axes for label in axes.get_yticklabels()]
    assert len(shown) == len([f for f in found if f.effect is not None])
    assert len(figure.axes) == len({f.unit for f in found if f.effect is not None})
    tested = [finding for finding in found if finding.p_value is not None]
    start = f"{len(found.differences)} of {len(tested)} tests show a difference at α = 0.05"
    title = " ".join(figure.get_suptitle().split())
    assert title.startswith(start)
    quoted = [f.sentences[0].partition(" (95%")[0] for f in found.differences if f.disadvantaged]
    assert not quoted or any(sentence in title for sentence in quoted)


def test_an_unknown_attribute_or_metric_is_an_error(window):
    with pytest.raises(UnknownColumnError, match="no protected attribute 'age'"):
        audit_window(window, by=["age"])
    with pytest.raises(AuditInputError, match="'tprr'"):
        audit_window(window, {"permutation": {"metrics": ["tprr"]}})


@pytest.fixture
def opened(known):
    """A window of its own, since a window remembers its tests."""
    with Window.read(known.log, known.outcomes, SINCE, UNTIL) as window:
        yield window


RATES = {"permutation": {"metrics": ["selection_rate", "tpr"]}}


def by_test(findings):
    return {finding.test: finding.adjusted_p_value for finding in findings}


@pytest.mark.parametrize("correction", ["bh", "by", "holm"])
def test_tests_of_a_window_are_corrected_together_whatever_the_calls(known, opened, correction):
    with Window.read(known.log, known.outcomes, SINCE, UNTIL) as other:
        once = audit_window(
            other, {**RATES, "projection": {}}, ["sex", "ethnicity"], correction=correction
        )
    first = audit_window(opened, RATES, "sex", correction=correction)
    second = audit_window(opened, RATES, "ethnicity", correction=correction)
    # By another way into the audit.
    import_module(AUDITS["projection"]).findings(opened, ["sex"])
    last = audit_window(opened, "projection", "ethnicity", correction=correction)
    assert (first.tests, second.tests, last.tests) == (2, 8, once.tests)
    assert len(last.earlier) == once.tests - len(last)
    assert by_test(last).items() <= by_test(once).items()
    third = audit_window(opened, "projection", "sex", correction=correction)
    assert by_test(first.together(second, third, last)) == by_test(once)


def test_a_repeated_test_counts_once_and_another_seed_does_not(opened):
    options = {"permutation": {"metrics": ["auc"], "n_resamples": 999}}
    first = audit_window(opened, options, "sex")
    again = audit_window(opened, options, ["sex", "sex"], alpha=0.1)
    assert (first.tests, again.tests, again.earlier) == (1, 1, ())
    assert audit_window(opened, options, "sex", seed=1).tests == 2


def test_findings_say_how_many_tests_they_are_corrected_for(opened):
    first = audit_window(opened, RATES, "sex")
    assert "corrected for 2 tests. The expected" in words(first)
    second = audit_window(opened, "projection", "sex")
    for text in (words(second), second._repr_html_()):
        assert "corrected for 4 tests, 2 of them from earlier calls on this window" in text
        assert "earlier.together(later)" in text
    assert all("corrected for 4 tests" in words(finding) for finding in second)
    data = json.loads(json.dumps(second.to_dict()))
    assert (data["tests"], [one["metric"] for one in data["earlier"]]) == (
        4,
        ["selection_rate", "tpr"],
    )
    legend = {text.get_text() for text in second.plot().legends[0].get_texts()}
    assert "earlier.together" not in words(first.together(second))
    assert not any("difference at" in text and "4 tests" not in text for text in legend)
    raw = audit_window(opened, RATES, "sex", correction="none")
    assert all("not corrected for other tests" in words(finding) for finding in raw)


def test_findings_say_how_their_p_values_are_computed(opened):
    found = audit_window(opened, {"permutation": {}, "projection": {}}, "sex")
    kinds = {finding.metric: finding.p_value_kind or "" for finding in found}
    assert kinds["selection_rate"] == "mid-p: exact, ties count half"
    assert kinds["auc"].startswith("mid-p: (b + 1) / (B + 1) of B random permutations")
    assert "limiting law" in kinds["equalized_odds"]
    for text in (words(found), found._repr_html_()):
        assert all(kind in text for kind in kinds.values())
    assert all(kinds[finding.metric] in words(finding) for finding in found)


def words(shown) -> str:
    return " ".join(str(shown).split())


def test_findings_of_different_windows_or_corrections_are_not_corrected_together(known, opened):
    found = audit_window(opened, RATES, "sex")
    with Window.read(known.log, known.outcomes, SINCE) as longer:
        other = audit_window(longer, RATES, "sex")
    with pytest.raises(AuditInputError, match="together: the findings are of different windows"):
        found.together(other)
    holm = audit_window(opened, RATES, "sex", correction="holm")
    for name, different in (
        ("correction", holm),
        ("alpha", audit_window(opened, RATES, "sex", alpha=0.1)),
    ):
        with pytest.raises(AuditInputError, match=f"together: findings differ in {name}"):
            found.together(different)


@pytest.mark.parametrize("audit", ["permutation", "projection", "selection"])
def test_a_file_is_refused_by_audits_that_need_a_window(audit):
    with pytest.raises(AuditInputError, match=f"window: {audit} needs a Window; open one by"):
        audit_window("raw.csv", audit)
