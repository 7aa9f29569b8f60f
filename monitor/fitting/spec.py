"""The spec: a YAML file that describes the columns of the training data."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from monitor.bundle.features import Name, Value, as_text
from monitor.bundle.inputs import RawCategory, RawInput, RawNumber, derived_columns
from monitor.bundle.manifest import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
    consistency_problems,
)
from monitor.bundle.reader import validation_message
from monitor.errors import FitError
from monitor.yaml_file import read_yaml

__all__ = ["FitSpec", "LabelColumn", "Output", "ProtectedColumn", "read_spec"]


Values = Annotated[tuple[Value, ...], Field(strict=False)]


class ProtectedColumn(ProtectedAttribute):
    """A protected attribute, and the column of the data with the group of each row.

    In a spec, `groups` is a list or a mapping of groups. `other: [a, b]` merges two values into one
    group, and `white: 1` names a value.

    Attributes:
        column: Column of the data.
        merged: Values of the groups that have other values than their name.
        excluded: Values whose rows have no part in the fit for this attribute.
    """

    column: Annotated[str, Field(min_length=1)]
    merged: Mapping[Name, Values] = {}
    excluded: Values = ()

    @model_validator(mode="before")
    @classmethod
    def _read_groups(cls, value: Any) -> Any:
        """Names of the groups as text, and the values of those that are mapped."""
        if not isinstance(value, dict) or not isinstance(value.get("groups"), dict | list | tuple):
            return value
        groups, names, merged = value["groups"], [], dict(value.get("merged") or {})
        for item in [groups] if isinstance(groups, dict) else groups:
            for name, values in (item if isinstance(item, dict) else {item: None}).items():
                text = as_text(name)
                names.append(text)
                if values is not None:
                    merged[text] = values if isinstance(values, list | tuple) else [values]
        return value | {"groups": names, "merged": merged}

    @property
    def attribute(self) -> ProtectedAttribute:
        """The attribute without the column."""
        return ProtectedAttribute(
            name=self.name, groups=self.groups, excluded=self.excluded, feature=self.feature
        )

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Values of the column by group."""
        return {group: self.merged.get(group, (group,)) for group in self.groups}

    def problems(self) -> Iterator[str]:
        """What does not fit together, as sentences."""
        listed = [*self.excluded, *(value for own in self.values.values() for value in own)]
        for value, count in Counter(listed).items():
            if count > 1:
                yield f"value {value!r} of {self.name!r} is listed {count} times"
        if self.feature is not None and (self.excluded or self.merged):
            yield (
                f"protected attribute {self.name!r} is an input of the classifier (feature "
                f"{self.feature!r}), so its groups must be the values of that feature: they cannot "
                "be renamed, merged or excluded in the spec. Do so in the data before the "
                "classifier is trained; or remove `feature`, and give the input another name than "
                f"the column {self.column!r}: the traffic log then stores it like any other"
            )


class LabelColumn(BaseModel):
    """The column of the data with the true outcome of each row, and its favourable value.

    The favourable value is the one that `decision.favourable` predicts; the column has one other
    value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: Annotated[str, Field(min_length=1)]
    favourable: Value


class Output(BaseModel):
    """Kind of output of the classifier."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: Annotated[str, Field(pattern=r"^(two_logits|two_probabilities|logit|probability)$")]


_INPUTS: TypeAdapter[tuple[RawNumber | RawCategory, ...]] = TypeAdapter(tuple[RawInput, ...])


class FitSpec(BaseModel):
    """Description of the model, its features or raw inputs, and the protected attributes.

    With `inputs`, features and one-hot groups are derived from them; `columns` is the order of
    the encoded columns in the classifier's input, by default that of the inputs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    model: Model
    classifier: Output
    features: Annotated[tuple[Feature, ...], Field(min_length=1)]
    one_hot_groups: tuple[OneHotGroup, ...] = ()
    inputs: tuple[RawInput, ...] = ()
    columns: tuple[str, ...] = ()
    protected_attributes: Annotated[tuple[ProtectedColumn, ...], Field(min_length=1)]
    decision: Decision = Decision()
    label: LabelColumn | None = None
    # Features and one-hot groups, causes first; may be incomplete.
    order: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _derive_features(cls, value: Any) -> Any:
        """Derive features and one-hot groups from raw inputs."""
        if not isinstance(value, dict) or not value.get("inputs"):
            return value
        try:
            inputs = _INPUTS.validate_python(value["inputs"])
        except ValidationError:
            # The field `inputs` reports what is wrong.
            return _without_features(value) | {"inputs": value["inputs"]}
        attributes = value.get("protected_attributes", ())
        protected = frozenset(
            str(a.get("feature") if isinstance(a, dict) else getattr(a, "feature", None))
            for a in (attributes if isinstance(attributes, list | tuple) else ())
        )
        features, groups = derived_columns(inputs, value.get("columns") or (), protected)
        derived = {"features": features, "one_hot_groups": groups}
        for name, parts in derived.items():
            if value.get(name) and tuple(value[name]) != parts:
                raise ValueError(f"{name} are derived from inputs; remove {name}")
        return value | derived | {"inputs": inputs}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        parts = {name: getattr(self, name) for name in type(self).model_fields}
        if problems := [*_problems(parts)]:
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """A spec from a mapping of its fields.

        Raises:
            FitError: Fields are unknown, missing, invalid or do not fit together; the message
                lists all problems.
        """
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            if not isinstance(obj, dict):
                problems = [_message(detail) for detail in error.errors(include_url=False)]
            else:
                problems = [*dict.fromkeys(_all_problems(obj))]
        raise FitError("\n".join(problems))

    def bundle_spec(self, file: str, features: tuple[Feature, ...], fitted: Fitted) -> BundleSpec:
        """The spec in the form of a bundle's manifest."""
        return BundleSpec(
            model=self.model,
            classifier=ClassifierFile.model_validate(
                {"file": file, "output": self.classifier.output}
            ),
            features=features,
            one_hot_groups=self.one_hot_groups,
            inputs=self.inputs,
            protected_attributes=tuple(column.attribute for column in self.protected_attributes),
            decision=self.decision,
            fitted=fitted,
        )


