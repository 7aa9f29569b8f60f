"""Distances to the decision boundary of linear and kernel classifiers, and with discrete features.

A network's are in `network_distances`, the only module here that needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.errors import AuditInputError
from offline_audit.projection.boundary import BoundaryDistances, floats, names_of, number

__all__ = ["discrete_distances", "kernel_distances", "linear_distances", "table"]

_CHUNK = 4_096


def linear_distances(
    features: ArrayLike,
    weights: ArrayLike,
    intercept: float,
    *,
    feature_names: Sequence[str] = (),
) -> BoundaryDistances:
    """Euclidean distances |wᵀx + b|/‖w‖ of a classifier that decides 1 where wᵀx + b ≥ 0.

    For a logistic regression with threshold τ, b is the intercept less log(τ/(1 - τ)).

    Args:
        features: `[n, d]`.
        weights: w, `[d]`.
        intercept: b.
        feature_names: For the explanation.
    """
    x, w = _table_and_weights(features, weights)
    length = float(np.linalg.norm(w))
    if length == 0:
        raise AuditInputError("weights: all are 0, so every decision is the same")
    score = x @ w + number("intercept", intercept)
    return BoundaryDistances(
        distances=np.abs(score) / length,
        method="exact for a linear classifier",
        changes=lambda rows: -np.outer(score[rows], w) / length**2,
        feature_names=names_of(feature_names, len(w)),
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
    """Distances of a linear classifier by the paper's cost (4).

    Continuous features move as far as they do; discrete ones jump, all together, to any allowed
    combination for a fixed price. So a row either moves its continuous features only, or jumps to
    the combination that helps most and moves the rest of the way.

    Args:
        features: `[n, d]`.
        weights: w of wᵀx + b ≥ 0, `[d]`.
        intercept: b.
        discrete: Columns of the discrete features.
        jump: δ, what a jump costs.
        allowed: Combinations of discrete values, `[m, discrete]`, in the order of `discrete`; those
            in the features if None.
        feature_names: For the explanation.
    """
    x, w = _table_and_weights(features, weights)
    if not number("jump", jump) > 0:
        raise AuditInputError(f"jump: {jump:g} is not above 0")
    jumping = np.zeros(len(w), dtype=bool)
    columns = _columns(discrete, len(w))
    jumping[columns] = True
    combinations = (
        np.unique(x[:, jumping], axis=0) if allowed is None else table("allowed", allowed)
    )
    if combinations.shape[1] != jumping.sum():
        raise AuditInputError(
            f"allowed: {combinations.shape[1]} values a line for {jumping.sum()} discrete features"
        )
    if allowed is not None:
        combinations = combinations[:, np.argsort(columns)]
    slope = float(np.linalg.norm(w[~jumping]))
    score = x @ w + number("intercept", intercept)
    worth = combinations @ w[jumping]
    best = np.where(score >= 0, np.argmin(worth), np.argmax(worth))
    after = score + worth[best] - x[:, jumping] @ w[jumping]
    stay = _way(np.abs(score), slope)
    # What is left after the jump: nothing once the decision has turned.
    turned = np.where(score >= 0, after < 0, after >= 0)
    left = np.where(turned, 0.0, np.abs(after))
    leap = jump + _way(left, slope, turned=turned)

    def changes(rows: NDArray[np.intp]) -> NDArray[np.float64]:
        found = np.zeros((len(rows), len(w)))
        leaps = (leap < stay)[rows]
        found[np.ix_(leaps, jumping)] = combinations[best[rows[leaps]]] - x[rows[leaps]][:, jumping]
        rest = np.where(leaps, np.where(turned[rows], 0.0, after[rows]), score[rows])
        if slope > 0:
            found[:, ~jumping] = -np.outer(rest, w[~jumping]) / slope**2
        return found

    return BoundaryDistances(
        distances=np.minimum(stay, leap),
        method=f"exact for a linear classifier whose discrete features jump for {jump:g}",
        changes=changes,
        feature_names=names_of(feature_names, len(w)),
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
    """Distances in the kernel's own space, |Σ α_i k(x_i, x) + b|/√(αᵀKα).

    The paper's closed form (section 3.1) is the square of this. The density of a signed squared
    distance is infinite at 0, which Assumption 1a rules out, so the root is taken. The way to the
    boundary lies in the kernel's space, so features do not explain it.

    Args:
        features: `[n, d]`.
        support_vectors: x_i, `[s, d]`, as `SVC.support_vectors_` has them.
        dual_coefs: α_i, `[s]`, as `SVC.dual_coef_` has them.
        intercept: b.
        kernel: From two tables to their kernel matrix; exp(-gamma ‖x - x′‖²) if None.
        gamma: Of that default kernel, as `SVC._gamma` has it.
    """
    x, support = table("features", features), table("support_vectors", support_vectors)
    alpha = floats("dual_coefs", dual_coefs).ravel()
    if x.shape[1] != support.shape[1] or len(alpha) != len(support):
        raise AuditInputError(
            f"support_vectors: shape {support.shape} does not fit {x.shape[1]} features "
            f"and {len(alpha)} dual_coefs"
        )
    offset = number("intercept", intercept)
    if kernel is None and not (gamma is not None and number("gamma", gamma) > 0):
        raise AuditInputError("gamma: the default kernel needs one above 0")
    between = kernel or (lambda a, b: _gaussian(a, b, float(gamma or 0.0)))
    length = math.sqrt(max(float(alpha @ np.asarray(between(support, support)) @ alpha), 0.0))
    if length == 0:
        raise AuditInputError("dual_coefs: the classifier is constant")
    parts = [
        np.asarray(between(x[start : start + _CHUNK], support)) @ alpha + offset
        for start in range(0, len(x), _CHUNK)
    ]
    score = np.concatenate(parts)
    return BoundaryDistances(
        distances=np.abs(score) / length,
        method="exact in the space of the kernel",
        decided=score >= 0,
    )


def table(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Numbers, one line a row, all finite.

    Raises:
        AuditInputError: They are not.
    """
    found = floats(name, values)
    if found.ndim != 2 or found.size == 0:
        raise AuditInputError(f"{name}: a table [rows, features] is wanted, not {found.shape}")
    if not np.isfinite(found).all():
        column = int(np.argmin(np.isfinite(found).all(axis=0)))
        raise AuditInputError(f"{name}: column {column} has values that are not finite")
    return found


