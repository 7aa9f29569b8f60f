"""Exact optimal transport between samples: every counterpart is a row of the other group."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.transport_map import (
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
    draw_uniforms,
)

__all__ = ["ExactMap", "ExactMethod", "Plan", "distinct_rows", "optimal_plan"]

Float = NDArray[np.float64]
# Limit of the network simplex; 5,000 rows per group need about 10 million pivots.
_MOST_PIVOTS = 1_000_000_000
# Shares of a row's mass below this are rounding errors.
_LEAST_SHARE = 1e-9


def distinct_rows(
    group: Features, rows: int, rng: np.random.Generator
) -> tuple[Features, NDArray[np.int64]]:
    """Distinct rows of a sample of a group, `[k, d]`, and the number of copies of each, `[k]`.

    Duplicates are joined, so that they share their counterparts.

    Args:
        group: Rows of the group, `[n, d]`.
        rows: Largest size of the sample.
        rng: Random generator of the sample.
    """
    sample = group if len(group) <= rows else group[rng.choice(len(group), rows, replace=False)]
    distinct, counts = np.unique(sample, axis=0, return_counts=True)
    return distinct, counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sparse transport plan: the nonzero entries of each source row, one row after another.

    Attributes:
        starts: Index of the first entry of each source row, and the number of entries, `[k + 1]`.
        targets: Target row of each entry, `[entries]`.
        cumulative: Source row plus the cumulative share of its mass, `[entries]`. It increases
            over all entries, so that one search serves all rows.
    """

    starts: NDArray[np.int64]
    targets: NDArray[np.int64]
    cumulative: Float

    @classmethod
    def of(cls, masses: Float) -> Plan:
        """The plan with these masses of pairs, `[k, l]`; every source row has positive mass."""
        shares = masses / masses.sum(1, keepdims=True)
        rows, targets = np.nonzero(shares > _LEAST_SHARE)
        starts = np.searchsorted(rows, np.arange(len(masses) + 1))
        cumulative = rows + np.cumsum(shares, axis=1)[rows, targets]
        return cls(starts=starts, targets=targets, cumulative=cumulative)

    @property
    def splits(self) -> bool:
        """Whether any source row has several targets."""
        return len(self.targets) > len(self.starts) - 1

    def drawn(self, rows: NDArray[np.int64], uniforms: Float) -> NDArray[np.int64]:
        """One target per source row, chosen by a uniform number in [0, 1), `[n]`."""
        entry: NDArray[np.int64] = np.searchsorted(self.cumulative, rows + uniforms, side="right")
        # Cumulative shares may end slightly below or above 1.
        return self.targets[np.clip(entry, self.starts[rows], self.starts[rows + 1] - 1)]


def optimal_plan(
    costs: Float, source_counts: NDArray[np.int64], target_counts: NDArray[np.int64]
) -> Float:
    """Masses `[k, l]` of the plan with the lowest cost, up to a factor, by the network simplex.

    Args:
        costs: Costs of all pairs, `[k, l]`.
        source_counts: Number of copies of each source row, `[k]`.
        target_counts: Number of copies of each target row, `[l]`.

    Raises:
        AuditInputError: POT is not installed, or the simplex did not converge.
    """
    pot = _pot()
    # Integer masses, so that no row splits because of rounding.
    masses_of_rows = (
        source_counts * float(target_counts.sum()),
        target_counts * float(source_counts.sum()),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        masses, log = pot.emd(*masses_of_rows, costs, numItermax=_MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise AuditInputError(
            f"map exact: the solver did not converge for {len(source_counts):,} and "
            f"{len(target_counts):,} distinct rows; reduce rows"
        )
    return np.asarray(masses, np.float64)


def _pot() -> Any:
    """The package POT, an optional dependency that is slow to import."""
    try:
        import ot
    except ModuleNotFoundError as error:
        raise AuditInputError(
            f"map exact: the package {error.name} is not installed; run "
            "`pip install 'evenhand[audit]'`"
        ) from error
    return ot


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMap:
    """An optimal plan between samples; other rows use the plan of the nearest sampled row.

    Attributes:
        scaling: Scaling of the features.
        tree: Search tree of the sampled source rows, on scaled features.
        plan: Plan from sampled source rows to sampled target rows.
        targets: Sampled target rows, `[l, d]`.
    """

    scaling: Scaling
    tree: cKDTree
    plan: Plan
    targets: Features

    @property
    def splits(self) -> bool:
        """True for groups of unequal size or with duplicates, unless the plan is one-to-one."""
        return self.plan.splits

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        _, nearest = self.tree.query(self.scaling.scaled(features))
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [
                self.targets[
                    self.plan.drawn(nearest, draw_uniforms(features, 1, draw, n_counterparts)[:, 0])
                ]
                for draw in range(n_counterparts)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactMethod:
    """The optimal plan between samples of both groups, for any cost.

    The plan overfits its sample: counterparts depend on which other rows were sampled, the more so
    the more features there are (section 3.2 of the paper).

    Attributes:
        rows: Largest sample of each group; memory grows with its square.
    """

    name: str = "exact"
    cost: Cost = SQUARED_L2
    quick: bool = False
    rows: int = 2_000

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise AuditInputError(f"rows: must be at least 1; got {self.rows}")

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
        sources, source_counts = distinct_rows(source, self.rows, rng)
        targets, target_counts = distinct_rows(target, self.rows, rng)
        scaled = scaling.scaled(sources)
        costs = self.cost.pairwise(scaled, scaling.scaled(targets))
        masses = optimal_plan(costs, source_counts, target_counts)
        return ExactMap(
            scaling=scaling, tree=cKDTree(scaled), plan=Plan.of(masses), targets=targets
        )
