"""Results as text, HTML and JSON, also without any figures."""

from __future__ import annotations

import dataclasses
import html
import json
from typing import Any

import numpy as np
import pytest

from offline_audit import FlipTestResult, flip_test
from offline_audit.coverage import Unknowns
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


def direction_of(**changes):
    fields = {"source": "a", "target": "b", "label": None, "rows": (5, 6), "rates": (0.2, None)}
    return FlipDirection(**{**fields, **changes})


def result_of(*directions, **changes):
    fields = {
        "attribute": "sex",
        "criterion": "statistical_parity",
        "map": "joint_quantile",
        "cost": "squared_l2",
        "alpha": 0.05,
        "n_counterparts": 8,
        "seed": 0,
        "complete": True,
        "unknown": Unknowns(rows=11, groups={"sex": 0}),
        "warnings": (),
    }
    return FlipTestResult(directions=directions, **{**fields, **changes})


NULL = NullSizes(mean=0.01, bound=0.02, n_resamples=19, p_value=0.05)


def test_a_reason_removes_the_p_value():
    assert direction_of().p_value is None
    assert direction_of(null=NULL).p_value == 0.05
    assert direction_of(null=NULL, reason="the map fails validation.").p_value is None


def test_rejected_follows_from_level_and_p_value():
    rejected = direction_of(null=NULL)
    result = result_of(
        rejected, direction_of(null=dataclasses.replace(NULL, p_value=0.06)), direction_of()
    )
    assert result.rejected == (rejected,)
    assert result_of(rejected, alpha=0.04).rejected == ()
    invalid = direction_of(null=NULL, reason="the map fails validation.")
    assert result_of(invalid).rejected == ()


