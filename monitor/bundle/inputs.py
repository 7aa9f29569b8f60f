"""Raw inputs: what people fill in, and how it is encoded for the classifier, as data.

A raw input is a number or a category. It writes one or more of the classifier's encoded columns.
`monitor.bundle.encoding` executes these declarations; they contain no code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_serializer, model_validator

from monitor.bundle.features import Feature, Name, OneHotGroup, Part, Value, as_text

__all__ = [
    "UNSEEN",
    "Indicator",
    "RawCategory",
    "RawInput",
    "RawNumber",
    "Step",
    "Substitute",
    "classifier_columns",
    "derived_columns",
]

# Dropped category of a one-hot group whose columns are all 0 for a category that is not listed.
UNSEEN = "unseen"

Number = Annotated[float, Field(strict=False, allow_inf_nan=False)]


def _set_fields(part: Part) -> dict[str, object]:
    return {name: value for name, value in part if value is not None}


class Step(Part):
    """One operation on numbers, in float64; exactly one field is set."""

    function: Literal["log", "log1p"] | None = None
    add: Number | None = None
    subtract: Number | None = None
    multiply: Number | None = None
    divide: Number | None = None
    clip: Annotated[tuple[Number, Number], Field(strict=False)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_a_function_alone(cls, value: object) -> object:
        return {"function": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _is_one_operation(self) -> Self:
        if len(self.operation) != 1:
            raise ValueError(
                "a step is one of log, log1p, add, subtract, multiply, divide or clip; list "
                "several steps one after the other"
            )
        if self.divide == 0:
            raise ValueError("divide must not be 0")
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError("clip has its lower limit above the upper one")
        return self

    @property
    def operation(self) -> dict[str, object]:
        """Name and operand of the operation."""
        return _set_fields(self)

    @model_serializer
    def _written(self) -> dict[str, object] | str:
        return self.operation if self.function is None else self.function


Steps = Annotated[tuple[Step, ...], Field(strict=False)]


class Indicator(Part):
    """An encoded column that is 1 where a number is missing, else 0, before its steps."""

    column: Name
    steps: Steps = ()


class RawNumber(Part):
    """A number: imputed if it is missing, then changed by steps.

    Attributes:
        name: Name of the raw input.
        impute: Value that replaces a missing one before the steps; None to refuse the request.
        indicator: Column that says whether the number is missing.
        steps: Operations in order, in float64.
        column: Encoded column; None for the name of the input.
        column_kind: Kind of that column.
        missing_code: Value that stands for a missing number, in requests and for the classifier.
            Whether the number is missing is a binary feature, and `impute` the value of the number
            where it is; the classifier gets the code, changed by the steps, in one column.
    """

    name: Name
    kind: Literal["number"] = "number"
    impute: Number | None = None
    indicator: Indicator | None = None
    steps: Steps = ()
    column: Name | None = None
    column_kind: Literal["numeric", "integer", "binary"] = "numeric"
    missing_code: Number | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_indicator(cls, value: object) -> object:
        """Name the feature that says whether a number with a code for missing is missing."""
        if not isinstance(value, dict) or value.get("missing_code") is None:
            return value
        own = value.get("column") or value.get("name")
        return {"indicator": {"column": f"{own}=missing"}} | value

    @model_validator(mode="after")
    def _indicator_has_a_use(self) -> Self:
        if self.indicator is not None and self.impute is None:
            what = "an indicator" if self.missing_code is None else "a missing_code"
            raise ValueError(
                f"input {self.name!r} has {what}, but refuses missing values; set impute"
            )
        if self.missing_code is not None and self.indicator and self.indicator.steps:
            raise ValueError(
                f"input {self.name!r} has a missing_code, so its indicator has no steps"
            )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Encoded columns that it writes."""
        own = self.name if self.column is None else self.column
        return (own,) if self.indicator is None else (own, self.indicator.column)

    def features(self) -> Iterator[Feature]:
        """Descriptions of the encoded columns."""
        yield Feature(name=self.columns[0], kind=self.column_kind)
        if self.indicator is not None:
            yield Feature(
                name=self.indicator.column, kind="numeric" if self.indicator.steps else "binary"
            )


class Substitute(Part):
    """What stands for a missing or unseen category; exactly one field is set.

    Attributes:
        own: A listed category that stands for missing values only; its name is not accepted as
            text.
        category: A listed category.
        code: Code of an ordinal encoding.
    """

    own: Name | None = None
    category: Name | None = None
    code: Number | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(_set_fields(self)) != 1:
            raise ValueError("set exactly one of own, category and code")
        return self

    @model_serializer
    def _written(self) -> dict[str, object]:
        return _set_fields(self)


