"""Results as text, HTML and JSON, also when there is little to show."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from offline_audit import FlipTestResult, flip_test
from offline_audit.fliptest import FlipDirection
from offline_audit.fliptest.resampling import NullSizes, ShareEstimate
from offline_audit.progress import reporting

N = 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2 * N, 2)).astype(np.float32)
X[N:, 0] += 1
WOMEN, MEN = "women over sixty in the north", "men over sixty in the north or south"


@pytest.fixture(scope="module")
def result():
    return flip_test(
        lambda rows: rows[:, 0] > 0.5,
        X,
        {"who": np.repeat([WOMEN, MEN], N)},
        n_resamples=29,
        n_bootstrap=4,
        progress=False,
    )


def blank(**changes):
    fields = {"source": "a", "target": "b", "label": None, "rows": (5, 6), "rates": (0.2, None)}
    return FlipDirection(**{**fields, **changes})


def whole(*directions, **changes):
    fields = {
        "attribute": "sex",
        "criterion": "statistical_parity",
        "map": "joint_quantile",
        "cost": "squared_l2",
        "alpha": 0.05,
        "n_counterparts": 8,
        "seed": 0,
        "complete": True,
        "warnings": (),
    }
    return FlipTestResult(directions=directions, **{**fields, **changes})


NULL = NullSizes(mean=0.01, bound=0.02, n_resamples=19, p_value=0.05)


def test_a_reason_removes_the_p_value():
    assert blank().p_value is None
    assert blank(null=NULL).p_value == 0.05
    assert blank(null=NULL, reason="the map fails validation.").p_value is None


def test_rejected_follows_from_level_and_p_value():
    called = blank(null=NULL)
    found = whole(called, blank(null=dataclasses.replace(NULL, p_value=0.06)), blank())
    assert found.rejected == (called,)
    assert whole(called, alpha=0.04).rejected == ()
    invalid = blank(null=NULL, reason="the map fails validation.")
    assert whole(invalid).rejected == ()


def test_directions_are_looked_up_by_groups_and_label():
    one, other = blank(label=1), blank(label=0)
    found = whole(one, other)
    assert found.direction("a", "b", 0) is other
    assert found.direction("a", "b", 1) is one
    assert list(found) == [one, other]
    for wrong in (("b", "a"), ("a", "b", 2)):
        with pytest.raises(KeyError):
            found.direction(*wrong)


def test_json_has_aggregates_only(result):
    text = json.dumps(result.to_dict(), allow_nan=False)
    data = json.loads(text)
    assert "flipset" not in text
    assert "features" not in data["directions"][0]
    first = data["directions"][0]
    assert first["p_value"] == result.directions[0].p_value
    assert first["gross"]["value"] == result.directions[0].gross.value
    assert first["rows"] == [N, N]
    values = {f"{value:.5f}".rstrip("0") for value in X.ravel()}
    assert not [value for value in values if len(value) > 6 and value in text]


def test_printed_results_have_no_rows(result):
    shown = repr(result)
    assert "flipset=" not in shown
    assert str(float(X[3, 0]))[:6] not in shown


def test_texts_fit_a_terminal_with_long_group_names(result):
    text = str(result)
    assert max(map(len, text.splitlines())) <= 100
    assert WOMEN in text.replace("\n  ", " ")
    for each in result:
        assert max(map(len, str(each).splitlines())) <= 100
    large = ShareEstimate(value=0.455, interval=(0.444, 0.466))
    widest = blank(
        source="group " * 6,
        target="other " * 6,
        label=1,
        rows=(100_000, 1),
        advantaged=large,
        disadvantaged=large,
        gross=large,
        net=dataclasses.replace(large, value=-0.455),
        null=dataclasses.replace(NULL, bound=0.455, p_value=0.002),
    )
    lines = str(whole(widest)).splitlines()
    assert max(map(len, lines)) <= 100
    assert "label 1" in lines[4]


def test_short_names_are_not_truncated():
    each = blank(source="woman", target="man", label=0)
    assert "woman → man, label 0" in str(whole(each))


def test_names_are_escaped_in_a_notebook():
    each = blank(source="<b>", target="b", reason="<script>")
    html = whole(each)._repr_html_()
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;" in html


def test_a_missing_result_is_reported(result):
    assert "no result" in str(blank())
    assert "no p-value: too few." in str(whole(blank(reason="too few.")))
    assert str(whole())
    assert json.dumps(whole().to_dict())
    assert whole().plot().axes
    assert whole(blank()).plot().axes
    assert result.plot().axes
    # A figure of a side without an explanation is an error.
    with pytest.raises(KeyError):
        blank().plot_transparency("advantaged")


def test_an_incomplete_test_says_so_first():
    text = str(whole(blank(), complete=False, warnings=("Not complete: gone.",)))
    assert "Incomplete: see the warnings." in " ".join(" ".join(text.splitlines()[:2]).split())
    assert "! Not complete: gone." in text


def test_the_null_distribution_is_explained(result):
    text = str(result).replace("\n  ", " ")
    assert "flips if both groups had the same features" in text
    assert "does not show whether the features that differ are justified" in text
    quiet = str(whole(blank(reason="no.")))
    assert "null 95%:" not in quiet


def test_progress_never_exceeds_its_total():
    steps: list[tuple[str, int, int]] = []
    with reporting(lambda *step: steps.append(step), 3) as reporter:
        reporter.doing("first")
        reporter.step()
        reporter.step(5)
    assert steps == [("first", 0, 3), ("first", 1, 3), ("first", 3, 3)]


def test_a_progress_bar_is_drawn_on_request(capsys, monkeypatch):
    # As if the tests ran in a terminal.
    monkeypatch.setenv("FORCE_COLOR", "1")
    with reporting(True, 4) as reporter:  # noqa: FBT003 - as users write it
        reporter.doing("maps")
        reporter.step(4)
    with reporting(None, 4) as reporter:
        reporter.step()
    with reporting(False, 4) as reporter:  # noqa: FBT003 - as users write it
        reporter.step()
    output = capsys.readouterr()
    assert output.out == ""
    assert "maps" in output.err