def test_directions_are_looked_up_by_groups_and_label():
    one, other = direction_of(label=1), direction_of(label=0)
    result = result_of(one, other)
    assert result.direction("a", "b", 0) is other
    assert result.direction("a", "b", 1) is one
    assert list(result) == [one, other]
    for key in (("b", "a"), ("a", "b", 2)):
        with pytest.raises(KeyError):
            result.direction(*key)


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
    for direction in result:
        assert max(map(len, str(direction).splitlines())) <= 100
    large = ShareEstimate(value=0.455, interval=(0.444, 0.466))
    widest = direction_of(
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
    lines = str(result_of(widest)).splitlines()
    assert max(map(len, lines)) <= 100
    assert "label 1" in lines[4]


def test_short_names_are_not_truncated():
    direction = direction_of(source="woman", target="man", label=0)
    assert "woman → man, label 0" in str(result_of(direction))


def test_names_are_escaped_in_a_notebook():
    direction = direction_of(source="<b>", target="b", reason="<script>")
    html = result_of(direction)._repr_html_()
    assert "<b>" not in html
    assert "<script>" not in html
    assert "&lt;b&gt;" in html


def test_a_missing_result_is_reported(result):
    assert "no result" in str(direction_of())
    assert "no p-value: too few." in str(result_of(direction_of(reason="too few.")))
    assert str(result_of())
    assert json.dumps(result_of().to_dict())
    assert result_of().plot().axes
    assert result_of(direction_of()).plot().axes
    assert result.plot().axes
    # A figure of a side without an explanation is an error.
    with pytest.raises(KeyError):
        direction_of().plot_transparency("advantaged")


def test_an_incomplete_test_is_reported_first():
    text = str(result_of(direction_of(), complete=False, warnings=("Not complete: gone.",)))
    assert "Incomplete: see the warnings." in " ".join(" ".join(text.splitlines()[:2]).split())
    assert "! Not complete: gone." in text


def test_the_null_distribution_is_explained(result):
    text = str(result).replace("\n  ", " ")
    assert "flips if both groups had the same features" in text
    assert "does not show whether the features that differ are justified" in text
    untested = str(result_of(direction_of(reason="no.")))
    assert "null: 95% bound" not in untested


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


def share(value, low, high):
    return ShareEstimate(value=value, interval=(low, high))


def test_sentences_say_who_loses_and_which_share_of_the_refused_would_be_granted():
    women = direction_of(
        source="woman",
        target="man",
        rates=(0.3, 0.5),
        advantaged=share(0.01, 0.0, 0.02),
        disadvantaged=share(0.21, 0.19, 0.23),
        gross=share(0.22, 0.2, 0.24),
        of_favourable=share(0.033, 0.0, 0.07),
        of_unfavourable=share(0.3, 0.27, 0.33),
        net=share(-0.2, -0.22, -0.18),
        null=NULL,
    )
    assert women.balance == "loses"
    assert women.sentences(("'refused'", "'granted'")) == (
        "22.0% (95% interval 20.0% to 24.0%) of the decisions about woman would change as man.",
        (
            "On balance woman loses 20.0 percentage points (95% interval 18.0 to 22.0); 30.0% of "
            "the decisions about woman are 'granted', 50.0% of those about man."
        ),
        (
            "Of the 'refused' decisions about woman, 30.0% (95% interval 27.0% to 33.0%) would be "
            "'granted' as man."
        ),
        (
            "Of the 'granted' decisions about woman, 3.3% (95% interval 0.0% to 7.0%) would be "
            "'refused' as man."
        ),
    )
    gains = dataclasses.replace(women, net=share(0.2, 0.18, 0.22))
    assert "woman gains 20.0 percentage points (95% interval 18.0 to 22.0)" in gains.sentences()[1]
    even = dataclasses.replace(women, net=share(-0.01, -0.02, 0.01))
    assert "neither group clearly loses: gains minus losses -1.0" in even.sentences()[1]
    invalid = dataclasses.replace(women, reason="the map fails validation.")
    assert invalid.balance == "unclear"
    assert "Who loses cannot be determined" in invalid.sentences()[1]


def test_shares_of_decisions_are_counts_of_flips_over_counts_of_decisions(result):
    for direction in result:
        flipset = direction.flipset
        for side, own, part in (
            ("disadvantaged", ~flipset.decisions, direction.of_unfavourable),
            ("advantaged", flipset.decisions, direction.of_favourable),
        ):
            flips = flipset.flips(side)[:, own]
            assert part.value == pytest.approx(flips.sum() / flips.size)
            assert part.interval[0] <= part.value <= part.interval[1]


def test_a_share_of_few_decisions_is_not_reported():
    few = flip_test(
        lambda rows: rows[:, 0] > 3.5,
        X,
        {"who": np.repeat(["a", "b"], N)},
        n_resamples=0,
        n_bootstrap=0,
        progress=False,
    ).direction("a", "b")
    assert few.of_favourable is None
    assert few.of_unfavourable is not None
    assert len([s for s in few.sentences() if s.startswith("Of the")]) == 1


def shifted_groups(n):
    rng = np.random.default_rng(7)
    groups = np.repeat(["a", "b"], n)
    features = (rng.normal(size=(2 * n, 2)) + 1.0 * (groups == "b")[:, None]).astype(np.float32)
    options: Any = {"n_resamples": 19, "n_bootstrap": 5, "progress": False}
    return flip_test(lambda rows: rows[:, 0] > 0.5, features, groups, **options)


def test_a_map_that_is_not_shown_to_be_good_is_stated_alike_everywhere():
    result = shifted_groups(150)
    direction = result.direction("a", "b")
    assert direction.validation is not None
    statement = direction.validation.statement
    assert statement.startswith("Map not validated: no check failed on 75 held-out people")
    # The p-value tests whether features are the same in both groups; it remains.
    assert direction.p_value is not None
    assert statement in direction.warnings
    shown = direction.to_dict()["validation"]
    assert (shown["state"], shown["statement"]) == ("not shown", statement)
    assert shown["detectable"]["ks"] == pytest.approx(direction.validation.detectable.ks)
    for part in (direction, result):
        for text in (str(part), html.unescape(part._repr_html_())):
            assert statement in " ".join(text.split())
    assert str(direction).count("Map not validated") == 1
    named = [s for s in direction.sentences() if "one feature alone undoes" in s]
    assert named
    assert all("undoes (map not validated): " in sentence for sentence in named)


def test_a_validated_map_has_no_caveat():
    direction = shifted_groups(5_000).direction("a", "b")
    assert direction.validation is not None
    assert (direction.validation.state, direction.caveat) == ("validated", "")
    assert not any("validated" in text for text in (*direction.warnings, *direction.sentences()))
    assert direction.validation.statement in " ".join(str(direction).split())
