"""What the columns of features are: single numbers, or one-hot columns that are one category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from monitor.bundle.manifest import Feature, OneHotGroup

__all__ = ["Columns", "Variable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What people would call one feature.

    Attributes:
        name: Of the feature, or of the one-hot group.
        kind: `category` for one-hot columns.
        columns: Where it stands.
        categories: Names of the categories, those of the columns first, then the dropped one.
        dropped: Whether all columns may be 0.
    """

    name: str
    kind: Literal["numeric", "integer", "binary", "category"]
    columns: tuple[int, ...]
    categories: tuple[str, ...] = ()
    dropped: bool = False


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of features `[n, d]`, in order.

    Attributes:
        features: Name and kind of each.
        one_hot_groups: Which of them belong together.
    """

    features: tuple[Feature, ...]
    one_hot_groups: tuple[OneHotGroup, ...] = ()

    @classmethod
    def numeric(cls, names: Sequence[str]) -> Columns:
        """Columns that may take any value."""
        return cls(features=tuple(Feature(name=name, kind="numeric") for name in names))

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(feature.name for feature in self.features)

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """In the order of their first columns."""
        place = {name: column for column, name in enumerate(self.names)}
        found = [
            Variable(name=feature.name, kind=feature.kind, columns=(place[feature.name],))
            for feature in self.features
            if feature.kind != "onehot"
        ]
        for group in self.one_hot_groups:
            told = [name.removeprefix(f"{group.name}=") for name in group.features]
            dropped = [] if group.dropped is None else [group.dropped]
            found.append(
                Variable(
                    name=group.name,
                    kind="category",
                    columns=tuple(place[name] for name in group.features),
                    categories=(*told, *dropped),
                    dropped=group.dropped is not None,
                )
            )
        return tuple(sorted(found, key=lambda variable: variable.columns[0]))
