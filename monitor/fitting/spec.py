"""The spec: a YAML file that describes the columns of the training data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from monitor.bundle.features import Name
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
)
from monitor.bundle.reader import validation_message
from monitor.errors import FitError
from monitor.yaml_file import read_yaml

__all__ = ["FitSpec", "ProtectedColumn", "read_spec"]


def _as_text(value: object) -> object:
    """A number or boolean as the text that it has in a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int | float) else value


# A value of a column, as text; a spec may have numbers and booleans without quotes.
Value = Annotated[Name, BeforeValidator(_as_text)]


class ProtectedColumn(ProtectedAttribute):
    """A protected attribute, and the column of the data with the group of each row."""

    column: Annotated[str, Field(min_length=1)]

    @property
    def attribute(self) -> ProtectedAttribute:
        """The attribute without the column."""
        return ProtectedAttribute(name=self.name, groups=self.groups, feature=self.feature)


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

    model_config = ConfigDict(frozen=True, extra="forbid")

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
            return value | {"features": ({"name": "-", "kind": "numeric"},), "columns": ()}
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
    def _check_label(self) -> Self:
        inputs = [raw.name for raw in self.inputs] or [feature.name for feature in self.features]
        if self.label is not None and self.label.column in inputs:
            raise ValueError(
                f"label column {self.label.column!r} is also an input of the classifier; a label "
                "is the true outcome, which is not known when the classifier decides"
            )
        return self

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        columns = {name for group in self.one_hot_groups for name in group.features}
        names = [feature.name for feature in self.features if feature.name not in columns]
        names += [group.name for group in self.one_hot_groups]
        if unknown := [name for name in self.order if name not in names]:
            raise ValueError(
                f"order names {', '.join(map(repr, unknown))}, which is neither a feature nor a "
                "one-hot group; name a one-hot group instead of its columns"
            )
        if len(set(self.order)) < len(self.order):
            raise ValueError("order names a feature more than once")
        return self

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


def read_spec(path: Path | str) -> FitSpec:
    """Read a spec from its YAML file.

    Raises:
        FitError: The file cannot be read, or fields are unknown, missing or invalid; the message
            lists all of them.
    """
    content = read_yaml(Path(path), FitError)
    try:
        spec = FitSpec.model_validate(content)
        # BundleSpec checks that the fields are consistent.
        spec.bundle_spec("classifier.pt2", spec.features, Fitted.now(seed=0, rows=0))
    except ValidationError as error:
        problems = "\n".join(
            f"{path}: {validation_message(detail)}" for detail in error.errors(include_url=False)
        )
        raise FitError(problems) from None
    return spec
