"""Hiring by work experience and hair length: the people of Lipton et al. (2018), section 4.1.

The distributions are those that the authors of FlipTest publish with their code. The model is the
fair classifier of Zafar et al. (2017): a logistic regression whose scores must not vary with
gender.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from offline_audit import Columns
from offline_audit.maps.transport_map import Features

__all__ = ["HIRING", "Applicants", "HiringModel", "applicants", "fair_model"]

Float = NDArray[np.float64]
HIRING = Columns.numeric(("work experience", "hair length"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicants:
    """Applicants of one gender.

    Attributes:
        features: Years of work experience and hair length, `[n, 2]`.
        suited: Whether each applicant is suited, `[n]`.
    """

    features: Features
    suited: NDArray[np.bool_]


def applicants(n: int, *, men: bool, rng: np.random.Generator) -> Applicants:
    """Men have more work experience and shorter hair; suitability depends on work only."""
    work = rng.poisson(31 if men else 25, n) - rng.normal(20, 0.2, n)
    hair = 35 * rng.beta(2, 7 if men else 2, n)
    suited = rng.random(n) < 1 / (1 + np.exp(25.5 - 2.5 * work))
    return Applicants(features=np.column_stack([work, hair]).astype(np.float32), suited=suited)


@dataclass(frozen=True, slots=True, kw_only=True)
class HiringModel:
    """A linear model that hires if the weighted sum of scaled features is above a threshold.

    Attributes:
        mean: Means of the training features, `[2]`.
        scale: Standard deviations of the training features, `[2]`.
        weights: Weights of the scaled features, `[2]`.
        threshold: Threshold of the weighted sum.
    """

    mean: Float
    scale: Float
    weights: Float
    threshold: float

    def scaled(self, features: Features) -> Float:
        """In standard deviations from the mean, `[..., 2]`."""
        return (features - self.mean) / self.scale

    def hires(self, features: Features) -> NDArray[np.bool_]:
        """Decisions, `[..., 2]` to `[...]`."""
        return self.scaled(features) @ self.weights > self.threshold


def fair_model(women: Applicants, men: Applicants) -> HiringModel:
    """Logistic regression with no covariance between gender and score (Zafar et al., equation 5).

    With equal numbers of women and men, this means equal mean scores.
    """
    features = np.concatenate([women.features, men.features]).astype(np.float64)
    mean, scale = features.mean(0), features.std(0)
    scaled = (features - mean) / scale
    signs = np.where(np.concatenate([women.suited, men.suited]), 1.0, -1.0)
    gap = scaled[len(women.features) :].mean(0) - scaled[: len(women.features)].mean(0)

    def loss(values: Float) -> tuple[float, Float]:
        margins = signs * (scaled @ values[:2] - values[2])
        pull = -signs / (1 + np.exp(np.minimum(margins, 50)))
        slope = np.append((scaled * pull[:, None]).mean(0), -pull.mean())
        return float(np.logaddexp(0, -margins).mean()), slope

    solution = minimize(
        loss,
        np.zeros(3),
        jac=True,
        method="SLSQP",
        constraints=[{"type": "eq", "fun": lambda values: gap @ values[:2]}],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert solution.success
    return HiringModel(
        mean=mean, scale=scale, weights=solution.x[:2], threshold=float(solution.x[2])
    )
