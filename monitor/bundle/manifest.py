"""The manifest of a bundle: a description of the model, and the hash of every file."""

from __future__ import annotations

import datetime as dt
import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, Field, model_serializer, model_validator
from pydantic_core.core_schema import SerializerFunctionWrapHandler

from monitor.bundle.features import Feature, Name, OneHotGroup, Part
from monitor.bundle.inputs import RawInput, derived_columns

__all__ = [
    "DEFAULT_MAX_BYTES",
    "DEFAULT_PROBE_ROWS",
    "FORMAT_VERSION",
    "MANIFEST_FILE",
    "MODEL_NAME",
    "BundleSpec",
    "ClassifierFile",
    "Decision",
    "Feature",
    "FileEntry",
    "Fitted",
    "Manifest",
    "Model",
    "OneHotGroup",
    "ProtectedAttribute",
    "Sha256",
    "consistency_problems",
]

DEFAULT_MAX_BYTES = 4 << 30
DEFAULT_PROBE_ROWS = 64
FORMAT_VERSION = 1
MANIFEST_FILE = "manifest.json"
# Names of models and versions; safe in a path.
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

Text = Annotated[str, Field(max_length=2000, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[
    str,
    Field(
        pattern=r"^(classifier\.pt2?|status\.pt2|maps\.npz|inputs\.npz|baseline\.npz|drift\.npz|audit\.(txt|json|png)|kernel/\w[\w.+-]*(/\w[\w.+-]*)*)$"
    ),
]


class Model(Part):
    """Name and version of the deployed model."""

    name: Annotated[str, Field(pattern=MODEL_NAME)]
    version: Annotated[str, Field(pattern=MODEL_NAME)]


class ProtectedAttribute(Part):
    """An attribute such as sex, its groups, and its feature if the classifier uses it.

    `feature` is None if the attribute is not an input of the classifier; otherwise a binary
    feature (0 is the first group, 1 the second) or of a one-hot group (features in the order of
    the groups, a dropped category last). Members of an `excluded` group are scored as members of
    the others, and outcomes may name it, so that audits of decisions see them.
    """

    name: Name
    groups: Annotated[tuple[Name, ...], Field(strict=False, min_length=2, max_length=100)]
    excluded: Annotated[tuple[Name, ...], Field(strict=False, max_length=100)] = ()
    feature: Name | None = None

    @property
    def recorded_groups(self) -> tuple[str, ...]:
        """Groups that outcomes may name."""
        return (*self.groups, *self.excluded)


class Decision(Part):
    """The decision rule: class 1 if P(class 1) ≥ threshold."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    favourable: Literal[0, 1] = 1
    class_names: Annotated[tuple[Name, Name], Field(strict=False)] = ("0", "1")

    @model_validator(mode="after")
    def _class_names_differ(self) -> Self:
        if self.class_names[0] == self.class_names[1]:
            raise ValueError(f"both classes have the name {self.class_names[0]!r}")
        return self


class ClassifierFile(Part):
    """The classifier's file, and the kind of its output.

    `logit` and `probability` refer to class 1, shape `[n]` or `[n, 1]`; the two-column kinds have
    shape `[n, 2]` with class 1 second.
    """

    file: Literal["classifier.pt2", "classifier.pt"] = "classifier.pt2"
    output: Literal["logit", "probability", "two_logits", "two_probabilities"]


def _refuse_numbers(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("must be a time such as 2026-01-02T03:04:05Z")  # noqa: TRY004 - pydantic's
    return value


class Fitted(Part):
    """How, when and by which versions the bundle was created."""

    at: Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_refuse_numbers)]
    evenhand: Text
    torch: Text
    seed: int
    rows: Annotated[int, Field(ge=0)]
    notes: Text = ""

    @classmethod
    def now(cls, *, seed: int, rows: int, notes: str = "") -> Self:
        """The current time and the installed versions."""
        return cls(
            at=dt.datetime.now(dt.UTC),
            evenhand=version("evenhand"),
            torch=version("torch"),
            seed=seed,
            rows=rows,
            notes=notes,
        )


class FileEntry(Part):
    """A file's hash and size."""

    sha256: Sha256
    bytes: Annotated[int, Field(ge=0)]


class BundleSpec(Part):
    """The manifest without the list of files.

    `inputs` are the raw inputs that write the features; empty if clients send encoded features.
    """

    model: Model
    classifier: ClassifierFile
    features: Annotated[tuple[Feature, ...], Field(strict=False, min_length=1)]
    one_hot_groups: Annotated[tuple[OneHotGroup, ...], Field(strict=False)] = ()
    inputs: Annotated[tuple[RawInput, ...], Field(strict=False)] = ()
    protected_attributes: Annotated[
        tuple[ProtectedAttribute, ...], Field(strict=False, min_length=1)
    ]
    decision: Decision
    fitted: Fitted

    @property
    def width(self) -> int:
        """Number of encoded columns, d."""
        return len(self.features)

    @property
    def protected_features(self) -> frozenset[str]:
        """Names of the encoded columns that are protected attributes themselves."""
        named = {a.feature for a in self.protected_attributes if a.feature is not None}
        for group in self.one_hot_groups:
            if group.name in named:
                named |= set(group.features)
        return frozenset(named & {feature.name for feature in self.features})

    @property
    def protected_inputs(self) -> frozenset[str]:
        """Names of the raw inputs that write a protected attribute."""
        protected = self.protected_features
        return frozenset(raw.name for raw in self.inputs if protected & {*raw.columns})

    @property
    def heads(self) -> dict[str, slice]:
        """Columns of the status model's logits by protected attribute."""
        heads, start = {}, 0
        for attribute in self.protected_attributes:
            heads[attribute.name] = slice(start, start := start + len(attribute.groups))
        return heads

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        parts = {name: getattr(self, name) for name in type(self).model_fields}
        if problems := [*consistency_problems(parts)]:
            raise ValueError("; ".join(problems))
        return self

    @model_serializer(mode="wrap")
    def _without_empty_inputs(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Fields of the manifest; a bundle without raw inputs does not mention them."""
        content: dict[str, object] = dump(self)
        if not self.inputs:
            content.pop("inputs", None)
        return content


class Manifest(BundleSpec):
    """A bundle's `manifest.json`."""

    format_version: Literal[1]
    files: dict[FileName, FileEntry]

    @model_validator(mode="after")
    def _classifier_is_listed(self) -> Self:
        if self.classifier.file not in self.files:
            raise ValueError(f"files do not contain the classifier, {self.classifier.file!r}")
        return self


def consistency_problems(parts: Mapping[str, Any]) -> Iterator[str]:
    """What does not fit together in the fields of a spec, as sentences.

    Args:
        parts: Valid fields by name; checks that need others are left out.
    """
    for check in (
        _repeated_names,
        _repeated_attributes,
        _one_hot_problems,
        _attribute_problems,
        _input_problems,
    ):
        needed = [*inspect.signature(check).parameters]
        if all(name in parts for name in needed):
            yield from check(*(parts[name] for name in needed))


def _repeated_names(
    features: Sequence[Feature], one_hot_groups: Sequence[OneHotGroup]
) -> Iterator[str]:
    columns = [feature.name for feature in features]
    groups = [group.name for group in one_hot_groups]
    repeated = [*_repeated("feature", columns)]
    yield from repeated or _repeated("feature or one-hot group", columns + groups)


def _repeated_attributes(protected_attributes: Sequence[ProtectedAttribute]) -> Iterator[str]:
    yield from _repeated("protected attribute", [a.name for a in protected_attributes])
    for attribute in protected_attributes:
        yield from _repeated(f"group of {attribute.name!r}", list(attribute.groups))


def _one_hot_problems(
    features: Sequence[Feature], one_hot_groups: Sequence[OneHotGroup]
) -> Iterator[str]:
    onehot = {feature.name for feature in features if feature.kind == "onehot"}
    listed = [name for group in one_hot_groups for name in group.features]
    yield from _repeated("feature in one_hot_groups", listed)
    for name in sorted(set(listed) - onehot):
        yield f"one_hot_groups list {name!r}, which is not a feature of kind onehot"
    for name in sorted(onehot - set(listed)):
        yield f"feature {name!r} is of kind onehot, but in no one-hot group"


def _attribute_problems(
    features: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    protected_attributes: Sequence[ProtectedAttribute],
) -> Iterator[str]:
    sizes = {feature.name: 2 for feature in features if feature.kind == "binary"}
    sizes |= {g.name: len(g.features) + (g.dropped is not None) for g in one_hot_groups}
    names = {f.name for f in features} | {g.name for g in one_hot_groups}
    for attribute in protected_attributes:
        feature, count = attribute.feature, len(attribute.groups)
        if feature is None:
            continue
        if feature not in names:
            yield (
                f"protected attribute {attribute.name!r} names feature {feature!r}, but no input, "
                "feature or one-hot group has this name; omit `feature` if the attribute is not an "
                "input of the classifier"
            )
        elif feature not in sizes:
            yield (
                f"protected attribute {attribute.name!r} names feature {feature!r}, which is "
                "neither a binary feature nor a one-hot group"
            )
        elif sizes[feature] != count:
            yield (
                f"protected attribute {attribute.name!r} has {count} groups, but feature "
                f"{feature!r} has {sizes[feature]} values"
            )


def _input_problems(
    features: Sequence[Feature],
    one_hot_groups: Sequence[OneHotGroup],
    inputs: Sequence[RawInput],
    protected_attributes: Sequence[ProtectedAttribute],
) -> Iterator[str]:
    if not inputs:
        return
    yield from _repeated("input", [raw.name for raw in inputs])
    protected = frozenset(a.feature for a in protected_attributes if a.feature is not None)
    try:
        derived, groups = derived_columns(inputs, [f.name for f in features], protected)
    except ValueError as error:
        yield str(error)
        return
    for written, listed in zip(derived, features, strict=True):
        if written.kind != listed.kind:
            yield f"feature {listed.name!r} is {listed.kind}, but its input writes {written.kind}"
    if {group.name: group for group in groups} != {g.name: g for g in one_hot_groups}:
        yield "one_hot_groups are not those that the inputs write"


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} {name!r} appears {'twice' if count == 2 else f'{count} times'}"
