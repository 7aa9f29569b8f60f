"""Spec sections from a fitted scikit-learn ColumnTransformer.

Transformers are recognised by the name of their class and read by their fitted attributes;
scikit-learn is not imported, and nothing is unpickled. Encoded values are computed in float64 in
scikit-learn's order of operations, and equal its float64 output rounded to float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from monitor.bundle.inputs import Indicator, RawCategory, RawNumber, Substitute
from monitor.errors import FitError
from monitor.fitting.sklearn_transformers import (
    MISSING_NAME,
    FittedCategory,
    PendingColumn,
    class_name,
    transformed,
)

__all__ = ["SpecInputs", "encoding_from_sklearn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecInputs:
    """The sections of a spec that describe raw inputs.

    Attributes:
        inputs: Raw inputs with their encoding.
        columns: Encoded columns in the order of the ColumnTransformer's output.
    """

    inputs: tuple[RawNumber | RawCategory, ...]
    columns: tuple[str, ...]

    def to_yaml(self) -> str:
        """Text of the sections `inputs` and `columns` of a spec file."""
        sections = {"inputs": [_written(raw) for raw in self.inputs], "columns": [*self.columns]}
        return yaml.safe_dump(
            sections, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
        )


def encoding_from_sklearn(column_transformer: Any) -> SpecInputs:
    """Raw inputs of a spec from a fitted ColumnTransformer of scikit-learn.

    Known are OneHotEncoder, OrdinalEncoder, SimpleImputer, StandardScaler, MinMaxScaler,
    MaxAbsScaler, RobustScaler, FunctionTransformer of `numpy.log`, `numpy.log1p` or nothing,
    pipelines of them, `passthrough`, `drop` and `remainder`.

    Args:
        column_transformer: The ColumnTransformer, fitted on a data frame.

    Raises:
        FitError: It is not fitted on named columns, or has a transformer that cannot be declared;
            the message names the column and what to do instead.
    """
    if isinstance(column_transformer, str | Path):
        raise FitError(
            "encoding_from_sklearn takes a fitted ColumnTransformer, not a path: load it first, in "
            "your own code and only from a source that you trust, such as "
            "`encoding_from_sklearn(joblib.load(path))`"
        )
    if class_name(column_transformer) != "ColumnTransformer":
        raise FitError(
            f"encoding_from_sklearn takes a ColumnTransformer, not a "
            f"{type(column_transformer).__name__}; pass the step of the pipeline that is one"
        )
    columns = [
        column
        for transformer, names in _parts(column_transformer)
        for column in transformed(transformer, [PendingColumn(source=name) for name in names])
    ]
    return _declared(columns)


def _parts(transformer: Any) -> Iterator[tuple[Any, list[str]]]:
    """Every fitted transformer with the names of its columns, in the order of the output."""
    fitted = getattr(transformer, "transformers_", None)
    names = getattr(transformer, "feature_names_in_", None)
    if fitted is None:
        raise FitError("the ColumnTransformer is not fitted; call fit on the training data first")
    if names is None:
        raise FitError(
            "the ColumnTransformer was fitted on an array without column names; fit it on a "
            "data frame"
        )
    if transformer.transformer_weights:
        raise FitError("transformer_weights cannot be declared; multiply in the classifier")
    indices = transformer._transformer_to_input_indices
    for name, part, _ in fitted:
        columns = [str(names[index]) for index in indices[name]]
        if columns and not (isinstance(part, str) and part == "drop"):
            yield part, columns


def _declared(columns: Sequence[PendingColumn]) -> SpecInputs:
    """Raw inputs that write some columns."""
    by_source: dict[str, list[PendingColumn]] = {}
    for column in columns:
        by_source.setdefault(column.source, []).append(column)
    inputs = {name: _input(name, parts) for name, parts in by_source.items()}
    written = {name: iter(raw.columns) for name, raw in inputs.items()}
    order = tuple(next(written[column.source]) for column in columns)
    return SpecInputs(inputs=tuple(inputs.values()), columns=order)


def _input(name: str, parts: list[PendingColumn]) -> RawNumber | RawCategory:
    values = [part for part in parts if not part.is_indicator]
    indicators = [part for part in parts if part.is_indicator]
    first = values[0] if values else parts[0]
    is_category = first.category is not None
    alone = all(part.category is first.category for part in values)
    if not values or not alone or (not is_category and len(values) > 1) or len(indicators) > 1:
        raise FitError(
            f"column {name!r} is used by more than one transformer, which cannot be declared; "
            "copy the column under another name in the data"
        )
    try:
        if first.category is None:
            return _number(name, first, indicators)
        if indicators:
            raise FitError(
                f"column {name!r}: SimpleImputer(add_indicator=True) with an encoder cannot be "
                "declared; encode missing values as a category instead"
            )
        return _raw_category(name, first.category)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise FitError(f"column {name!r}: {problem}") from None


def _number(name: str, column: PendingColumn, indicators: list[PendingColumn]) -> RawNumber:
    if isinstance(column.fill, str):
        raise FitError(f"column {name!r} is imputed with a text, but not encoded; encode it")
    return RawNumber(
        name=name,
        impute=None if column.fill is None else float(column.fill),
        steps=column.steps,
        indicator=(
            Indicator(column=f"{name}_{MISSING_NAME}", steps=indicators[0].steps)
            if indicators
            else None
        ),
    )


def _raw_category(name: str, category: FittedCategory) -> RawCategory:
    def rule(value: Any) -> Any:
        return Substitute(code=value) if isinstance(value, float) else value

    plain = tuple(map(float, range(len(category.categories))))
    return RawCategory.model_validate(
        {
            "name": name,
            "categories": category.categories,
            "encoding": category.encoding,
            "dropped": category.dropped,
            "codes": None if category.codes in ((), plain) else category.codes,
            "unseen": rule(category.unseen),
            "missing": rule(category.missing),
        }
    )


def _written(raw: RawNumber | RawCategory) -> dict[str, Any]:
    """An input without the fields that have their default."""
    content = raw.model_dump(mode="json", exclude_defaults=True)
    if isinstance(raw, RawCategory):
        default = RawCategory.model_validate(raw.model_dump(exclude={"columns"}))
        if default.columns == raw.columns:
            content.pop("columns", None)
    return {"name": raw.name, "kind": raw.kind, **content}