class RawCategory(Part):
    """A category: one of a list, encoded as columns of 0 and 1 or as a code.

    A one-hot encoding with a dropped category and one column left is a binary feature. With the
    encoding `code`, the features are one-hot, and the classifier gets a code in one column, for
    example for an embedding; `ordinal` is for ordered categories only, since maps interpolate.

    Attributes:
        name: Name of the raw input.
        categories: Categories as text; whole numbers without a decimal point, `true` and `false`.
        encoding: `onehot`; or a code per category: `ordinal` if their order has a meaning, `code`
            if it has none.
        dropped: Category without a column.
        codes: Code per category; None for 0, 1, 2, …, or with `code` for the categories themselves
            if all are whole numbers.
        columns: Encoded columns; unless `ordinal` one per category that is not dropped, by default
            named `input=category`.
        unseen: What happens to a category that is not listed: the request is refused, all columns
            are 0, or another category or code takes its place.
        missing: The same for a missing value, or `unseen` to treat it like an unseen category.
    """

    name: Name
    kind: Literal["category"] = "category"
    categories: Annotated[tuple[Value, ...], Field(strict=False, min_length=1, max_length=10_000)]
    encoding: Literal["onehot", "ordinal", "code"] = "onehot"
    dropped: Name | None = None
    codes: Annotated[tuple[Number, ...], Field(strict=False)] | None = None
    columns: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    unseen: Literal["refuse", "zeros"] | Substitute = "refuse"
    missing: Literal["refuse", "zeros", "unseen"] | Substitute = "refuse"

    @model_validator(mode="before")
    @classmethod
    def _name_columns(cls, value: object) -> object:
        """Name the encoded columns that are not named."""
        if not isinstance(value, dict) or value.get("columns") or "categories" not in value:
            return value
        name, categories = value.get("name"), value["categories"]
        if value.get("encoding", "onehot") == "ordinal":
            return value | {"columns": (name,)}
        if not isinstance(categories, list | tuple):
            return value
        kept = [c for c in map(as_text, categories) if c != value.get("dropped")]
        binary = len(kept) == 1 and len(categories) == 2
        return value | {"columns": (name,) if binary else tuple(f"{name}={c}" for c in kept)}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        label = f"input {self.name!r}"
        if len(set(self.categories)) < len(self.categories):
            raise ValueError(f"{label} lists a category twice")
        if self.encoding == "ordinal":
            self._check_ordinal(label)
        elif self.encoding == "code":
            self._check_code(label)
        else:
            self._check_one_hot(label)
        if isinstance(self.unseen, Substitute) and self.unseen.own is not None:
            raise ValueError(f"{label}: own is for missing values; name a category as unseen")
        for rule in (self.unseen, self.missing):
            self._check_rule(label, rule)
        return self

    def _check_ordinal(self, label: str) -> None:
        if self.dropped is not None:
            raise ValueError(f"{label} has a dropped category, but is ordinal")
        if len(self.columns) != 1:
            raise ValueError(f"{label} is ordinal and writes one column, not {len(self.columns)}")
        if self.codes is not None and len(self.codes) != len(self.categories):
            raise ValueError(
                f"{label} has {len(self.codes)} codes for {len(self.categories)} categories"
            )

    def _check_code(self, label: str) -> None:
        if self.dropped is not None:
            raise ValueError(f"{label} has a dropped category, but its encoding is code")
        if len(self.columns) != len(self.categories):
            raise ValueError(f"{label} writes {len(self.columns)} columns, one per category")
        if len(set(self.classifier_codes)) != len(self.categories):
            raise ValueError(f"{label} needs a different code for each of its categories")

    @property
    def classifier_codes(self) -> tuple[float, ...]:
        """Code of each category for the classifier, with the encoding `code`."""
        if self.codes is not None:
            return self.codes
        names = self.categories
        if all(re.fullmatch(r"-?\d{1,7}", name) for name in names):
            return tuple(map(float, names))
        return tuple(map(float, range(len(names))))

    def _check_one_hot(self, label: str) -> None:
        if self.codes is not None:
            raise ValueError(f"{label} has codes, but its encoding is onehot; use ordinal")
        if self.dropped is not None and self.dropped not in self.categories:
            raise ValueError(f"{label} drops {self.dropped!r}, which is not one of its categories")
        width = len(self.categories) - (self.dropped is not None)
        if not width or len(self.columns) != width:
            raise ValueError(
                f"{label} writes {len(self.columns)} columns; {width} categories are not dropped, "
                "and at least one is required"
            )

    def _check_rule(self, label: str, rule: str | Substitute) -> None:
        if rule == "zeros" and self.encoding == "ordinal":
            raise ValueError(f"{label} is ordinal; use {{code: …}} instead of zeros")
        if rule == "zeros" and self.encoding == "code":
            raise ValueError(f"{label} has codes; list a category for such values and name it")
        if not isinstance(rule, Substitute):
            return
        if rule.code is not None and self.encoding != "ordinal":
            raise ValueError(
                f"{label} is {self.encoding}; a code is for ordinal only, so name a category"
            )
        named = rule.own or rule.category
        if named is not None and named not in self.categories:
            raise ValueError(f"{label} names {named!r}, which is not one of its categories")

    @property
    def is_binary(self) -> bool:
        """Whether it is encoded as one column of 0 (the dropped category) and 1."""
        return self.encoding == "onehot" and self.dropped is not None and len(self.columns) == 1

    @property
    def writes_zeros(self) -> bool:
        """Whether a missing or unseen value leaves all columns of a complete one-hot group at 0."""
        return self.encoding == "onehot" and "zeros" in (self.unseen, self.missing)

    def features(self) -> Iterator[Feature]:
        """Descriptions of the encoded columns."""
        if self.encoding == "ordinal":
            integers = all(float(code).is_integer() for code in self._all_codes())
            yield Feature(name=self.columns[0], kind="integer" if integers else "numeric")
        else:
            for name in self.columns:
                yield Feature(name=name, kind="binary" if self.is_binary else "onehot")

    def _all_codes(self) -> Iterator[float]:
        yield from self.codes or ()
        for rule in (self.unseen, self.missing):
            if isinstance(rule, Substitute) and rule.code is not None:
                yield rule.code

    def group(self, protected: frozenset[str] = frozenset()) -> OneHotGroup | None:
        """The one-hot group of the columns, with the name of the input; None if there is none.

        Args:
            protected: Features of protected attributes, whose groups are the listed categories.
        """
        if self.encoding == "ordinal" or self.is_binary:
            return None
        dropped = self.dropped
        if dropped is None and self.writes_zeros and self.name not in protected:
            dropped = UNSEEN if UNSEEN not in self.categories else f"({UNSEEN})"
        return OneHotGroup(name=self.name, features=self.columns, dropped=dropped)


