"""How bad a map must be for its validation to find out: the power of the checks.

A check that passes shows little if the rows are too few to fail it. The smallest deviation that is
found in 80% of samples says what a passed validation excludes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AUC_ERRORS",
    "LARGEST_AUC",
    "LARGEST_DISTANCE",
    "LARGEST_KS",
    "LARGEST_REGRESSION",
    "REGRESSION_ERRORS",
    "Detectable",
]

Float = NDArray[np.float64]

# Largest deviations of a map that passes, in addition to sampling error.
LARGEST_KS, LARGEST_REGRESSION, LARGEST_AUC, LARGEST_DISTANCE = 0.05, 0.2, 0.6, 3.0
# Sampling error that is allowed in addition, in standard errors.
REGRESSION_ERRORS, AUC_ERRORS = 4.0, 2.33
# Deviations that must be found in 80% of samples for a map to be called validated.
_KS, _REGRESSION, _AUC, _DISTANCE = 0.15, 1.2, 0.7, 4.0
# Normal quantile of a power of 80%.
_POWER = 0.842


@dataclass(frozen=True, slots=True, kw_only=True)
class Detectable:
    """Smallest deviations of a map that its validation finds in 80% of samples of this size.

    Attributes:
        ks: Kolmogorov–Smirnov distance of a feature.
        regression: Increase of the mean squared error of a feature, as a share of its variance; of
            the feature with the largest. None if no increase is found so often.
        auc: AUC of the classifier.
        distance: Mean cost, as a multiple of the lowest possible cost on the same rows.
    """

    ks: float
    regression: float | None
    auc: float
    distance: float

    @classmethod
    def of(
        cls, *, ks_limit: float, rows: tuple[int, int], errors: Float, test_rows: int, costs: Float
    ) -> Detectable:
        """The deviations for these rows.

        Args:
            ks_limit: Largest Kolmogorov–Smirnov statistic that passes.
            rows: Numbers of transported rows and of target rows.
            errors: Squared errors of regressions in the target, as a share of the variance, of the
                columns that vary, `[m, k]`.
            test_rows: Rows of each class on which the classifier is tested.
            costs: Cost of each transported row of a sample, `[m]`.
        """
        # 0.5 is the largest standard deviation of an indicator.
        ks = ks_limit + _POWER * 0.5 * math.sqrt(1 / rows[0] + 1 / rows[1])
        return cls(
            ks=min(ks, 1.0),
            regression=_detectable_regression(errors, rows),
            auc=_detectable_auc(test_rows),
            distance=_detectable_distance(costs),
        )

    @property
    def sufficient(self) -> bool:
        """Whether deviations that matter are found in 80% of samples, by every check."""
        return all(_is_enough(value, bound) for _, value, bound in self._rows())

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {'none' if value is None else f'{value:.3f}'}"
            + ("" if _is_enough(value, bound) else f" (required: {bound:g})")
            for name, value, bound in self._rows()
        )

    def _rows(self) -> tuple[tuple[str, float | None, float], ...]:
        return (
            ("KS", self.ks, _KS),
            ("squared error", self.regression, _REGRESSION),
            ("AUC", self.auc, _AUC),
            ("cost ratio", self.distance, _DISTANCE),
        )


def _is_enough(value: float | None, bound: float) -> bool:
    return value is not None and value <= bound


def _detectable_regression(errors: Float, rows: tuple[int, int]) -> float | None:
    """Increase D of the mean error: D − limit = k √(s² (1 + D / e)² + t²); largest of the columns.

    e is the mean error, s and t are standard errors of the transported and of the target rows'
    means. The error of transported rows grows with its mean, as that of normal residuals does.
    """
    k, mean, spread = REGRESSION_ERRORS + _POWER, errors.mean(0), errors.std(0)
    s, t = (spread / math.sqrt(n) for n in rows)
    growth = np.divide(s, mean, out=np.zeros_like(s), where=mean > 0)
    # a D² − 2 b D + c = 0.
    a, b = 1 - (k * growth) ** 2, LARGEST_REGRESSION + k**2 * s * growth
    c = LARGEST_REGRESSION**2 - k**2 * (s**2 + t**2)
    if (a <= 0).any():
        return None
    solutions = (b + np.sqrt(np.maximum(b**2 - a * c, 0.0))) / a
    return float(solutions.max(initial=LARGEST_REGRESSION))


def _detectable_auc(rows: int) -> float:
    """AUC a with a − LARGEST_AUC = k √(a (1 − a) / n): limit, noise of the limit, and power."""
    c = (AUC_ERRORS + _POWER) ** 2 / max(rows, 1)
    half = LARGEST_AUC + c / 2
    return (half + math.sqrt(max(half**2 - LARGEST_AUC**2 * (1 + c), 0.0))) / (1 + c)


def _detectable_distance(costs: Float) -> float:
    """Multiple of the lowest cost, if costs vary relative to their mean as those of the map do."""
    mean = float(costs.mean())
    # A map that moves no row does not show how costs vary; those of an exponential do by 1.
    variation = float(costs.std()) / mean if mean > 0 else 1.0
    return LARGEST_DISTANCE / max(1 - _POWER * variation / math.sqrt(len(costs)), 1e-6)
