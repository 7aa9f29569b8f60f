"""The flipset: rows, their counterparts, the model's decisions on both, and its identification."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import ot
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns, Scaling, category_codes
from offline_audit.maps.grid import Grid, GridMap
from offline_audit.maps.transport_map import (
    Cost,
    Features,
    TransportMap,
    draws_per_row,
    duplicate_codes,
)
from offline_audit.rendering import count, some
from offline_audit.units import UnitRows, effective_rows, unit_count

__all__ = [
    "SIDES",
    "DecidedRows",
    "DecisionModel",
    "Flipset",
    "Identification",
    "Side",
    "counterparts_of",
    "gross_share",
    "identify",
    "support_warnings",
]

Side = Literal["advantaged", "disadvantaged"]
SIDES: tuple[Side, Side] = ("disadvantaged", "advantaged")
Float = NDArray[np.float64]

# Largest number of values in all counterparts of a flipset; limits extra draws for duplicates.
_MAX_VALUES = 10_000_000
# Surcharge, or discount, of a pair with different decisions; costs are of scaled features.
_TIE_BREAK = 0.001
_MAX_IDENTIFICATION_ROWS = 1_000
# Largest difference between the two plans' flip shares of an identified flipset.
_MAX_WIDTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipset:
    """Members of one group with their counterparts in another (Definition 1 of the paper).

    If the map splits, a row has several equally likely counterparts. Each of them counts for its
    part in shares. A row is a *member* of a flipset if the decision changes for at least half of
    its counterparts.

    Attributes:
        features: Rows of the source group, `[n, d]`.
        counterparts: Counterparts of each row, `[e, n, d]`.
        decisions: Whether each row has the favourable decision, bool `[n]`.
        counterpart_decisions: Whether each counterpart has it, bool `[e, n]`.
        units: Unit of each row, `[n]`; None if each row is its own unit.
    """

    features: Features
    counterparts: Features
    decisions: NDArray[np.bool_]
    counterpart_decisions: NDArray[np.bool_]
    units: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.features)

    def flips(self, side: Side) -> NDArray[np.bool_]:
        """Counterparts with another decision, on the side of the source's decision, `[e, n]`."""
        if side == "advantaged":
            return self.decisions & ~self.counterpart_decisions
        return ~self.decisions & self.counterpart_decisions

    def parts(self, side: Side) -> Float:
        """Share of each row's counterparts with another decision, `[n]`."""
        return np.asarray(self.flips(side).mean(0))

    def members(self, side: Side) -> NDArray[np.bool_]:
        """Rows for at least half of whose counterparts the decision changes, bool `[n]`."""
        return self.parts(side) >= 0.5

    def share(self, side: Side) -> float:
        """Share of the group whose decision changes."""
        return float(self.parts(side).mean())

    def share_of_decisions(self, side: Side) -> float:
        """Share that changes of the decisions of one side; 0 without such decisions.

        Of the favourable decisions for `advantaged`, of the unfavourable for `disadvantaged`.
        """
        own = self.decisions if side == "advantaged" else ~self.decisions
        return float(self.parts(side)[own].mean()) if own.any() else 0.0

    @property
    def gross(self) -> float:
        """Share of the group whose decision changes, both sides together."""
        return self.share("advantaged") + self.share("disadvantaged")

    @property
    def net(self) -> float:
        """Share advantaged minus share disadvantaged.

        For an exact map it equals the difference of the groups' favourable rates.
        """
        return self.share("advantaged") - self.share("disadvantaged")

    def one_per_unit(self, seed: int) -> Flipset:
        """One row of each unit, drawn at random, so that rows are independent people."""
        if self.units is None:
            return self
        rows = UnitRows.of(self.units).one_each(np.random.default_rng(seed))
        return Flipset(
            features=self.features[rows],
            counterparts=self.counterparts[:, rows],
            decisions=self.decisions[rows],
            counterpart_decisions=self.counterpart_decisions[:, rows],
        )