# Validation whose errors are those of pydantic.
_VALIDATED = TypeAdapter(FitSpec).validate_python


def read_spec(path: Path | str) -> FitSpec:
    """Read a spec from its YAML file.

    Raises:
        FitError: The file cannot be read, or fields are unknown, missing, invalid or do not fit
            together; the message lists all problems.
    """
    content = read_yaml(Path(path), FitError)
    try:
        return FitSpec.model_validate(content)
    except FitError as error:
        problems = str(error).splitlines()
    raise FitError("\n".join(f"{path}: {problem}" for problem in problems))


def _all_problems(content: dict[str, Any]) -> Iterator[str]:
    """Invalid fields, and what does not fit together in the others.

    Validation of the whole spec stops at the first kind of problem.
    """
    checked = content
    try:
        FitSpec._derive_features(content)  # type: ignore[operator]
    except ValueError as error:
        yield str(error)
        checked = _without_features(content)
    try:
        _VALIDATED(checked)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["loc"]:
                yield _message(detail)
    yield from _problems(_valid_parts(content))


def _without_features(content: dict[str, Any]) -> dict[str, Any]:
    """The spec with a placeholder for features that cannot be derived."""
    kept = {name: part for name, part in content.items() if name not in ("inputs", "columns")}
    return kept | {"features": ({"name": "-", "kind": "numeric"},)}


def _message(detail: Any) -> str:
    message = validation_message(detail)
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
        close = difflib.get_close_matches(str(detail["loc"][0]), FitSpec.model_fields, n=1)
        known = (
            f"did you mean {close[0]}?" if close else f"known: {', '.join(FitSpec.model_fields)}"
        )
        return f"{message}; {known}"
    return message


def _valid_parts(content: dict[str, Any]) -> dict[str, Any]:
    """Fields that are valid by themselves, and features that are derived from valid inputs."""
    try:
        content = FitSpec._derive_features(content)  # type: ignore[operator]
    except ValueError:
        content = {n: part for n, part in content.items() if n not in ("inputs", "features")}
    parts: dict[str, Any] = {}
    for name, info in FitSpec.model_fields.items():
        if name not in content:
            if not info.is_required():
                parts[name] = info.default
            continue
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        try:
            parts[name] = TypeAdapter(kind).validate_python(content[name])
        except ValidationError:
            continue
    if content.get("inputs") and "inputs" not in parts:
        parts.pop("features", None)
    return parts


def _problems(parts: Mapping[str, Any]) -> Iterator[str]:
    """What does not fit together in the valid fields of a spec, as sentences."""
    yield from consistency_problems(parts)
    for attribute in parts.get("protected_attributes", ()):
        yield from attribute.problems()
    if not {"features", "one_hot_groups"} <= parts.keys():
        return
    yield from _unmarked_problems(parts)
    features = [feature.name for feature in parts["features"]]
    yield from _order_problems(parts.get("order", ()), features, parts["one_hot_groups"])
    label, inputs = parts.get("label"), [raw.name for raw in parts.get("inputs", ())]
    if label is not None and label.column in [*inputs, *features]:
        yield (
            f"label column {label.column!r} is also an input of the classifier; a label is the "
            "true outcome, which is not known when the classifier decides"
        )


def _unmarked_problems(parts: Mapping[str, Any]) -> Iterator[str]:
    """Inputs that read the column of a protected attribute whose `feature` is not set."""
    names = dict.fromkeys(raw.name for raw in parts.get("inputs", ()))
    if not names:
        listed = (*parts["one_hot_groups"], *parts["features"])
        names = dict.fromkeys(entry.name for entry in listed)
    group_of = {name: group.name for group in parts["one_hot_groups"] for name in group.features}
    for attribute in parts.get("protected_attributes", ()):
        column = attribute.column
        if attribute.feature is None and column in names:
            yield (
                f"input {column!r} reads the column of protected attribute {attribute.name!r}: "
                f"set `feature: {group_of.get(column, column)}`, or rename the input. Otherwise "
                "the traffic log stores the group of each person like any other feature"
            )


def _order_problems(
    order: tuple[str, ...], features: list[str], groups: tuple[OneHotGroup, ...]
) -> Iterator[str]:
    columns = {name for group in groups for name in group.features}
    names = [name for name in features if name not in columns] + [group.name for group in groups]
    if unknown := [name for name in order if name not in names]:
        yield (
            f"order names {', '.join(map(repr, unknown))}, which is neither a feature nor a "
            "one-hot group; name a one-hot group instead of its columns"
        )
    if len(set(order)) < len(order):
        yield "order names a feature more than once"