RawInput = Annotated[RawNumber | RawCategory, Field(discriminator="kind")]


def classifier_columns(
    inputs: Iterable[RawNumber | RawCategory],
) -> dict[str, tuple[RawNumber | RawCategory, tuple[str, ...]]]:
    """Columns of the classifier that combine several features, with the input and the features."""
    coded: dict[str, tuple[RawNumber | RawCategory, tuple[str, ...]]] = {}
    for raw in inputs:
        if isinstance(raw, RawCategory) and raw.encoding == "code":
            coded[raw.name] = raw, raw.columns
        elif isinstance(raw, RawNumber) and raw.missing_code is not None:
            coded[raw.columns[0]] = raw, raw.columns
    return coded


def derived_columns(
    inputs: Sequence[RawNumber | RawCategory],
    order: Iterable[str] = (),
    protected: frozenset[str] = frozenset(),
) -> tuple[tuple[Feature, ...], tuple[OneHotGroup, ...]]:
    """Features and one-hot groups that raw inputs write.

    Args:
        inputs: Raw inputs.
        order: Names of the classifier's columns, or of all features, in order; empty for the
            inputs' order.
        protected: Features of protected attributes.

    Raises:
        ValueError: A column is written twice, or the order does not name every column once.
    """
    features: dict[str, Feature] = {}
    for raw in inputs:
        for feature in raw.features():
            if feature.name in features:
                raise ValueError(f"encoded column {feature.name!r} is written twice")
            features[feature.name] = feature
    names = list(order) or list(features)
    if set(names) != set(features):
        coded = classifier_columns(inputs)
        names = [f for name in names for f in (coded[name][1] if name in coded else (name,))]
    if sorted(names) != sorted(features):
        odd = sorted(set(names) ^ set(features)) or [n for n in names if names.count(n) > 1]
        raise ValueError(f"columns must name every encoded column once; see {odd[0]!r}")
    found = (raw.group(protected) for raw in inputs if isinstance(raw, RawCategory))
    groups = tuple(group for group in found if group is not None)
    return tuple(features[name] for name in names), groups
