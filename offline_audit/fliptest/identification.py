"""Is the flipset a fact about the groups, or one of many that cost the same?

Several transport plans may cost nearly the same and disagree about whose decision flips: with the
squared L1 cost, plans of equal cost flip between 19% and 48% of a group (docs/methods/fliptest.md).
So exact transport is solved twice on a sample, with a tie-break for and against pairs that are
decided alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import ot

from offline_audit.fliptest.flipset import DecidedRows
from offline_audit.maps.columns import Scaling
from offline_audit.maps.transport_map import Cost

__all__ = ["Identification", "identify"]

# What a pair that is decided otherwise costs more, or less; costs are of scaled features.
_TIE_BREAK = 0.001
_MOST = 1_000
# Plans may differ by this share of the group before the flipset counts as not identified.
_WIDEST = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """Flipsets of two plans that cost the same but for a tie-break.

    Attributes:
        cost: Its name.
        rows: People of each group in the sample.
        fewest: Share of the sample that flips under the plan that avoids flips.
        most: The same under the plan that seeks them.
        distances: Mean cost of both plans.
    """

    cost: str
    rows: int
    fewest: float
    most: float
    distances: tuple[float, float]

    @property
    def identified(self) -> bool:
        """Whether both plans flip about as many."""
        return self.most - self.fewest <= _WIDEST


def identify(
    source: DecidedRows, target: DecidedRows, scaling: Scaling, cost: Cost, *, seed: int
) -> Identification:
    """Solve exact transport on a sample with both tie-breaks."""
    rng = np.random.default_rng(seed)
    n = min(len(source), len(target), _MOST)
    here, there = (g.take(rng.choice(len(g), n, replace=False)) for g in (source, target))
    costs = cost.pairwise(scaling.scaled(here.features), scaling.scaled(there.features))
    flips = here.decisions[:, None] != there.decisions
    mass = np.full(n, 1 / n)
    shares, distances = [], []
    for sign in (1, -1):
        # Costs may be below zero by the tie-break, which shifts every plan alike.
        plan = ot.emd(mass, mass, costs + sign * _TIE_BREAK * flips, numItermax=2_000_000)
        shares.append(float(plan[flips].sum()))
        distances.append(float((plan * costs).sum()))
    return Identification(
        cost=cost.name,
        rows=n,
        fewest=shares[0],
        most=shares[1],
        distances=(distances[0], distances[1]),
    )
