"""The picture of the audit shows the headline with its interval, who loses, and numbers of rows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from matplotlib.text import Text
from pydantic import TypeAdapter

from monitor.fitting.audit import FitAudit
from monitor.fitting.audit_figure import audit_figure

DATA = Path(__file__).parents[3] / "docs/images/fit-audit.json"


@pytest.fixture(scope="module")
def audit():
    return TypeAdapter(FitAudit).validate_python(json.loads(DATA.read_text(encoding="utf-8")))


def texts(audit):
    figure = audit_figure(audit)
    figure.canvas.draw()
    return [" ".join(text.get_text().split()) for text in figure.findobj(Text)]


def with_attribute(audit, **changes):
    sex = dataclasses.replace(audit.attributes["sex"], **changes)
    return dataclasses.replace(audit, attributes={"sex": sex})


def test_every_attribute_has_its_headline_interval_and_who_loses(audit):
    shown = texts(audit)
    for name, attribute in audit.attributes.items():
        share, low, high = (f"{value:.1%}" for value in attribute.headline)
        (title,) = (text for text in shown if f"other {name}." in text)
        assert (
            f"About {share} of decisions (95% interval over data and fit: {low} to {high})" in title
        )
        assert "loses against" in title
    man, woman = audit.attributes["sex"].interval.pairs
    assert f"woman loses n = {woman.rows:,}" in shown
    assert f"man gains n = {man.rows:,}" in shown
    assert "from 'refused' to 'granted'" in shown
    assert not [text for text in shown if "unclear" in text]


def test_unclear_pairs_are_hollow_and_the_legend_says_so(audit):
    interval = audit.attributes["sex"].interval
    unclear = [dataclasses.replace(pair, net_margin=1.0) for pair in interval.pairs]
    changed = with_attribute(audit, interval=dataclasses.replace(interval, pairs=tuple(unclear)))
    shown = texts(changed)
    assert "hollow: unclear who loses" in shown
    assert f"unclear who loses n = {unclear[0].rows:,}" in shown
    assert any("No group clearly loses" in text for text in shown)
    bars = audit_figure(changed).axes[0].patches
    assert {bar.get_facecolor() for bar in bars} == {(1.0, 1.0, 1.0, 1.0)}
    assert len({bar.get_hatch() for bar in bars}) == 2


def test_a_doubt_about_the_scores_is_in_the_headline(audit):
    shown = texts(with_attribute(audit, doubt="scores are saturated"))
    (title,) = (text for text in shown if "other sex." in text)
    assert title.startswith("The share is not established: scores are saturated.")
    assert "That is" not in title
    assert "This cannot be determined: scores are saturated." in title
    assert any(text.startswith("not established n =") for text in shown)
    assert not any("loses n =" in text for text in shown)


def test_without_refits_rates_take_the_place_of_pairs(audit):
    shown = texts(with_attribute(audit, interval=None))
    assert "rate of 'granted'" in shown
    assert f"n = {audit.attributes['sex'].groups['man']:,}" in shown
    assert any("over sampling only, not the fit" in text for text in shown)


def test_names_with_dollar_signs_are_drawn(audit):
    changed = with_attribute(audit, favourable="$5", feature_shares=(("$a$", 1.0),))
    assert r"\$a\$ contributes most" in texts(changed)
    assert changed.png().startswith(b"\x89PNG")


def test_a_classifier_without_an_effect_has_an_empty_panel_of_features(audit):
    assert "no feature contributes" in texts(with_attribute(audit, feature_shares=()))
