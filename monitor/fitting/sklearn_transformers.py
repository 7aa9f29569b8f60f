"""Fitted transformers of scikit-learn as declarations of what they do to each column.

Transformers are recognised by the name of their class and read by their fitted attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from monitor.bundle.encoding import apply_steps
from monitor.bundle.inputs import Step, Substitute
from monitor.errors import FitError
from monitor.tensors import category_text

__all__ = [
    "MISSING_NAME",
    "FittedCategory",
    "PendingColumn",
    "class_name",
    "transformed",
]

MISSING_NAME = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCategory:
    """A fitted encoder of categories, for one column."""

    categories: tuple[str, ...]
    encoding: str
    dropped: str | None = None
    codes: tuple[float, ...] = ()
    unseen: str | float = "refuse"
    missing: str | float | Substitute = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingColumn:
    """A column on its way through the transformers.

    Attributes:
        source: Name of the raw input.
        fill: What replaces a missing value; None if nothing does.
        steps: Operations on numbers.
        is_indicator: Whether the column says if the value is missing.
        category: The encoder, once there was one.
        member: Category of a one-hot column.
    """

    source: str
    fill: Any = None
    steps: tuple[Step, ...] = ()
    is_indicator: bool = False
    category: FittedCategory | None = None
    member: str | None = None

    @property
    def is_raw(self) -> bool:
        """Whether it still holds the raw values, with imputed ones."""
        return not self.steps and not self.is_indicator and self.category is None


def class_name(transformer: Any) -> str:
    """Name of a class of scikit-learn; other classes, which may do anything, by full name."""
    cls = type(transformer)
    known = cls.__module__.partition(".")[0] == "sklearn"
    return cls.__name__ if known else f"{cls.__module__}.{cls.__name__}"


def transformed(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    """Columns after a transformer."""
    if isinstance(transformer, str) and transformer == "passthrough":
        return columns
    kind = class_name(transformer)
    if kind == "Pipeline":
        for _, step in transformer.steps:
            if step is not None:
                columns = transformed(step, columns)
        return columns
    convert = _CONVERTERS.get(kind)
    if convert is None:
        raise FitError(
            f"{named(columns)}: {kind} cannot be declared; known are {', '.join(_CONVERTERS)}"
            " and Pipeline. Do it before the data reach evenhand, or inside the classifier"
        )
    return convert(transformer, columns)


def named(columns: Sequence[PendingColumn]) -> str:
    names = list(dict.fromkeys(column.source for column in columns))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    plural = "s" if len(names) > 1 else ""
    return f"column{plural} {', '.join(map(repr, names[:3]))}{more}"


def _impute(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    """SimpleImputer: a constant for missing values, and columns that say where they were."""
    marker = transformer.missing_values
    if isinstance(marker, str) or not _is_missing(marker):
        raise FitError(
            f"{named(columns)}: SimpleImputer(missing_values=…) marks missing values by "
            "another value than NaN; replace that by NaN in the data before fitting"
        )
    imputed = []
    for column, fill in zip(columns, transformer.statistics_, strict=True):
        if not column.is_raw:
            raise FitError(
                f"{named([column])}: SimpleImputer comes after another transformer; put it first"
            )
        if _is_missing(fill):
            raise FitError(f"{named([column])}: had no values to impute from; drop the column")
        imputed.append(column if column.fill is not None else replace(column, fill=fill))
    if getattr(transformer, "indicator_", None) is not None:
        imputed += [
            replace(columns[index], is_indicator=True)
            for index in transformer.indicator_.features_.tolist()
        ]
    return imputed


def _one_hot(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    """OneHotEncoder."""
    unseen = "refuse" if transformer.handle_unknown == "error" else "zeros"
    dropped = transformer.drop_idx_
    encoded: list[PendingColumn] = []
    for index, (column, values) in enumerate(zip(columns, transformer.categories_, strict=True)):
        category = _category(transformer, column, values, "onehot", unseen)
        if dropped is not None and dropped[index] is not None:
            category = replace(category, dropped=category.categories[int(dropped[index])])
        members = [name for name in category.categories if name != category.dropped]
        if not members:
            raise FitError(
                f"{named([column])}: its only category is dropped, so nothing is encoded; drop "
                "the column from the ColumnTransformer"
            )
        encoded += [
            PendingColumn(source=column.source, category=category, member=m) for m in members
        ]
    return encoded


def _ordinal(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    """OrdinalEncoder; an unknown or missing value with the code NaN is refused."""
    unseen: str | float = "refuse"
    if transformer.handle_unknown == "use_encoded_value" and not _is_missing(
        transformer.unknown_value
    ):
        unseen = float(transformer.unknown_value)
    encoded = []
    for column, values in zip(columns, transformer.categories_, strict=True):
        category = _category(transformer, column, values, "ordinal", unseen)
        if isinstance(category.missing, Substitute) and category.missing.own is not None:
            # A missing value has its own code, and no place in the list.
            code = transformer.encoded_missing_value
            listed = tuple(c for c in category.categories if c != category.missing.own)
            missing = "refuse" if _is_missing(code) else float(code)
            category = replace(category, categories=listed, missing=missing)
        codes = tuple(map(float, range(len(category.categories))))
        encoded.append(PendingColumn(source=column.source, category=replace(category, codes=codes)))
    return encoded


def _category(
    transformer: Any, column: PendingColumn, values: Any, encoding: str, unseen: str | float
) -> FittedCategory:
    """Categories of a fitted encoder, and what happens to missing values."""
    if not column.is_raw:
        raise FitError(
            f"{named([column])}: {type(transformer).__name__} comes after another transformer "
            "than a SimpleImputer without indicator; encode the raw column"
        )
    infrequent = getattr(transformer, "infrequent_categories_", None)
    if getattr(transformer, "_infrequent_enabled", False) and any(
        part is not None for part in infrequent or ()
    ):
        raise FitError(
            f"{named([column])}: {type(transformer).__name__} merges infrequent categories "
            "(min_frequency, max_categories), which cannot be declared; merge them in the data "
            "before fitting"
        )
    absent = [value for value in values if _is_missing(value)]
    if len(absent) > 1:
        raise FitError(
            f"{named([column])}: None and NaN are two categories; use one kind of missing value"
        )
    texts = [category_text(value) for value in values if not _is_missing(value)]
    if "" in texts:
        raise FitError(
            f"{named([column])}: the empty text is a category, but stands for a missing value in "
            "a request; replace it by NaN in the data before fitting"
        )
    missing: str | Substitute = "unseen"
    if column.fill is not None:
        fill = category_text(column.fill)
        missing = Substitute(category=fill) if fill in texts else "unseen"
    if absent:
        own = MISSING_NAME if MISSING_NAME not in texts else f"({MISSING_NAME})"
        # The position of NaN among the categories is that of its column.
        texts = [own if _is_missing(value) else category_text(value) for value in values]
        missing = missing if column.fill is not None else Substitute(own=own)
    return FittedCategory(
        categories=tuple(texts), encoding=encoding, unseen=unseen, missing=missing
    )


def _standard(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    mean = transformer.mean_ if transformer.with_mean else None
    scale = transformer.scale_ if transformer.with_std else None
    return _scaled(transformer, columns, subtract=mean, divide=scale)


def _robust(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    center = transformer.center_ if transformer.with_centering else None
    scale = transformer.scale_ if transformer.with_scaling else None
    return _scaled(transformer, columns, subtract=center, divide=scale)


def _min_max(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    scaled = _scaled(transformer, columns, multiply=transformer.scale_, add=transformer.min_)
    low, high = map(float, transformer.feature_range)
    return _clipped(transformer, scaled, (low, high))


def _max_abs(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    scaled = _scaled(transformer, columns, divide=transformer.scale_)
    return _clipped(transformer, scaled, (-1.0, 1.0))


def _clipped(
    transformer: Any, columns: list[PendingColumn], limits: tuple[float, float]
) -> list[PendingColumn]:
    if not getattr(transformer, "clip", False):
        return columns
    return [_stepped(transformer, column, [Step(clip=limits)]) for column in columns]


def _scaled(transformer: Any, columns: list[PendingColumn], **operands: Any) -> list[PendingColumn]:
    """Columns after arithmetic with an operand per column, in the order of the arguments."""
    scaled = []
    for index, column in enumerate(columns):
        steps = [
            Step.model_validate({name: float(values[index])})
            for name, values in operands.items()
            if values is not None
        ]
        scaled.append(_stepped(transformer, column, steps))
    return scaled


def _function(transformer: Any, columns: list[PendingColumn]) -> list[PendingColumn]:
    """FunctionTransformer of a known function."""
    function = transformer.func
    if function is None:
        return columns
    name = {id(np.log): "log", id(np.log1p): "log1p"}.get(id(function))
    if name is None or transformer.kw_args:
        shown = getattr(function, "__name__", type(function).__name__)
        raise FitError(
            f"{named(columns)}: FunctionTransformer of {shown} cannot be declared; use "
            "numpy.log or numpy.log1p, or do it before the data reach evenhand"
        )
    step = Step.model_validate(name)
    return [_stepped(transformer, column, [step]) for column in columns]


def _stepped(transformer: Any, column: PendingColumn, steps: Sequence[Step]) -> PendingColumn:
    if column.member is not None:
        raise FitError(
            f"{named([column])}: {type(transformer).__name__} comes after OneHotEncoder; one-hot "
            "columns must be 0 or 1, so scale numbers only"
        )
    category = column.category
    if category is None:
        return replace(column, steps=(*column.steps, *steps))

    def after(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(apply_steps(np.array([value]), steps)[0])

    changed = replace(
        category,
        codes=tuple(after(code) for code in category.codes),
        unseen=after(category.unseen),
        missing=after(category.missing),
    )
    return replace(column, category=changed)


_CONVERTERS: dict[str, Callable[[Any, list[PendingColumn]], list[PendingColumn]]] = {
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "SimpleImputer": _impute,
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "FunctionTransformer": _function,
}


def _is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or another value that differs from itself."""
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
