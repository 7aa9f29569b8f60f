"""How far each row is from the decision boundary, and what would change on the way to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError

__all__ = ["BoundaryDistances", "Changes", "Refined", "floats", "names_of", "number"]

# From places of rows to what changes in their features, `[rows, d]`.
Changes = Callable[[NDArray[np.intp]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Distances of some rows, found by search.

    Attributes:
        distances: `[rows]`.
        changes: From each row to the nearest point found on the boundary, `[rows, d]`.
        converged: Whether the search reached the boundary, `[rows]`.
    """

    distances: NDArray[np.float64]
    changes: NDArray[np.float64]
    converged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryDistances:
    """Distances to the decision boundary, with what is known of the way there.

    Attributes:
        distances: 0 or more, `[n]`; checked when they are tested.
        method: How they were found, in words.
        changes: What changes in a row's features until it reaches the boundary; None if not known.
        feature_names: Of the d features.
        scales: Standard deviation of each feature, `[d]`; changes are told in it if it is known.
        refine: Finds the distances of some rows more exactly; None if they are final.
        decided: What the classifier decides, 0 or 1, `[n]`, to check decisions against; None if
            not known.
    """

    distances: NDArray[Any]
    method: str
    changes: Changes | None = None
    feature_names: tuple[str, ...] = ()
    scales: NDArray[np.float64] | None = None
    refine: Callable[[NDArray[np.intp]], Refined] | None = None
    decided: NDArray[np.bool_] | None = None

    @classmethod
    def given(
        cls,
        distances: ArrayLike,
        *,
        changes: ArrayLike | None = None,
        feature_names: Sequence[str] = (),
        scales: ArrayLike | None = None,
    ) -> BoundaryDistances:
        """Distances that someone else has computed, the traffic log for example.

        Raises:
            AuditInputError: Changes, names and scales are not of as many rows or features.
        """
        found = np.asarray(distances)
        if changes is None:
            return cls(distances=found, method="as given")
        table = floats("changes", changes)
        if found.ndim != 1 or table.ndim != 2 or len(table) != len(found):
            raise AuditInputError(
                f"changes: shape {table.shape} for {found.size:,} distances; one line a row, please"
            )
        if not np.isfinite(table[np.isfinite(floats("distances", found))]).all():
            raise AuditInputError("changes: some are not finite, of rows whose distance is")
        return cls(
            distances=found,
            method="as given",
            changes=lambda rows: table[rows],
            feature_names=names_of(feature_names, table.shape[1]),
            scales=None if scales is None else _scales(scales, table.shape[1]),
        )


def names_of(names: Sequence[str], width: int) -> tuple[str, ...]:
    """Names of features; numbered if none are given.

    Raises:
        AuditInputError: There are more or fewer than features.
    """
    if names and len(names) != width:
        raise AuditInputError(f"feature_names: {len(names)} names for {width} features")
    return tuple(names) or tuple(f"feature {place}" for place in range(width))


def _scales(values: ArrayLike, width: int) -> NDArray[np.float64]:
    found = floats("scales", values)
    if found.shape != (width,):
        raise AuditInputError(f"scales: shape {found.shape} for {width} features")
    if not (np.isfinite(found) & (found >= 0)).all():
        raise AuditInputError("scales: a standard deviation is 0 or more")
    return found


def floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Numbers of whatever shape.

    Raises:
        AuditInputError: They are none.
    """
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        # Not its text, which quotes the value.
        raise AuditInputError(f"{name}: not all values are numbers") from None


def number(name: str, value: Any) -> float:
    """One finite number.

    Raises:
        AuditInputError: It is none.
    """
    found = floats(name, value)
    if found.size != 1 or not np.isfinite(found).all():
        raise AuditInputError(f"{name}: one finite number is wanted")
    return float(found.ravel()[0])
