"""A spec is read from YAML, and errors name the field."""

from __future__ import annotations

import re

import pytest

from monitor import (
    read_spec,
)
from monitor.errors import FitError


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("output: logit ", "output: logits "), "classifier.output"),
        (("kind: numeric", "kind: number"), "features.0.kind"),
        (("  name: my-model", "  nme: my-model"), "unknown field model.nme"),
        (("{name: loan_amount,", "{name: income,"), "'income' appears twice"),
        (("features: [purpose=home, ", "features: ["), "in no one-hot group"),
        (("groups: [man, woman]", "groups: [man]"), "protected_attributes.0.groups"),
        (("classifier:", "order: [income, wealth]\nclassifier:"), "order names 'wealth'"),
        (("classifier:", "order: [purpose=home]\nclassifier:"), "name a one-hot group instead"),
        (("classifier:", "order: [income, income]\nclassifier:"), "more than once"),
    ],
)
def test_an_invalid_spec_names_the_field(user_files, tmp_path, edit, message):
    text = (user_files / "features.yaml").read_text()
    assert edit[0] in text
    (tmp_path / "spec.yaml").write_text(text.replace(*edit, 1))
    with pytest.raises(FitError, match=re.escape(message)):
        read_spec(tmp_path / "spec.yaml")
