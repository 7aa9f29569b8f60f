"""Distances to the decision boundary of linear and kernel classifiers, and with discrete features.

Networks are in `network_distances`, the only module of the package that needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError
from offline_audit.projection.boundary import BoundaryDistances, floats, names_of, number
from offline_audit.validation import ordered_columns

__all__ = [
    "discrete_distances",
    "kernel_distances",
    "linear_distances",
    "named_table",
    "table",
]

# Rows per kernel matrix, to bound memory.
_CHUNK = 4_096


def linear_distances(
    features: ArrayLike,
    weights: ArrayLike,
    intercept: float,
    *,
    feature_names: Sequence[str] = (),
) -> BoundaryDistances:
    """Euclidean distances |wᵀx + b|/‖w‖ of a classifier that decides 1 where wᵀx + b ≥ 0.

    For a logistic regression with threshold τ, b is the intercept minus log(τ/(1 - τ)).

    Args:
        features: Rows, `[n, d]`; see `feature_names` for data frames.
        weights: Weights w, `[d]`.
        intercept: Intercept b.
        feature_names: Names of the features in the order of the weights, for the explanation. A
            data frame is ordered by them; without them, its own names and order are used.
    """
    x, w, names = _table_and_weights(features, weights, feature_names)
    length = float(np.linalg.norm(w))
    if length == 0:
        raise AuditInputError("weights: all values are 0, so there is no decision boundary")
    score = x @ w + number("intercept", intercept)
    return BoundaryDistances(
        distances=np.abs(score) / length,
        method="exact for a linear classifier",
        changes=lambda rows: -np.outer(score[rows], w) / length**2,
        feature_names=names,
        scales=x.std(axis=0),
        decided=score >= 0,
    )


def discrete_distances(
    features: ArrayLike,
    weights: ArrayLike,
    intercept: float,
    *,
    discrete: Sequence[int],
    jump: float,
    allowed: ArrayLike | None = None,
    feature_names: Sequence[str] = (),
) -> BoundaryDistances:
    """Distances of a linear classifier with discrete features, by cost (4) of the paper.

    A change of continuous features costs its Euclidean length. Discrete features change together
    (jump) to any allowed combination at a fixed cost. A row changes its continuous features only,
    or jumps to the best combination and then changes its continuous features as far as necessary.

    Args:
        features: Rows, `[n, d]`; see `feature_names` for data frames.
        weights: Weights w of wᵀx + b ≥ 0, `[d]`.
        intercept: Intercept b.
        discrete: Column indices of the discrete features.
        jump: Cost δ of a jump.
        allowed: Allowed combinations of discrete values, `[m, discrete]`, in the order of
            `discrete`; those in `features` if None.
        feature_names: Names of the features in the order of the weights, for the explanation. A
            data frame is ordered by them; without them, its own names and order are used.
    """
    x, w, names = _table_and_weights(features, weights, feature_names)
    if not number("jump", jump) > 0:
        raise AuditInputError(f"jump: must be positive, not {jump:g}")
    jumping = np.zeros(len(w), dtype=bool)
    columns = _columns(discrete, len(w))
    jumping[columns] = True
    combinations = (
        np.unique(x[:, jumping], axis=0) if allowed is None else table("allowed", allowed)
    )
    if combinations.shape[1] != jumping.sum():
        raise AuditInputError(
            f"allowed: {combinations.shape[1]} columns for {jumping.sum()} discrete features"
        )
    if allowed is not None:
        combinations = combinations[:, np.argsort(columns)]
    slope = float(np.linalg.norm(w[~jumping]))
    score = x @ w + number("intercept", intercept)
    contribution = combinations @ w[jumping]
    best = np.where(score >= 0, np.argmin(contribution), np.argmax(contribution))
    after = score + contribution[best] - x[:, jumping] @ w[jumping]
    without_jump = _continuous_cost(np.abs(score), slope)
    # If the jump alone changes the decision, continuous features need not change.
    done = np.where(score >= 0, after < 0, after >= 0)
    remaining = np.where(done, 0.0, np.abs(after))
    with_jump = jump + _continuous_cost(remaining, slope, done=done)

    def changes(rows: NDArray[np.intp]) -> NDArray[np.float64]:
        change = np.zeros((len(rows), len(w)))
        jumps = (with_jump < without_jump)[rows]
        targets = combinations[best[rows[jumps]]]
        change[np.ix_(jumps, jumping)] = targets - x[rows[jumps]][:, jumping]
        remaining = np.where(jumps, np.where(done[rows], 0.0, after[rows]), score[rows])
        if slope > 0:
            change[:, ~jumping] = -np.outer(remaining, w[~jumping]) / slope**2
        return change

    return BoundaryDistances(
        distances=np.minimum(without_jump, with_jump),
        method=f"exact for a linear classifier whose discrete features jump at a cost of {jump:g}",
        changes=changes,
        feature_names=names,
        scales=x.std(axis=0),
        decided=score >= 0,
    )


def kernel_distances(
    features: ArrayLike,
    support_vectors: ArrayLike,
    dual_coefs: ArrayLike,
    intercept: float,
    *,
    kernel: Callable[[NDArray[np.float64], NDArray[np.float64]], Any] | None = None,
    gamma: float | None = None,
) -> BoundaryDistances:
    """Distances in the feature space of the kernel, |Σ α_i k(x_i, x) + b|/√(αᵀKα).

    The paper's closed form (section 3.1) is the square of this. The density of a signed squared
    distance is infinite at 0, which Assumption 1a rules out, so the square root is taken. The
    nearest boundary point lies in the kernel's space, so there are no feature changes.

    Args:
        features: Rows, `[n, d]`.
        support_vectors: Support vectors x_i, `[s, d]`; `SVC.support_vectors_`.
        dual_coefs: Coefficients α_i, `[s]`; `SVC.dual_coef_`.
        intercept: Intercept b.
        kernel: Function from two arrays of rows to their kernel matrix; exp(-gamma ‖x - x′‖²) if
            None.
        gamma: Parameter of the default kernel; `SVC._gamma`.
    """
    x, support = table("features", features), table("support_vectors", support_vectors)
    alpha = floats("dual_coefs", dual_coefs).ravel()
    if x.shape[1] != support.shape[1] or len(alpha) != len(support):
        raise AuditInputError(
            f"support_vectors: shape {support.shape} does not match {x.shape[1]} features "
            f"and {len(alpha)} dual_coefs"
        )
    offset = number("intercept", intercept)
    if kernel is None and not (gamma is not None and number("gamma", gamma) > 0):
        raise AuditInputError("gamma: the default kernel requires a positive value")
    between = kernel or (lambda a, b: _gaussian(a, b, float(gamma or 0.0)))
    length = math.sqrt(max(float(alpha @ np.asarray(between(support, support)) @ alpha), 0.0))
    if length == 0:
        raise AuditInputError(
            "dual_coefs: the classifier is constant, so there is no decision boundary"
        )
    parts = [
        np.asarray(between(x[start : start + _CHUNK], support)) @ alpha + offset
        for start in range(0, len(x), _CHUNK)
    ]
    score = np.concatenate(parts)
    return BoundaryDistances(
        distances=np.abs(score) / length,
        method="exact in the feature space of the kernel",
        decided=score >= 0,
    )


def table(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Convert values to a two-dimensional array of finite numbers.

    Raises:
        AuditInputError: The shape is wrong, or values are not finite.
    """
    array = floats(name, values)
    if array.ndim != 2 or array.size == 0:
        raise AuditInputError(
            f"{name}: must be a non-empty array [rows, features], not of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        column = int(np.argmin(np.isfinite(array).all(axis=0)))
        raise AuditInputError(f"{name}: column {column} has values that are not finite")
    return array


def named_table(features: Any, names: Sequence[str]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Rows `[n, d]` in the order of the names, and the names.

    The columns of a data frame are taken by name; without names, in the order of the frame.

    Raises:
        AuditInputError: The frame lacks a column or has others, or the table is invalid.
    """
    if hasattr(features, "iloc") and hasattr(features, "columns"):
        names = list(names) or [str(column) for column in features.columns]
        features = features[ordered_columns(features, names)]
    x = table("features", features)
    return x, names_of(names, x.shape[1])


def _columns(discrete: Sequence[int], width: int) -> list[int]:
    """Column indices of the discrete features, validated."""
    columns = floats("discrete", list(discrete))
    if columns.ndim != 1 or not len(columns):
        raise AuditInputError("discrete: at least one column index is required")
    if (columns != np.floor(columns)).any() or columns.min() < 0 or columns.max() >= width:
        raise AuditInputError(f"discrete: column indices must be from 0 to {width - 1}")
    if len(np.unique(columns)) < len(columns):
        raise AuditInputError("discrete: a column index occurs twice")
    return [int(column) for column in columns]


def _table_and_weights(
    features: Any, weights: ArrayLike, feature_names: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    """Features `[n, d]`, weights `[d]` and names of the features, validated."""
    (x, names), w = named_table(features, feature_names), floats("weights", weights).ravel()
    if x.shape[1] != len(w):
        raise AuditInputError(f"weights: {len(w)} weights for {x.shape[1]} features")
    if not np.isfinite(w).all():
        raise AuditInputError("weights: not all values are finite")
    return x, w, names


def _continuous_cost(
    score: NDArray[np.float64], slope: float, *, done: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Change of continuous features that brings a score to 0; infinite if their weights are 0."""
    if slope > 0:
        return score / slope
    reached = np.zeros(len(score), dtype=bool) if done is None else done
    return np.where(reached, 0.0, math.inf)


def _gaussian(a: NDArray[np.float64], b: NDArray[np.float64], gamma: float) -> Any:
    """Gaussian kernel matrix of two sets of rows, `[len(a), len(b)]`."""
    # ‖a‖² + ‖b‖² - 2aᵀb needs no array [rows, rows, d]; rounding can make it negative.
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-gamma * np.maximum(squares, 0.0))
