"""Columns of features: numbers and one-hot categories, and features on a common scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.features import Feature, OneHotGroup

if TYPE_CHECKING:
    from monitor.bundle.inputs import Step
    from monitor.bundle.manifest import BundleSpec

__all__ = ["Columns", "Features", "Scaling", "Variable", "category_codes"]

# Maps take and return float32. Tests also hold exact values, in float64 where they need it.
Features = NDArray[np.floating[Any]]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One feature as people know it: a single column, or all columns of a one-hot group.

    Attributes:
        name: Name of the feature or of the one-hot group.
        kind: Kind of the feature; `category` for a one-hot group.
        columns: Indices of its columns.
        categories: Names of the categories in the order of the columns; a dropped category comes
            last.
        dropped: Whether one category has no column, so that all columns may be 0.
        steps: Operations that wrote the column from a raw number; empty if there are none.
    """

    name: str
    kind: Literal["numeric", "integer", "binary", "category"]
    columns: tuple[int, ...]
    categories: tuple[str, ...] = ()
    dropped: bool = False
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Description of the columns of features `[n, d]`.

    Attributes:
        features: Name and kind of each column, in order.
        one_hot_groups: Groups of columns that encode one category.
        steps: Operations that wrote a column from a raw number, by column.
    """

    features: tuple[Feature, ...]
    one_hot_groups: tuple[OneHotGroup, ...] = ()
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)

    @classmethod
    def of_manifest(cls, manifest: BundleSpec) -> Columns:
        """The columns of a bundle's classifier."""
        numbers = [raw for raw in manifest.inputs if raw.kind == "number"]
        return cls(
            features=manifest.features,
            one_hot_groups=manifest.one_hot_groups,
            steps={raw.columns[0]: raw.steps for raw in numbers if raw.steps},
        )

    @classmethod
    def numeric(cls, names: Sequence[str]) -> Columns:
        """Numeric columns with these names."""
        return cls(features=tuple(Feature(name=name, kind="numeric") for name in names))

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Variables in the order of their first columns."""
        column_of = {name: column for column, name in enumerate(self.names)}
        variables = [
            Variable(
                name=feature.name,
                kind=feature.kind,
                columns=(column_of[feature.name],),
                steps=self.steps.get(feature.name, ()),
            )
            for feature in self.features
            if feature.kind != "onehot"
        ]
        for group in self.one_hot_groups:
            encoded = [name.removeprefix(f"{group.name}=") for name in group.features]
            dropped = [] if group.dropped is None else [group.dropped]
            variables.append(
                Variable(
                    name=group.name,
                    kind="category",
                    columns=tuple(column_of[name] for name in group.features),
                    categories=(*encoded, *dropped),
                    dropped=group.dropped is not None,
                )
            )
        return tuple(sorted(variables, key=lambda variable: variable.columns[0]))


def category_codes(features: Features, variable: Variable) -> NDArray[np.intp]:
    """Index of each row's category among the variable's columns, `[n]`; the dropped one is last."""
    columns = features[:, list(variable.columns)]
    codes: NDArray[np.intp] = np.where(columns.any(1), columns.argmax(1), columns.shape[1])
    return codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Scaling of each variable to mean 0 and variance 1 over both groups.

    The columns of a category share one scale, so that their variances sum to 1.

    Attributes:
        columns: Description of the columns.
        mean: Mean of each column, `[d]`.
        scale: Standard deviation of each column, 1 if it is constant, `[d]`.
        low: Lowest value of each column in the target, `[d]`.
        high: Highest value of each column in the target, `[d]`.
    """

    columns: Columns
    mean: Float
    scale: Float
    low: Float
    high: Float

    @classmethod
    def of(cls, source: Features, target: Features, columns: Columns) -> Scaling:
        """The scaling of two groups, each group weighted 1/2 regardless of size."""
        means = [group.mean(0, dtype=np.float64) for group in (source, target)]
        squares = [(group.astype(np.float64) ** 2).mean(0) for group in (source, target)]
        mean = (means[0] + means[1]) / 2
        variance = np.maximum((squares[0] + squares[1]) / 2 - mean**2, 0.0)
        for variable in columns.variables:
            if variable.kind == "category":
                variance[list(variable.columns)] = variance[list(variable.columns)].sum()
        scale = np.sqrt(variance)
        return cls(
            columns=columns,
            mean=mean,
            # A deviation at the level of rounding errors counts as constant.
            scale=np.where(scale > 1e-9 * (1 + np.abs(mean)), scale, 1.0),
            low=target.min(0).astype(np.float64),
            high=target.max(0).astype(np.float64),
        )

    def scaled(self, features: Features) -> Float:
        """Features on the common scale, `[n, d]`."""
        return (features - self.mean) / self.scale

    def unscaled(self, scaled: Float, uniforms: Float) -> Features:
        """Scaled features in their original units, rounded to valid values, `[n, d]` to `[n, d]`.

        Integers and binaries are rounded up or down at random, which preserves their mean, and
        clipped to the target's range. A category is drawn with probabilities proportional to the
        positive values of its columns.

        Args:
            scaled: Scaled features of any value.
            uniforms: One uniform number per row and variable, `[n, v]`.
        """
        features = scaled * self.scale + self.mean
        for index, variable in enumerate(self.columns.variables):
            uniform, at = uniforms[:, index], list(variable.columns)
            if variable.kind == "category":
                features[:, at] = _drawn_category(features[:, at], uniform, variable)
            elif variable.kind != "numeric":
                inside = np.clip(features[:, at[0]], self.low[at[0]], self.high[at[0]])
                # E[floor(x + U)] = x.
                features[:, at[0]] = np.floor(inside + uniform)
        return features.astype(np.float32)


def _drawn_category(values: Float, uniform: Float, variable: Variable) -> Float:
    """One-hot columns `[n, c]`, drawn by inverting the cumulative shares."""
    shares = np.maximum(values, 0.0)
    if variable.dropped:
        shares = np.column_stack([shares, np.maximum(1 - shares.sum(1), 0.0)])
    total = shares.sum(1, keepdims=True)
    # Without any positive value all categories are equally likely.
    shares = np.where(total > 0, shares / np.maximum(total, 1e-12), 1 / shares.shape[1])
    chosen = (uniform[:, None] >= np.cumsum(shares, 1)).sum(1)
    # The cumulative sum may end a rounding error below 1.
    chosen = np.minimum(chosen, shares.shape[1] - 1)
    one_hot = chosen[:, None] == np.arange(values.shape[1])
    return np.asarray(one_hot, np.float64)
