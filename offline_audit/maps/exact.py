"""Exact optimal transport between samples: every counterpart is a person of the other group."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.transport_map import SQUARED_L2, Cost, Features, Progress, TransportMap

__all__ = ["ExactMap", "ExactMethod", "Plan", "distinct_people", "optimal_plan"]

Float = NDArray[np.float64]
# Pivots of the network simplex: 5,000 people a group need some 10 million.
_MOST_PIVOTS = 1_000_000_000
# Of a person's mass: less than this is rounding.
_LEAST = 1e-9


def distinct_people(
    group: Features, rows: int, rng: np.random.Generator
) -> tuple[Features, NDArray[np.int64]]:
    """At most so many people of a group: those who differ, `[k, d]`, and how many each stands for.

    People who are alike stand together, so that they share their counterparts.
    """
    drawn = group if len(group) <= rows else group[rng.choice(len(group), rows, replace=False)]
    found, counts = np.unique(drawn, axis=0, return_counts=True)
    return found, counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Who goes to whom, in which shares, row after row of the source.

    Attributes:
        starts: Where each row's entries start, and where the last one's end, `[k + 1]`.
        targets: Row of the target, `[entries]`.
        upto: Row of the source plus the share of its mass up to and with this entry, `[entries]`.
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int64]
    upto: Float

    @classmethod
    def of(cls, masses: Float) -> Plan:
        """From the mass between each pair, `[k, l]`; every row has some."""
        shares = masses / masses.sum(1, keepdims=True)
        rows, targets = np.nonzero(shares > _LEAST)
        starts = np.searchsorted(rows, np.arange(len(masses) + 1))
        upto = rows + np.cumsum(shares, axis=1)[rows, targets]
        return cls(starts=starts, targets=targets, upto=upto)

    @property
    def splits(self) -> bool:
        """Whether some row goes to several."""
        return len(self.targets) > len(self.starts) - 1

    def drawn(self, rows: NDArray[np.int64], uniforms: Float) -> NDArray[np.int64]:
        """A target for each row by a number in [0, 1), `[n]`."""
        place: NDArray[np.int64] = np.searchsorted(self.upto, rows + uniforms, side="right")
        # Shares may add up to a little less than 1, or more.
        return self.targets[np.clip(place, self.starts[rows], self.starts[rows + 1] - 1)]


def optimal_plan(costs: Float, here: NDArray[np.int64], there: NDArray[np.int64]) -> Float:
    """The masses `[k, l]` of least cost, up to a factor, by the network simplex.

    Args:
        costs: Of each pair, `[k, l]`.
        here: People that each row of the source stands for, `[k]`.
        there: The same of the target, `[l]`.

    Raises:
        AuditInputError: POT is not installed, or the simplex did not end.
    """
    pot = _pot()
    # In whole numbers, so that nothing splits by rounding.
    weights = here * float(there.sum()), there * float(here.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masses, told = pot.emd(*weights, costs, numItermax=_MOST_PIVOTS, log=True)
    if told["warning"] is not None:
        raise AuditInputError(
            f"exact: no optimal plan between {len(here):,} and {len(there):,} people was found; "
            "take fewer rows"
        )
    return np.asarray(masses, np.float64)


def _pot() -> Any:
    """POT, which is slow to import and not everyone has."""
    try:
        import ot
    except ModuleNotFoundError as error:
        raise AuditInputError(
            f"exact: {error.name} is not installed; `pip install 'evenhand[audit]'` brings what "
            "exact transport needs"
        ) from error
    return ot


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMap:
    """An optimal plan between samples; others go where the nearest sampled person goes.

    Attributes:
        scaling: By which people are near.
        tree: Of the sampled source, on scaled features.
        plan: From the sampled source to the sampled target.
        targets: People of the target, `[l, d]`.
    """

    scaling: Scaling
    tree: cKDTree
    plan: Plan
    targets: Features

    @property
    def splits(self) -> bool:
        """Groups of unequal size, or people who are alike."""
        return self.plan.splits

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        _, nearest = self.tree.query(self.scaling.scaled(features))
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [
                self.targets[
                    self.plan.drawn(nearest, draw_uniforms(features, 1, d, n_counterparts)[:, 0])
                ]
                for d in range(n_counterparts)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMethod:
    """The optimal plan between samples of both groups, for any cost.

    It follows its sample closely: who goes to whom changes with whoever else was drawn, and the
    more so the more features there are (section 3.2 of the paper).

    Attributes:
        rows: People of each group at most, drawn by the seed; memory grows with their square.
    """

    name: str = "exact"
    cost: Cost = SQUARED_L2
    quick: bool = False
    rows: int = 2_000

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise AuditInputError(f"rows: {self.rows} is not 1 or more")

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """See `MapMethod`."""
        rng = np.random.default_rng(seed)
        scaling = Scaling.of(source, target, columns)
        sources, here = distinct_people(source, self.rows, rng)
        targets, there = distinct_people(target, self.rows, rng)
        scaled = scaling.scaled(sources)
        masses = optimal_plan(self.cost.pairwise(scaled, scaling.scaled(targets)), here, there)
        return ExactMap(
            scaling=scaling, tree=cKDTree(scaled), plan=Plan.of(masses), targets=targets
        )
