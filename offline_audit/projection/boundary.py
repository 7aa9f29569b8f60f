"""Distances of rows to the decision boundary, and the feature changes that reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError
from offline_audit.rendering import count

__all__ = ["BoundaryDistances", "Changes", "Refined", "floats", "names_of", "number"]

# From row indices to the changes of their features that reach the boundary, `[rows, d]`.
Changes = Callable[[NDArray[np.intp]], NDArray[np.float64]]


# Share of decisions that may differ from the classifier's; above it the distances are refused.
_MAX_DIFFERENT = 0.1
# Share of the median distance below which rounding can put a row on either side.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Distances of some rows, refined by a search.

    Attributes:
        distances: Refined distances, `[rows]`.
        changes: Feature changes from each row to the nearest boundary point of the search,
            `[rows, d]`.
        converged: Whether the search reached the boundary, `[rows]`.
    """

    distances: NDArray[np.float64]
    changes: NDArray[np.float64]
    converged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryDistances:
    """Distances to the decision boundary, with the feature changes that reach it.

    Attributes:
        distances: Distances, 0 or more, `[n]`; validated by `projection_test`.
        method: Method by which the distances were computed, for printed results.
        changes: Function from row indices to the feature changes that reach the boundary; None if
            these are unknown.
        feature_names: Names of the d features.
        scales: Standard deviation of each feature, the unit of reported changes, `[d]`; None if
            unknown.
        refine: Function from row indices to refined distances; None if the distances are final.
        decided: Decisions of the classifier, to validate the decisions of a sample, `[n]`; None if
            unknown.
    """

    distances: NDArray[Any]
    method: str
    changes: Changes | None = None
    feature_names: tuple[str, ...] = ()
    scales: NDArray[np.float64] | None = None
    refine: Callable[[NDArray[np.intp]], Refined] | None = None
    decided: NDArray[np.bool_] | None = None

    @classmethod
    def from_arrays(
        cls,
        distances: ArrayLike,
        *,
        changes: ArrayLike | None = None,
        feature_names: Sequence[str] = (),
        scales: ArrayLike | None = None,
    ) -> BoundaryDistances:
        """Distances that were computed elsewhere, for example by the traffic log.

        Args:
            distances: Distances, `[n]`.
            changes: Feature changes that reach the boundary, `[n, d]`.
            feature_names: Names of the d features.
            scales: Standard deviation of each feature, `[d]`.

        Raises:
            AuditInputError: Changes, names or scales have the wrong shape or invalid values.
        """
        values = np.asarray(distances)
        if changes is None:
            return cls(distances=values, method="precomputed")
        table = floats("changes", changes)
        if values.ndim != 1 or table.ndim != 2 or len(table) != len(values):
            raise AuditInputError(
                f"changes: shape {table.shape} does not match {values.size:,} distances; pass an "
                "array [rows, features]"
            )
        if not np.isfinite(table[np.isfinite(floats("distances", values))]).all():
            raise AuditInputError("changes: not finite in rows whose distance is finite")
        return cls(
            distances=values,
            method="precomputed",
            changes=lambda rows: table[rows],
            feature_names=names_of(feature_names, table.shape[1]),
            scales=None if scales is None else _scales(scales, table.shape[1]),
        )

    def decision_warnings(
        self, decisions: NDArray[np.int8], distances: NDArray[np.float64]
    ) -> list[str]:
        """Warning about decisions that differ from those of the classifier.

        Args:
            decisions: Decisions of the sample, 0 or 1, `[n]`.
            distances: Validated distances, `[n]`.

        Raises:
            AuditInputError: So many differ that the distances do not belong to these decisions.
        """
        if self.decided is None:
            return []
        finite = distances[np.isfinite(distances)]
        # On the boundary itself, rounding determines the decision.
        clear = distances > _ROUNDING * (float(np.median(finite)) if len(finite) else 0.0)
        different = int(np.count_nonzero(clear & (self.decided != (decisions == 1))))
        if different > _MAX_DIFFERENT * len(decisions):
            raise AuditInputError(
                f"decisions: {different:,} of {len(decisions):,} differ from those of the "
                "classifier that the distances were computed for; pass the decisions of that "
                "classifier, 1 where its score is 0 or more"
            )
        if not different:
            return []
        verb = "differs" if different == 1 else "differ"
        decisions_differ = f"{count(different, 'decision')} {verb}"
        return [f"{decisions_differ} from the classifier's: those distances are invalid."]


def names_of(names: Sequence[str], width: int) -> tuple[str, ...]:
    """Names of the features; "feature 0", "feature 1", … by default.

    Raises:
        AuditInputError: The numbers of names and of features differ.
    """
    if names and len(names) != width:
        raise AuditInputError(f"feature_names: {len(names)} names for {width} features")
    return tuple(names) or tuple(f"feature {index}" for index in range(width))


def _scales(values: ArrayLike, width: int) -> NDArray[np.float64]:
    """Standard deviations of the features, validated, `[d]`."""
    scales = floats("scales", values)
    if scales.shape != (width,):
        raise AuditInputError(f"scales: shape {scales.shape} does not match {width} features")
    if not (np.isfinite(scales) & (scales >= 0)).all():
        raise AuditInputError("scales: standard deviations must be finite and at least 0")
    return scales


def floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Convert values to an array of numbers of any shape.

    Raises:
        AuditInputError: Some values are not numbers.
    """
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        # The original message quotes the value, which may be personal data.
        raise AuditInputError(f"{name}: not all values are numbers") from None


def number(name: str, value: Any) -> float:
    """Convert a value to a finite number.

    Raises:
        AuditInputError: The value is not a finite number.
    """
    numbers = floats(name, value)
    if numbers.size != 1 or not np.isfinite(numbers).all():
        raise AuditInputError(f"{name}: must be one finite number")
    return float(numbers.ravel()[0])