class DecisionModel(Protocol):
    """A model that returns 1 for the favourable decision, 0 for the other, -1 if it fails."""

    def decide(self, features: Features) -> NDArray[np.int8]:
        """Decide on encoded rows: `[n, d]` to int8 `[n]`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRows:
    """Members of a group with the model's decisions.

    Attributes:
        features: Encoded features with the exact values on which the model decided, `[n, d]`.
        decisions: Whether the decision is favourable, bool `[n]`.
        duplicates: One code per row, equal for rows with equal features; None if few rows are
            duplicates.
        grid: Values that counterparts may have.
        units: Unit of each row, `[n]`; None if each row is its own unit.
    """

    features: Features
    decisions: NDArray[np.bool_]
    duplicates: NDArray[np.intp] | None = None
    grid: Grid = field(default_factory=Grid)
    units: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        features: Features,
        decisions: NDArray[np.bool_],
        units: NDArray[np.int64] | None = None,
        *,
        grid: Grid | None = None,
    ) -> DecidedRows:
        """Rows with their duplicates detected; without a grid, any value may be a counterpart's."""
        return cls(
            features=features,
            decisions=decisions,
            duplicates=duplicate_codes(features),
            grid=Grid() if grid is None else grid,
            units=units,
        )

    @property
    def map_features(self) -> NDArray[np.float32]:
        """The features as maps take them, rounded to float32, `[n, d]`."""
        return self.features.astype(np.float32, copy=False)

    def counterparts(self, fitted: TransportMap, n_counterparts: int) -> Features:
        """Counterparts of the rows by a map, as the model takes them, `[e, n, d]`."""
        return GridMap(map=fitted, grid=self.grid).transport(self.features, n_counterparts)

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.intp]) -> DecidedRows:
        """Rows at these indices, with repetitions."""
        return DecidedRows(
            features=self.features[rows],
            decisions=self.decisions[rows],
            duplicates=None if self.duplicates is None else self.duplicates[rows],
            grid=self.grid,
            units=None if self.units is None else self.units[rows],
        )

    def n_units(self, rows: NDArray[np.bool_] | None = None) -> int:
        """Number of units, with any of these rows, bool `[n]`; each row may be its own unit."""
        chosen = np.ones(len(self), bool) if rows is None else rows
        units = None if self.units is None else self.units[chosen]
        return unit_count(units, int(np.count_nonzero(chosen)))

    @property
    def effective(self) -> float:
        """Effective number of independent rows; see `effective_rows`."""
        return effective_rows(self.units, len(self))


