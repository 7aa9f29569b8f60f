"""How far each row is from the decision boundary, and which way lies the other side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError

__all__ = ["BoundaryDistances", "Directions", "Refined"]

Directions = NDArray[np.float64] | Callable[[NDArray[np.intp]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Distances of some rows, found by search.

    Attributes:
        distances: `[rows]`.
        directions: From each row to the nearest point found beyond the boundary, of unit length,
            turned so that it points to decision 1, `[rows, d]`.
        converged: Whether the search reached the boundary, `[rows]`.
    """

    distances: NDArray[np.float64]
    directions: NDArray[np.float64]
    converged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryDistances:
    """Distances to the decision boundary, with what is known of the way there.

    Attributes:
        distances: 0 or more, `[n]`.
        method: How they were found, in words.
        directions: Of unit length, pointing to decision 1: one for all rows `[d]`, one a row
            `[n, d]`, or a function from places of rows to `[rows, d]`; None if not known.
        feature_names: Of the d features.
        scales: Standard deviation of each feature, `[d]`; moves are told in it.
        refine: Finds the distances of some rows more exactly; None if they are exact.
    """

    distances: NDArray[np.float64]
    method: str
    directions: Directions | None = None
    feature_names: tuple[str, ...] = ()
    scales: NDArray[np.float64] | None = None
    refine: Callable[[NDArray[np.intp]], Refined] | None = None

    @classmethod
    def given(
        cls,
        distances: ArrayLike,
        *,
        directions: ArrayLike | None = None,
        feature_names: tuple[str, ...] = (),
        scales: ArrayLike | None = None,
    ) -> BoundaryDistances:
        """Distances that someone else has computed, the traffic log for example."""
        return cls(
            distances=np.asarray(distances),
            method="as given",
            directions=None if directions is None else np.asarray(directions, dtype=np.float64),
            feature_names=tuple(feature_names),
            scales=None if scales is None else np.asarray(scales, dtype=np.float64),
        )

    def toward_one(self, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Directions of some rows, `[rows, d]`.

        Raises:
            AuditInputError: There is not one direction for all rows or one for each.
        """
        if self.directions is None:
            return None
        if callable(self.directions):
            return self.directions(rows)
        if self.directions.ndim == 1:
            return np.broadcast_to(self.directions, (len(rows), len(self.directions)))
        if self.directions.ndim != 2 or len(self.directions) != len(self.distances):
            raise AuditInputError(
                f"directions: shape {self.directions.shape} is not one for all rows, nor one a row"
            )
        return self.directions[rows]
