"""Figures show the results, and can be saved if there is nothing to show."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.fliptest.figures import FlipRow, draw_flips, draw_marginals, draw_transparency
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.marginals import flipset_marginals
from offline_audit.fliptest.transparency import transparency_report

MANY = tuple(f"feature number {index}, named at some length" for index in range(14))
COLUMNS = Columns(
    features=(
        *(Feature(name=name, kind="numeric") for name in MANY),
        *(Feature(name=f"sector={name}", kind="onehot") for name in ("care", "trades", "office")),
    ),
    one_hot_groups=(
        OneHotGroup(name="sector", features=("sector=care", "sector=trades", "sector=office")),
    ),
)


def model(rows):
    return (rows[:, 0] + rows[:, 1] > 0).astype(np.int8)


@pytest.fixture(scope="module")
def flipset():
    rng = np.random.default_rng(0)
    own = rng.normal(size=(3_000, 17)).astype(np.float32)
    other = own - rng.gamma(1.0, np.linspace(1, 0.1, 17), size=own.shape).astype(np.float32)
    for rows in (own, other):
        rows[:, 14:] = np.eye(3)[rng.choice(3, 3_000)]
    return Flipset(
        features=own,
        counterparts=other[None],
        decisions=model(own) == 1,
        counterpart_decisions=(model(other) == 1)[None],
    )


def row(**changed):
    fields = {
        "name": "women → men",
        "advantaged": 0.02,
        "advantaged_interval": (0.015, 0.03),
        "disadvantaged": 0.2,
        "disadvantaged_interval": (0.18, 0.22),
        "null_bound": 0.04,
        "rows": 1_234,
    }
    return FlipRow(**{**fields, **changed})


def saved(figure, tmp_path):
    """Save a figure, which must not raise a warning, and return it."""
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 2_000
    return figure


def ticks(axes):
    return [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()]


def title_of(figure):
    return figure.get_suptitle().replace("\n", " ")


def overlapping(figure, labels):
    """Whether any two labels overlap."""
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in labels if label.get_text()]
    return any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])


def test_the_first_ten_variables_have_three_panels(flipset, tmp_path):
    report = transparency_report(flipset, "advantaged", COLUMNS, np.ones(17), model)
    figure = saved(draw_transparency(report, "What differs"), tmp_path)
    assert len(figure.axes) == 3
    assert ticks(figure.axes[0]) == [feature.name for feature in report.features[:10]]
    assert not overlapping(figure, figure.axes[0].get_yticklabels())
    assert title_of(figure).startswith("What differs, advantaged (")
    assert f"{report.features[0].name} alone undoes" in title_of(figure)
    for axes, expected in zip(
        figure.axes,
        (
            [feature.magnitude for feature in report.features[:10]],
            [feature.consistency for feature in report.features[:10]],
            [100 * (feature.undone or 0) for feature in report.features[:10]],
        ),
        strict=True,
    ):
        assert [bar.get_width() for bar in axes.patches] == pytest.approx(expected)
    intervals = [line.get_xdata() for line in figure.axes[0].lines[:10]]
    assert np.asarray(intervals) == pytest.approx(
        np.array([feature.magnitude_interval for feature in report.features[:10]])
    )


def test_without_a_model_there_are_two_panels(flipset, tmp_path):
    report = transparency_report(flipset, "advantaged", COLUMNS, np.ones(17), None)
    figure = saved(draw_transparency(report, "a → b"), tmp_path)
    assert f"{report.features[0].name} differs most" in title_of(figure)
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "mean difference, sd",
        "mean sign (consistency)",
    ]


def test_a_suppressed_report_shows_the_reason(flipset, tmp_path):
    report = transparency_report(
        flipset, "advantaged", COLUMNS, np.ones(17), None, smallest_cell=10**6
    )
    figure = saved(draw_transparency(report, "What differs"), tmp_path)
    assert [text.get_text() for text in figure.texts][-1] == report.reason


def test_marginals_are_shares_of_the_group_and_of_the_flipset(flipset, tmp_path):
    marginals = flipset_marginals(flipset, "advantaged", COLUMNS)
    figure = saved(draw_marginals(marginals, "Who they are"), tmp_path)
    assert len(figure.axes) == 6
    for axes, variable in zip(figure.axes, marginals.variables, strict=False):
        differs = (variable.adjusted_p_value or 1) <= 0.05
        title = axes.get_title().replace("\n", " ")
        assert title.startswith(f"{variable.name} ({'differs' if differs else 'no difference'}")
        heights = [bar.get_height() for bar in axes.patches]
        half = len(variable.bins)
        assert sum(heights[:half]) == pytest.approx(100)
        assert sum(heights[half:]) == pytest.approx(100)
        assert heights[half] == pytest.approx(
            100 * variable.bins[0].members / (marginals.members or 0)
        )
        assert not overlapping(figure, axes.get_yticklabels())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "whole group (n = 3,000)",
        f"members of the flipset (n = {marginals.members:,})",
    ]
    hatches = {bar.get_hatch() for bar in figure.axes[0].patches}
    assert len(hatches) == 2


def test_two_variables_have_two_panels_and_none_shows_the_reason(flipset, tmp_path):
    few = Columns.numeric(MANY[:2])
    narrow = Flipset(
        features=flipset.features[:, :2],
        counterparts=flipset.counterparts[:, :, :2],
        decisions=flipset.decisions,
        counterpart_decisions=flipset.counterpart_decisions,
    )
    marginals = flipset_marginals(narrow, "advantaged", few)
    assert len(saved(draw_marginals(marginals, "Who they are"), tmp_path).axes) == 2
    suppressed = flipset_marginals(narrow, "advantaged", few, smallest_cell=10**6)
    figure = saved(draw_marginals(suppressed, "Who they are"), tmp_path)
    assert "fewer than" in figure.texts[-1].get_text()


def test_flips_have_one_row_per_direction(tmp_path):
    long_name = "an attribute: a group of a long name → another group of a long name"
    untested = {"kind": "undetermined", "advantaged_interval": None, "null_bound": None}
    rows = [row(), row(name=long_name, **untested), row(name="men → women", kind="none")]
    figure = saved(draw_flips(rows, "Decisions that change"), tmp_path)
    (axes,) = figure.axes
    assert ticks(axes) == ["women → men", long_name, "men → women"]
    assert not overlapping(figure, axes.get_yticklabels())
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([20, 2] * 3)
    both = [line for line in axes.lines if line.get_label().startswith("both, ")]
    markers = [line for line in both if line.get_marker() not in ("None", None)]
    assert [line.get_xdata()[0] for line in markers] == pytest.approx([22.0] * 3)
    # Without colours, outcomes differ by marker and filling.
    styles = {(line.get_marker(), line.get_markerfacecolor()) for line in markers}
    assert len(styles) == 3
    null = [line.get_xdata()[0] for line in both if line not in markers]
    assert null == pytest.approx([4.0, 4.0])
    assert [text.get_text() for text in axes.texts] == ["n = 1,234"] * 3
    assert axes.get_xticklabels()[0].get_text().endswith("%")
    (legend,) = figure.legends
    legend_labels = [text.get_text() for text in legend.get_texts()]
    assert len(legend_labels) == len(set(legend_labels))
    expected = {
        *("advantaged", "disadvantaged", "advantaged, not tested"),
        *("both, a difference", "both, no difference shown", "both, not tested"),
        "both, 95% quantile under the null",
    }
    assert expected <= set(legend_labels)


def test_a_figure_without_directions_shows_no_result(tmp_path):
    figure = saved(draw_flips([], "Decisions that change"), tmp_path)
    assert [text.get_text() for text in figure.texts][-1] == "no result"


def test_no_global_state_of_matplotlib_is_used(flipset):
    before = "matplotlib.pyplot" in sys.modules
    draw_flips([row()], "Decisions that change")
    assert ("matplotlib.pyplot" in sys.modules) == before
