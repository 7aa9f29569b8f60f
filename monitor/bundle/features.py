"""Encoded columns: the features of a classifier and their one-hot groups."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

__all__ = ["Feature", "Name", "OneHotGroup", "Part", "Value", "as_text"]

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]


def as_text(value: object) -> object:
    """A number or boolean as the text that it has in a table; anything else is not changed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, int | float) else value


# A value of a column, as text; a spec may have numbers and booleans without quotes.
Value = Annotated[Name, BeforeValidator(as_text)]

# Below the largest float32.
_LARGEST = 1e38


class Part(BaseModel):
    """A frozen part of the manifest; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Feature(Part):
    """One encoded column of the classifier's input.

    `low` and `high` bound most of the values in the training data (numeric and integer features
    only); probe rows stay within them.
    """

    name: Name
    kind: Literal["numeric", "integer", "binary", "onehot"]
    low: Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)] | None = None
    high: Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)] | None = None

    @model_validator(mode="after")
    def _range_is_valid(self) -> Self:
        if (self.low is None) != (self.high is None):
            raise ValueError(f"feature {self.name!r} needs both low and high, or neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"feature {self.name!r} has low {self.low} above high {self.high}")
        if self.low is not None and self.kind not in ("numeric", "integer"):
            raise ValueError(
                f"feature {self.name!r} is {self.kind}; only numeric and integer features "
                "have low and high"
            )
        return self


class OneHotGroup(Part):
    """Columns of which exactly one is 1, or at most one if a category was dropped."""

    name: Name
    features: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    dropped: Name | None = None
