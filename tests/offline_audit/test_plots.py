"""Figures of estimates: what they show can be told without colours, and numbers are shown."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import permutation_test, projection_test, selection_table
from offline_audit.plots import Estimate, Kind, interval_figure

KINDS: dict[Kind, str] = {
    "difference": "a difference",
    "none": "none shown",
    "undetermined": "no test",
}
N = 400
GROUPS = np.repeat(["a", "b"], N // 2)


def estimate(name="a – b", value=0.1, **changes):
    fields = {"interval": (0.05, 0.15), "rows": (96, 1_150), "unit": "rate", "section": "sex"}
    return Estimate(name=name, value=value, **{**fields, **changes})


def saved(figure, tmp_path):
    """Save a figure, which must not raise a warning, and return it."""
    figure.savefig(tmp_path / "figure.png")
    return figure


def markers(axes):
    return [line for line in axes.lines if line.get_marker() not in ("None", None)]


def test_kinds_differ_by_marker_filling_or_line_and_the_legend_has_those_that_occur(tmp_path):
    estimates = [estimate(kind=kind) for kind in KINDS]
    figure = saved(interval_figure(estimates, "title", KINDS), tmp_path)
    (axes,) = figure.axes
    styles = {
        (line.get_marker(), line.get_markerfacecolor() == "white", line.get_linestyle())
        for line in markers(axes)
    }
    assert len(styles) == 3
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(KINDS.values())
    only = interval_figure(estimates[:1], "title", KINDS)
    assert [t.get_text() for t in only.legends[0].get_texts()] == ["a difference"]


def test_rates_are_in_percentage_points_and_units_have_panels(tmp_path):
    estimates = [
        estimate("tpr"),
        estimate("auc", unit="auc", interval=None),
        estimate("fpr", -0.2),
        estimate("ppv", section="race $"),
    ]
    figure = saved(interval_figure(estimates, "a $ title", KINDS), tmp_path)
    rates, auc = figure.axes
    assert [line.get_xdata()[0] for line in markers(rates)] == pytest.approx([10, -20, 10])
    assert "percentage points" in rates.get_xlabel()
    assert "95% interval" in rates.get_xlabel()
    assert [line.get_xdata()[0] for line in markers(auc)] == [0.1]
    assert [label.get_text() for label in rates.get_yticklabels()] == ["tpr", "fpr", "ppv"]
    beside = [text.get_text() for text in rates.texts]
    assert beside == ["sex", "n = 96, 1,150", "n = 96, 1,150", r"race \$", "n = 96, 1,150"]
    assert figure.get_suptitle() == r"a \$ title"


def test_sections_stay_together_and_no_labels_overlap():
    estimates = [estimate(f"{i} {'long name ' * (i % 5)}", section=f"s{i % 3}") for i in range(30)]
    figure = interval_figure(estimates, "title", KINDS)
    figure.canvas.draw()
    (axes,) = figure.axes
    headings = [t.get_text() for t in axes.texts if t.get_text().startswith("s")]
    assert headings == ["s0", "s1", "s2"]
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    boxes += [t.get_window_extent() for t in axes.texts if t.get_text() in headings]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_without_estimates_the_figure_says_so(tmp_path):
    (axes,) = saved(interval_figure([], "title", KINDS), tmp_path).axes
    assert axes.texts[0].get_text() == "no estimates"


def test_titles_of_audits_state_the_finding(tmp_path):
    decisions = np.r_[np.arange(N // 2) < 60, np.arange(N // 2) < 120].astype(int)
    title = permutation_test(GROUPS, decisions, metrics="selection_rate").plot().get_suptitle()
    assert title == "a is selected less often than b (mid-p < .0001)"
    same = permutation_test(GROUPS, decisions[::-1] * 0 + (np.arange(N) % 2), metrics="fpr",
                            labels=np.zeros(N, int)).plot()  # fmt: skip
    assert same.get_suptitle().startswith("No difference of fpr shown for a against b (mid-p")
    distances = np.linspace(0.1, 1, N)
    projection = projection_test(groups=GROUPS, decisions=decisions, distances=distances).plot()
    assert (
        projection.get_suptitle()
        .replace("\n", " ")
        .startswith(
            "a gets decision 1 less often than b: 30.0% against 60.0%, a difference of -30.0"
        )
    )
    selection = saved(selection_table(GROUPS, decisions).plot(), tmp_path)
    assert selection.get_suptitle() == "group: a is selected 0.50 times as often as b"
