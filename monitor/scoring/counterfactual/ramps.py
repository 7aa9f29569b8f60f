"""Location and scale of a variable's scores, given its predictors: ramps, and products of ramps.

Effects of several predictors add, unless a product of two of them is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from monitor.scoring.counterfactual.pairs import Variables

__all__ = ["Predictors", "Products", "Ramps"]

Float = NDArray[np.float64]
# Variables that move, with their predictors.
Predictors = dict[int, set[int]]
# Variables that move, with the pairs of predictors whose effects do not add.
Products = dict[int, set[tuple[int, int]]]

# Quantile levels between which μ and log σ are linear in an ordered predictor.
_KNOTS = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
# The same for the factors of products, of which there are as many as pairs of ramps.
_COARSE_KNOTS = (0.01, 0.35, 0.65, 0.99)
# Ridge penalty per row, relative to the variance of a score.
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramps:
    """Ramps min(max((x − start) · slope, 0), 1) of the predictors, and products of two of them.

    Attributes:
        columns: Column that each ramp reads, `[b]`.
        start: Start of each ramp, `[b]`.
        slope: Reciprocal of its width, `[b]`.
        products: Indices of the two ramps of each product, `[2, p]`.
        used: Whether a variable that moves has a ramp, or then a product, as a predictor,
            bool `[m, b + p]`.
    """

    columns: NDArray[np.int64]
    start: Float
    slope: Float
    products: NDArray[np.int64]
    used: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        rows: NDArray[np.float32],
        variables: Variables,
        predictors: Predictors,
        products: Products,
    ) -> Ramps:
        """Ramps between quantiles of ordered predictors; one per category."""
        fine = sorted(set().union(*predictors.values()))
        pairs = sorted(set().union(*(products.get(index, set()) for index in predictors)))
        ramps = [(i, *ramp) for i in fine for ramp in _ramps(rows, variables, i, _KNOTS)]
        additive, factors = len(ramps), {}
        for index in sorted({index for pair in pairs for index in pair}):
            own = _ramps(rows, variables, index, _COARSE_KNOTS)
            factors[index] = range(len(ramps), len(ramps) + len(own))
            ramps += [(index, *ramp) for ramp in own]
        multiplied = [
            (pair, *both) for pair in pairs for both in product(*(factors[index] for index in pair))
        ]
        used = [
            # The ramps that are only factors have no effect of their own.
            [number < additive and ramp[0] in own for number, ramp in enumerate(ramps)]
            + [pair in products.get(index, set()) for pair, _, _ in multiplied]
            for index, own in predictors.items()
        ]
        return cls(
            columns=np.array([ramp[1] for ramp in ramps], np.int64),
            start=np.array([ramp[2] for ramp in ramps], float),
            slope=np.array([ramp[3] for ramp in ramps], float),
            products=np.array([both[1:] for both in multiplied], np.int64).reshape(-1, 2).T,
            used=np.array(used, bool).reshape(len(predictors), len(ramps) + len(multiplied)),
        )

    def design(self, rows: NDArray[np.float32]) -> Float:
        """A column of ones, the ramps of rows `[n, d]`, then the products, `[n, 1 + b + p]`."""
        ramps = np.clip((rows[:, self.columns] - self.start) * self.slope, 0, 1)
        left, right = self.products
        return np.column_stack([np.ones(len(rows)), ramps, ramps[:, left] * ramps[:, right]])

    def fit(self, rows: NDArray[np.float32], scores: Float) -> Float:
        """Coefficients of μ and log σ of scores `[n, m]`, `[1 + b + p, 2m]`."""
        design, width = self.design(rows), scores.shape[1]
        coefficients = np.zeros((design.shape[1], 2 * width))
        for index, used in enumerate(self.used):
            if not used.any():
                continue
            own = np.r_[0, 1 + np.flatnonzero(used)]
            part = design[:, own]
            coefficients[own, index] = _ridge(part, scores[:, index])
            residual = scores[:, index] - part @ coefficients[own, index]
            # Half of the log of a square; the constant bias of its mean cancels in the residuals.
            log_scale = 0.5 * np.log(residual**2 + 1e-3)
            coefficients[own, width + index] = _ridge(part, log_scale)
        return coefficients

    def moments(self, rows: NDArray[np.float32], coefficients: Float) -> tuple[Float, Float]:
        """μ and σ of the scores of rows, `[n, m]` each."""
        both = self.design(rows) @ coefficients
        width = both.shape[1] // 2
        return both[:, :width], np.exp(both[:, width:])


def _ramps(
    rows: NDArray[np.float32], variables: Variables, index: int, knots: tuple[float, ...]
) -> list[tuple[int, float, float]]:
    """Column, start and slope of the ramps of a predictor."""
    columns = variables.columns(index)
    if variables.is_category(index):
        return [(column, 0.0, 1.0) for column in columns]
    ends = np.unique(np.quantile(rows[:, columns[0]], knots).astype(float)).tolist()
    return [(columns[0], low, 1 / (high - low)) for low, high in pairwise(ends)]


def _ridge(design: Float, values: Float) -> Float:
    """Ridge regression with an intercept in the first column, which is not penalized."""
    penalty = _RIDGE * len(design) * np.eye(design.shape[1])
    penalty[0, 0] = 0.0
    gram, moment = design.T @ design + penalty, design.T @ values
    return np.asarray(np.linalg.lstsq(gram, moment, rcond=1e-10)[0])
