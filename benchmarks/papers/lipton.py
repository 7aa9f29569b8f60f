"""The hiring data of Lipton, Chouldechova and McAuley (2018), section 4.1, and a model for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps import Columns
from offline_audit.maps.transport_map import Features

__all__ = ["HiringModel", "hiring_people"]

Float = NDArray[np.float64]

# Weights of work experience and hair length on standardised features. FlipTest, section 5.3, prints
# them the other way round; so they would hire 36% of women and 21% of men, not its 30% and 27%.
_WEIGHTS = np.array([1.4, 1.2])
# Share of all who are hired: between the paper's 27% of men and 30% of women.
_HIRED = 0.285


def hiring_people(n: int, *, seed: int) -> tuple[Features, Features, Columns]:
    """Women and men `[n, 2]`: years of work experience and length of hair.

    Men have six years more on average and shorter hair:
    work ~ Poisson(25 + 6 man) − N(20, .2), hair ~ 35 · Beta(2, 2 + 5 man).
    """
    rng = np.random.default_rng(seed)
    groups = []
    for man in (0, 1):
        work = rng.poisson(25 + 6 * man, n) - rng.normal(20, 0.2, n)
        hair = 35 * rng.beta(2, 2 + 5 * man, n)
        groups.append(np.column_stack([work, hair]).astype(np.float32))
    return groups[0], groups[1], Columns.numeric(["work_experience", "hair_length"])


@dataclass(frozen=True, slots=True, kw_only=True)
class HiringModel:
    """Linear on standardised features, with the paper's weights; hires the highest scores.

    Attributes:
        mean: Of each feature, `[2]`.
        scale: Standard deviation of each, `[2]`.
        threshold: On the score.
    """

    mean: Float
    scale: Float
    threshold: float

    @classmethod
    def of(cls, women: Features, men: Features) -> HiringModel:
        """Standardised and cut on both groups together."""
        both = np.concatenate([women, men]).astype(np.float64)
        mean, scale = both.mean(0), both.std(0)
        scores = ((both - mean) / scale) @ _WEIGHTS
        return cls(mean=mean, scale=scale, threshold=float(np.quantile(scores, 1 - _HIRED)))

    def decide(self, features: Features) -> NDArray[np.int8]:
        """1 for those who are hired, int8 `[n]`."""
        scores = ((features - self.mean) / self.scale) @ _WEIGHTS
        return np.asarray(scores >= self.threshold, np.int8)
