"""A spec is read from YAML, and errors name the field."""

from __future__ import annotations

import re

import pytest

from monitor import FitSpec, read_spec
from monitor.errors import FitError
from monitor.fitting.spec import ProtectedColumn


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


def write(folder, text, *edits):
    """A spec file with some edits."""
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "spec.yaml").write_text(text)
    return folder / "spec.yaml"


def test_all_problems_of_a_spec_are_reported_at_once(user_files, tmp_path):
    path = write(
        tmp_path,
        (user_files / "features.yaml").read_text(),
        ("output: logit ", "output: logits "),
        ("  name: my-model", "  nme: my-model"),
        ("{name: loan_amount,", "{name: income,"),
        ("features: [purpose=home, ", "features: ["),
        ("classifier:", "labell: x\norder: [wealth]\nclassifier:"),
    )
    with pytest.raises(FitError) as error:
        read_spec(path)
    messages = str(error.value).splitlines()
    assert len(messages) == 7
    assert all(message.startswith(f"{path}: ") for message in messages)
    for part in (
        "classifier.output", "model.name: Field required", "unknown field model.nme",
        "unknown field labell; did you mean label?", "'income' appears twice",
        "'purpose=home' is of kind onehot, but in no one-hot group", "order names 'wealth'",
    ):  # fmt: skip
        assert any(part in message for message in messages), part


RAW = """\
model: {name: loans, version: "1"}
classifier: {output: logit}
inputs:
  - {name: income, kind: number}
  - {name: job, kind: category, categories: [cook, smith]}
protected_attributes:
  - {name: ethnicity, column: code, groups: [1, 2, 3]}
"""


@pytest.mark.parametrize(
    ("edits", "messages"),
    [
        ([("columns", "columns")], []),
        ([("kind: number", "kind: nmber"), ("logit", "logits")], ["classifier.output", "inputs.0"]),
        (
            [("protected", "columns: [income]\nprotected"), ("logit", "logits")],
            ["columns must name every encoded column once; see 'job=cook'", "classifier.output"],
        ),
        (
            [("protected", "label: {column: job, favourable: cook}\nprotected")],
            ["label column 'job' is also an input"],
        ),
    ],
)
def test_problems_of_raw_inputs_come_with_all_others(tmp_path, edits, messages):
    path = write(tmp_path, RAW + "# columns\n", *edits)
    if not messages:
        assert [a.groups for a in read_spec(path).protected_attributes] == [("1", "2", "3")]
        return
    with pytest.raises(FitError) as error:
        read_spec(path)
    found = str(error.value).splitlines()
    assert len(found) == len(messages)
    assert all(message in line for message, line in zip(messages, found, strict=True))


@pytest.mark.parametrize(
    ("groups", "values"),
    [
        ("[1, 2, 3]", {"1": ("1",), "2": ("2",), "3": ("3",)}),
        ("[true, false]", {"true": ("true",), "false": ("false",)}),
        ("[a, {other: [b, 7]}]", {"a": ("a",), "other": ("b", "7")}),
        ("{white: 1, other: [2, 3], x: }", {"white": ("1",), "other": ("2", "3"), "x": ("x",)}),
    ],
)
def test_groups_are_named_merged_and_need_no_quotes(tmp_path, groups, values):
    path = write(tmp_path, RAW, ("[1, 2, 3]", groups))
    (attribute,) = read_spec(path).protected_attributes
    assert attribute.values == values
    assert attribute.groups == tuple(values)
    assert ProtectedColumn.model_validate(attribute.model_dump()) == attribute


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("[a, {b: [a, c]}]", "value 'a' of 'ethnicity' is listed 2 times"),
        ("[a, b], excluded: [b]", "value 'b' of 'ethnicity' is listed 2 times"),
        ("[a, b, a]", "group of 'ethnicity' 'a' appears twice"),
        ("{a: , b: }, excluded: [c], feature: job", "cannot be renamed, merged or excluded"),
        ("[a, b], feature: sex", "no input, feature or one-hot group has this name; omit"),
        ("[a, b], feature: income", "neither a binary feature nor a one-hot group"),
        ("[a]", "groups"),
        ("3", "groups"),
    ],
)
def test_inconsistent_groups_are_refused(tmp_path, groups, message):
    with pytest.raises(FitError, match=message):
        read_spec(write(tmp_path, RAW, ("[1, 2, 3]", groups)))


ENCODED = """\
model: {name: loans, version: "1"}
classifier: {output: logit}
features: [{name: sex, kind: binary}, {name: job=a, kind: onehot}, {name: job=b, kind: onehot}]
one_hot_groups: [{name: job, features: [job=a, job=b]}]
protected_attributes:
  - {name: attribute, column: COLUMN, groups: [0, 1]}
"""


@pytest.mark.parametrize(
    ("text", "column", "feature"),
    [
        (RAW.replace("code", "job").replace("1, 2, 3", "cook, smith"), "job", "job"),
        (RAW.replace("code", "income"), "income", "income"),
        (ENCODED.replace("COLUMN", "sex"), "sex", "sex"),
        (ENCODED.replace("COLUMN", "job"), "job", "job"),
        (ENCODED.replace("COLUMN", "job=b"), "job=b", "job"),
    ],
)
def test_an_input_that_is_a_protected_attribute_must_say_so(tmp_path, text, column, feature):
    """Otherwise the log would store the groups in clear."""
    with pytest.raises(FitError) as error:
        read_spec(write(tmp_path, text))
    message = " ".join(str(error.value).split())
    assert f"input '{column}' reads the column of protected attribute" in message
    assert f"set `feature: {feature}`, or rename the input" in message
    if feature != "income":
        marked = text.replace(", groups: [", f", feature: {feature}, groups: [")
        assert read_spec(write(tmp_path, marked)).protected_attributes[0].feature == feature


def test_an_invalid_spec_in_python_has_the_messages_of_the_file():
    content = {"model": {"name": "a"}, "classifier": {"output": "logits"}, "featurs": []}
    with pytest.raises(FitError) as error:
        FitSpec.model_validate(content)
    text = str(error.value)
    assert "model.version: Field required" in text
    assert "unknown field featurs; did you mean features?" in text
    assert "input_value" not in text
    assert "pydantic" not in text