def counterparts_of(
    rows: DecidedRows, fitted: TransportMap, model: DecisionModel, n_counterparts: int
) -> tuple[Flipset, int]:
    """Transport rows and decide on their counterparts.

    A row is excluded if the model fails on one of its counterparts. The model is not called for
    counterparts that equal their row. Duplicates get more counterparts.

    Returns:
        The flipset, and the number of excluded rows.
    """
    distinct, index, draws = _distinct(rows, n_counterparts)
    draws = min(draws, max(n_counterparts, _MAX_VALUES // rows.features.size))
    transported = distinct.counterparts(fitted, draws)
    decisions = _counterpart_decisions(distinct, transported, model)
    transported, decisions = transported[:, index], decisions[:, index]
    complete = (decisions >= 0).all(0)
    if not complete.all():
        transported, decisions = transported[:, complete], decisions[:, complete]
        rows = rows.take(np.flatnonzero(complete))
    flipset = Flipset(
        features=rows.features,
        counterparts=transported,
        decisions=rows.decisions,
        counterpart_decisions=decisions == 1,
        units=rows.units,
    )
    return flipset, int(np.count_nonzero(~complete))


def gross_share(
    rows: DecidedRows, fitted: TransportMap, model: DecisionModel, n_counterparts: int
) -> float:
    """Share of rows whose decision changes, without storing their counterparts."""
    distinct, index, n_counterparts = _distinct(rows, n_counterparts)
    transported = distinct.counterparts(fitted, n_counterparts)
    decisions = _counterpart_decisions(distinct, transported, model)
    flips = (decisions != distinct.decisions).mean(0)
    complete = np.asarray((decisions >= 0).all(0))[index]
    return float(flips[index][complete].mean()) if complete.any() else 0.0


def _distinct(
    rows: DecidedRows, n_counterparts: int
) -> tuple[DecidedRows, NDArray[np.intp] | slice, int]:
    """Distinct rows, the index of every row among them, and the counterparts each needs."""
    if rows.duplicates is None:
        return rows, slice(None), n_counterparts
    _, first, index, counts = np.unique(
        rows.duplicates, return_index=True, return_inverse=True, return_counts=True
    )
    return rows.take(first), index, draws_per_row(counts, n_counterparts)


def _counterpart_decisions(
    rows: DecidedRows, transported: Features, model: DecisionModel
) -> NDArray[np.int8]:
    """Decision on every counterpart, int8 `[e, n]`."""
    decisions = np.broadcast_to(rows.decisions.astype(np.int8), transported.shape[:2]).copy()
    moved = (transported != rows.features).any(2)
    if moved.any():
        decisions[moved] = model.decide(transported[moved])
    return decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Identification:
    """Flip shares of two transport plans of nearly equal cost.

    Several plans may have nearly the same cost and disagree about whose decision changes: with
    the squared L1 cost, plans of equal cost flip between 19% and 48% of a group
    (docs/methods/fliptest.md).

    Attributes:
        cost: Name of the cost.
        rows: Number of rows of each group in the sample.
        fewest: Share of the sample that flips under the plan that avoids flips.
        most: Share that flips under the plan that prefers flips.
        distances: Mean cost of both plans.
    """

    cost: str
    rows: int
    fewest: float
    most: float
    distances: tuple[float, float]

    @property
    def identified(self) -> bool:
        """Whether both plans flip about the same share."""
        return self.most - self.fewest <= _MAX_WIDTH


def identify(
    source: DecidedRows, target: DecidedRows, scaling: Scaling, cost: Cost, *, seed: int
) -> Identification:
    """Solve exact transport on a sample twice, with tie-breaks against and for flips."""
    rng = np.random.default_rng(seed)
    n = min(len(source), len(target), _MAX_IDENTIFICATION_ROWS)
    source_rows, target_rows = (
        g.take(rng.choice(len(g), n, replace=False)) for g in (source, target)
    )
    costs = cost.pairwise(
        scaling.scaled(source_rows.features), scaling.scaled(target_rows.features)
    )
    flips = source_rows.decisions[:, None] != target_rows.decisions
    mass = np.full(n, 1 / n)
    shares, distances = [], []
    for sign in (1, -1):
        # A negative cost is harmless: a constant added to all costs does not change the plan.
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


def support_warnings(
    source: DecidedRows,
    target: DecidedRows,
    columns: Columns,
    names: tuple[str, str],
    smallest_cell: int,
) -> list[str]:
    """Warnings about variables whose values in the two groups do not determine counterparts."""
    warnings, constant, separating = [], [], []
    for variable in columns.variables:
        if variable.kind == "category":
            source_codes, target_codes = (
                category_codes(g.features, variable) for g in (source, target)
            )
            unshared = ~np.isin(source_codes, np.unique(target_codes))
            if unshared.all():
                separating.append(variable.name)
            elif unshared.any():
                n, of = source.n_units(unshared), "row" if source.units is None else "unit"
                many = f"fewer than {smallest_cell} {of}s" if n < smallest_cell else count(n, of)
                warnings.append(
                    f"{names[0]}: {many} with a category of {variable.name} that does not occur "
                    f"in {names[1]}; the data do not determine their counterparts."
                )
            continue
        source_values, target_values = (
            g.features[:, variable.columns[0]] for g in (source, target)
        )
        if source_values.min() == source_values.max() and target_values.min() < target_values.max():
            constant.append(variable.name)
        elif source_values.max() < target_values.min() or target_values.max() < source_values.min():
            separating.append(variable.name)
    if separating:
        warnings.append(f"The groups do not overlap in {some(separating)}, which identifies them.")
    if constant:
        warnings.append(
            f"{some(constant)} is constant in {names[0]}; the data do not determine which "
            "counterpart gets which value."
        )
    return warnings
