"""Linear support vector machines: plain, and with the constraint of Donini et al. (2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from benchmarks.papers.audited_people import People

__all__ = ["LinearClassifier", "Loss", "fair_svm", "naive_svm", "opportunity_gap"]

Float = NDArray[np.float64]
Loss = Literal["hinge", "squared hinge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearClassifier:
    """A classifier that decides 1 if w·x + b ≥ 0.

    Attributes:
        weights: Weights w, `[d]`.
        bias: Bias b.
    """

    weights: Float
    bias: float

    def margin(self, features: Float) -> Float:
        """w·x + b, `[n]`."""
        margin: Float = features @ self.weights + self.bias
        return margin

    def decisions(self, features: Float) -> NDArray[np.bool_]:
        """Decisions on rows, `[n]`."""
        return self.margin(features) >= 0

    def distances(self, features: Float) -> Float:
        """Distances to the boundary, `[n]`; infinite if the weights are zero."""
        length = float(np.linalg.norm(self.weights))
        if length == 0:
            return np.full(len(features), np.inf)
        return np.abs(self.margin(features)) / length


def naive_svm(train: People, *, penalty: float = 1.0, loss: Loss = "hinge") -> LinearClassifier:
    """A support vector machine without a fairness constraint.

    Args:
        train: Training rows.
        penalty: Penalty C on errors; the ridge is ½ w·w.
        loss: Loss of an error.
    """
    return _fitted(train.features, train, penalty, loss)


def fair_svm(train: People, *, penalty: float = 1.0, loss: Loss = "hinge") -> LinearClassifier:
    """A support vector machine under w·u = 0, where u is the gap between mean positive rows.

    Donini et al. (2018), section 4: with the linear loss, equal opportunity requires that the mean
    margin of positive rows is the same in both groups. Training on rows projected orthogonally to
    u, X(I − uuᵀ/u·u), yields exactly the w that satisfy this, with the same ridge.
    """
    gap = opportunity_gap(train)
    square = float(gap @ gap)
    if square == 0:
        return naive_svm(train, penalty=penalty, loss=loss)
    projected = train.features - np.outer(train.features @ gap, gap) / square
    fitted = _fitted(projected, train, penalty, loss)
    # Remove the rounding error along u.
    weights = fitted.weights - gap * float(gap @ fitted.weights) / square
    return LinearClassifier(weights=weights, bias=fitted.bias)


def opportunity_gap(train: People) -> Float:
    """Mean of the first group's positive rows less that of the second's, `[d]`."""
    first, second = np.unique(train.groups)
    means = [
        train.features[train.labels & (train.groups == group)].mean(axis=0)
        for group in (first, second)
    ]
    difference: Float = means[0] - means[1]
    return difference


def _fitted(features: Float, train: People, penalty: float, loss: Loss) -> LinearClassifier:
    """Duplicate rows are fitted once, with a weight; COMPAS has 300 distinct of 3,700 rows."""
    rows = np.column_stack([features, train.labels])
    # Rounded, so that duplicates stay equal after a projection.
    _, first, counts = np.unique(rows.round(12), axis=0, return_index=True, return_counts=True)
    plain = loss == "hinge"
    model = SVC(kernel="linear", C=penalty) if plain else LinearSVC(C=penalty, dual=False)
    model.fit(features[first], train.labels[first], sample_weight=counts)
    return LinearClassifier(weights=model.coef_[0], bias=float(model.intercept_[0]))