def _columns(places: Sequence[int], width: int) -> list[int]:
    """Columns as given, checked."""
    found = floats("discrete", list(places))
    if found.ndim != 1 or not len(found):
        raise AuditInputError("discrete: columns of features are wanted")
    if (found != np.floor(found)).any() or found.min() < 0 or found.max() >= width:
        raise AuditInputError(f"discrete: columns are 0 to {width - 1}")
    if len(np.unique(found)) < len(found):
        raise AuditInputError("discrete: a column is named twice")
    return [int(place) for place in found]


def _table_and_weights(
    features: ArrayLike, weights: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, w = table("features", features), floats("weights", weights).ravel()
    if x.shape[1] != len(w):
        raise AuditInputError(f"weights: {len(w)} for {x.shape[1]} features")
    if not np.isfinite(w).all():
        raise AuditInputError("weights: some are not finite")
    return x, w


def _way(
    left: NDArray[np.float64], slope: float, *, turned: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """How far continuous features go; where they have no weight, nowhere."""
    if slope > 0:
        return left / slope
    done = np.zeros(len(left), dtype=bool) if turned is None else turned
    return np.where(done, 0.0, math.inf)


def _gaussian(a: NDArray[np.float64], b: NDArray[np.float64], gamma: float) -> Any:
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.exp(-gamma * np.maximum(squares, 0.0))
