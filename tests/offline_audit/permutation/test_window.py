"""Findings of a window: their order, and progress of the metrics that draw permutations."""

from __future__ import annotations

from offline_audit.permutation.window import DEFAULT_METRICS, findings


def test_every_attribute_has_the_metrics_in_order_and_crossings_only_rates(window):
    results = findings(window, ["sex", ("sex", "ethnicity")], n_resamples=99)
    by_sex = [f.metric for f in results if f.attributes == ("sex",)]
    assert by_sex == list(DEFAULT_METRICS)
    crossed = {f.metric for f in results if f.attributes == ("sex", "ethnicity")}
    assert crossed == {"selection_rate", "tpr", "fpr", "ppv"}
    assert {f.adjusted_p_value for f in results} == {None}


def test_progress_counts_the_metrics_that_draw_permutations(window):
    steps = []
    findings(window, "sex", n_resamples=99, progress=lambda *step: steps.append(step))
    assert steps[0] == ("calibration_gap by sex", 0, 2)
    assert steps[-1] == ("auc by sex", 2, 2)


def test_rates_report_no_progress(window):
    steps = []
    findings(window, "sex", metrics="tpr", progress=lambda *step: steps.append(step))
    assert steps == []
