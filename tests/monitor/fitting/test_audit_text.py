"""The text of the audit for one attribute, on the audit of the documentation's picture."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from monitor.fitting.audit import FitAudit
from monitor.fitting.audit_text import attribute_lines

DATA = Path(__file__).parents[3] / "docs/images/fit-audit.json"


@pytest.fixture(scope="module")
def audit():
    found = TypeAdapter(FitAudit).validate_python(json.loads(DATA.read_text(encoding="utf-8")))
    return found.attributes["sex"]


def text_of(audit):
    return " ".join("\n".join(attribute_lines("sex", audit)).split())


def test_a_feature_that_nearly_is_the_group_is_named(audit):
    sure = dataclasses.replace(audit.status, accuracy=0.998)
    text = text_of(dataclasses.replace(audit, status=sure))
    main = audit.feature_shares[0][0]
    assert f"Some feature nearly is the group (main feature: {main})." in text
    assert "nearly is the group" not in text_of(audit)
    # The spec says so already.
    assert "nearly is" not in text_of(dataclasses.replace(audit, status=sure, is_input=True))
    rare = dataclasses.replace(sure, majority=0.995)
    assert "nearly is" not in text_of(dataclasses.replace(audit, status=rare))


def test_the_share_is_also_a_number_of_rows(audit):
    rows = audit.interval.rows
    number = f"{audit.interval.share * rows:,.0f}"
    assert f"Of the {rows:,} rows of this estimate, that share is about {number} rows." in text_of(
        audit
    )


def test_unknown_groups_are_a_sentence(audit):
    text = text_of(dataclasses.replace(audit, unknown=25))
    assert "The group of 25 audited rows is not known: it is missing, or the spec excludes" in text
