"""Applicants transported by a map: flips, transparency report, and quality of the map."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from benchmarks.papers.lipton import HIRING, HiringModel
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.maps.transport_map import Features, MapMethod

__all__ = ["Transported"]

Float = NDArray[np.float64]
_DRAWS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Transported:
    """Transported people of a test set, and members of the target group.

    Attributes:
        flipset: People and counterparts, with their decisions.
        target: Members of the target group, `[m, 2]`.
        model: Hiring model.
        seconds: Time of the fit.
    """

    flipset: Flipset
    target: Features
    model: HiringModel
    seconds: float

    @classmethod
    def by_map(
        cls,
        method: MapMethod,
        groups: tuple[Features, Features],
        tests: tuple[Features, Features],
        model: HiringModel,
        seed: int = 0,
    ) -> Transported:
        """Fit the map to the groups and transport the first test set to the second.

        If the map splits mass, everyone has eight counterparts.
        """
        started = time.perf_counter()
        fitted = method.fit(*groups, HIRING, seed=seed)
        seconds = time.perf_counter() - started
        counterparts = fitted.transport(tests[0], _DRAWS)
        flipset = Flipset(
            features=tests[0],
            counterparts=counterparts,
            decisions=model.hires(tests[0]),
            counterpart_decisions=model.hires(counterparts),
        )
        return cls(flipset=flipset, target=tests[1], model=model, seconds=seconds)

    def size(self, side: Side) -> float:
        """Flips per 10,000 people."""
        return 10_000 * self.flipset.share(side)

    def means(self, side: Side) -> Float:
        """The transparency report: mean of x − G(x), in standard deviations, `[2]`."""
        people = self.model.scaled(self.flipset.features)
        changes = people - self.model.scaled(self.flipset.counterparts)
        flips = self.flipset.flips(side)
        return changes[flips].mean(0) if flips.any() else np.full(2, np.nan)

    @property
    def ks(self) -> list[float]:
        """Two-sample KS statistic of each feature."""
        transported = self.flipset.counterparts[0]
        return [float(ks_2samp(transported[:, c], self.target[:, c]).statistic) for c in range(2)]

    @property
    def regression(self) -> list[float]:
        """MSE of a regression of each feature on the other, minus that in the target group."""
        transported, real = (
            self.model.scaled(x) for x in (self.flipset.counterparts[0], self.target)
        )
        learn, test = np.array_split(real, 2)
        errors = []
        for known, predicted in ((1, 0), (0, 1)):
            line = np.polyfit(learn[:, known], learn[:, predicted], 1)
            residuals = [
                np.polyval(line, x[:, known]) - x[:, predicted] for x in (transported, test)
            ]
            errors.append(float((residuals[0] ** 2).mean() - (residuals[1] ** 2).mean()))
        return errors

    @property
    def distances(self) -> tuple[float, float]:
        """Mean L1 distance to counterparts, and mean of its square."""
        people, transported = (
            self.model.scaled(x) for x in (self.flipset.features, self.flipset.counterparts[0])
        )
        distance = np.abs(people - transported).sum(1)
        return float(distance.mean()), float((distance**2).mean())
