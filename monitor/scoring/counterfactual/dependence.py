"""Fitting of the repair of dependence: which variables move given which others, and how.

Rows of one group, transported feature by feature, are compared with rows of the other. Of a pair of
variables whose dependence differs

- if a causal order is given, the later of two ordered features moves, given the earlier;
- otherwise the variable whose own distribution differs moves, given the other (its predictor);
- if that is so for both ordered features, or for neither, the data do not identify which of them
  the group affects. There are two repairs, one for each direction, and scores average over both;
- an ordered feature moves given a category; a category does not move further.

Of three variables whose dependence differs, one moves given the product of the others, chosen by
the same rules, so that there may be three repairs. A binary feature then moves like a category.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.scoring.counterfactual.pairs import Variables
from monitor.scoring.counterfactual.ramps import Predictors, Products, Ramps
from monitor.scoring.counterfactual.repair import Repair, scores_of_ranks

__all__ = ["RANKS", "ROWS", "Moves", "Rules", "fit_repair", "moves_by_order"]

Float = NDArray[np.float64]
# Rows per group to which the repair is fitted; more change little.
ROWS = 20_000
# Candidates that move in the causal orders: the last, the first, or the second.
RANKS = (-1, 0, 1)
# Bins of μ with a table of residuals each, and the rows of the smallest group in a bin.
_MOST_BINS, _LEAST_IN_BIN = 6, 150
# Edge of a bin without rows, above any μ.
_ABOVE = 1e30
_RESIDUAL_GRID = np.linspace(0, 1, 33)
# Tables by bin cost time in every pass. They are kept if the distribution of the residuals over
# eight cells differs between bins, by a test and by more than a small effect (χ² per row).
_CELLS = 8
_SHAPE_LEVEL, _LEAST_SHAPE_EFFECT = 0.001, 0.007
# Two groups, and two or three variables.
_Groups = tuple[int, int]
_Members = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Variables that move given others, in one causal order.

    Attributes:
        predictors: Predictors of the variables that move, for each pair of groups.
        products: Pairs of predictors of a variable whose effects do not add, in any groups.
    """

    predictors: Mapping[_Groups, Predictors]
    products: Products = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What tells which of some variables moves.

    Attributes:
        variables: Columns of the variables.
        differs: Whether the distribution of a variable differs between two groups, `[k, k, v]`.
        order: Position of each variable in the causal order, NaN if it is not known, `[v]`.
        binary: Indices of the binary features.
    """

    variables: Variables
    differs: NDArray[np.bool_]
    order: Float
    binary: frozenset[int]

    def candidates(self, members: _Members, groups: _Groups) -> list[int]:
        """Those of some variables that may be the one that moves, in the order of the columns."""
        ordered = [index for index in members if not self.variables.is_category(index)]
        # Comparisons with NaN are false.
        latest = [i for i in ordered if not any(self.order[j] > self.order[i] for j in ordered)]
        if len(latest) == 1 and len(ordered) == len(members):
            return latest
        moving = [index for index in members if self.differs[groups][index]]
        if len(moving) == 1 and (moving[0] in latest or moving[0] not in ordered):
            return [index for index in moving if index in latest]
        numbers = [index for index in latest if index not in self.binary]
        return numbers if numbers and len(members) > 2 else latest


def moves_by_order(
    members: Mapping[_Groups, Sequence[_Members]],
    rules: Rules,
    ranks: Sequence[int] = RANKS,
) -> dict[int, Moves]:
    """Moves in each causal order that is averaged over, by rank.

    Args:
        members: Pairs and triples of variables whose dependence differs, for each pair of groups.
        rules: What tells which of them moves.
        ranks: Which of the candidates moves in each causal order.

    Returns:
        None if no variable moves, several if the data do not identify which, otherwise one.
    """
    orders: dict[int, Moves] = {}
    for rank in ranks:
        predictors: dict[_Groups, Predictors] = {groups: {} for groups in members}
        products: Products = {}
        for groups, every in members.items():
            for own in every:
                candidates = rules.candidates(own, groups)
                if not candidates:
                    continue
                moved = candidates[min(rank, len(candidates) - 1)]
                given = [index for index in own if index != moved]
                predictors[groups].setdefault(moved, set()).update(given)
                if len(given) == 2:
                    products.setdefault(moved, set()).add((given[0], given[1]))
        moves = Moves(predictors=predictors, products=products)
        if any(predictors.values()) and moves not in orders.values():
            orders[rank] = moves
    return orders


def fit_repair(
    members: Sequence[NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    orders: Sequence[Moves],
) -> tuple[tuple[Repair, ...], ...]:
    """Fit the repair between all groups.

    Args:
        members: Rows of each group, `[n, d]`, at most `ROWS` of them.
        ranks: Rank in [0, 1] of each member's ordered features in its own group, `[n, o]`.
        variables: Columns of the variables.
        orders: Which variables move given which others, for each causal order.

    Returns:
        Repairs in the order in which they are applied, for each causal order.
    """
    return tuple(tuple(_fit_levels(members, ranks, variables, moves)) for moves in orders)


def _fit_levels(
    members: Sequence[NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    moves: Moves,
) -> Iterator[Repair]:
    """Repairs in an order such that predictors are repaired before what they predict."""
    union: Predictors = {}
    for part in moves.predictors.values():
        for index, own in part.items():
            union.setdefault(index, set()).update(own)
    waiting = dict(union)
    while waiting:
        ready = [i for i in sorted(waiting) if not waiting[i] & waiting.keys()]
        # Pairs of groups can disagree on a direction; then one of a cycle comes first.
        ready = ready or [min(waiting)]
        yield _fit_level(members, ranks, variables, {i: union[i] for i in ready}, moves)
        for index in ready:
            del waiting[index]


def _fit_level(
    members: Sequence[NDArray[np.float32]],
    ranks: Sequence[Float],
    variables: Variables,
    own: Predictors,
    moves: Moves,
) -> Repair:
    count, free = len(members), list(own)
    ramps = Ramps.of(np.concatenate(list(members)), variables, own, moves.products)
    scores = [scores_of_ranks(torch.from_numpy(r[:, free])).numpy() for r in ranks]
    moments = [ramps.fit(rows, z) for rows, z in zip(members, scores, strict=True)]
    residuals = []
    for rows, z, fitted in zip(members, scores, moments, strict=True):
        mean, scale = ramps.moments(rows, fitted)
        residuals.append(list(zip(mean.T, ((z - mean) / scale).T, strict=True)))
    bins = min(max(min(map(len, members)) // _LEAST_IN_BIN, 1), _MOST_BINS)
    if not any(_shape_depends_on_location(*both, bins) for group in residuals for both in group):
        bins = 1
    edges, tables = [], []
    for group in residuals:
        by_variable = [_residual_tables(*both, bins) for both in group]
        edges.append([edge for edge, _ in by_variable])
        tables.append([table for _, table in by_variable])
    repaired = np.zeros((count, count, len(free)), bool)
    for (s, t), part in moves.predictors.items():
        repaired[s, t] = repaired[t, s] = [index in part for index in free]
    return Repair(
        free=torch.tensor([variables.ordered[index] for index in free]),
        repaired=torch.from_numpy(repaired),
        columns=torch.from_numpy(ramps.columns),
        start=torch.from_numpy(ramps.start.astype(np.float32)),
        slope=torch.from_numpy(ramps.slope.astype(np.float32)),
        products=torch.from_numpy(np.ascontiguousarray(ramps.products)),
        weight=torch.from_numpy(np.stack([m[1:] for m in moments]).astype(np.float32)),
        bias=torch.from_numpy(np.stack([m[0] for m in moments]).astype(np.float32)),
        edges=torch.tensor(np.array(edges), dtype=torch.float32),
        residuals=torch.tensor(np.array(tables), dtype=torch.float32),
    )


def _residual_tables(mean: Float, residuals: Float, bins: int) -> tuple[Float, Float]:
    """Edges between bins of μ `[z − 1]`, and quantiles of the residuals in them `[z, q]`."""
    edges = _edges(mean, bins)
    own = np.searchsorted(edges, mean)
    parts = [residuals[own == number] for number in range(bins)]
    tables = [np.quantile(part if len(part) else residuals, _RESIDUAL_GRID) for part in parts]
    return edges, np.array(tables)


def _shape_depends_on_location(mean: Float, residuals: Float, bins: int) -> bool:
    """Whether residuals are distributed differently in different bins of μ.

    A shape that changes with the location is that of a rank near one of its ends: a lower half of
    all ranks is skewed to the left in scores, an upper half to the right.
    """
    own = np.searchsorted(_edges(mean, bins), mean)
    inner = np.quantile(residuals, np.linspace(0, 1, _CELLS + 1)[1:-1])
    counts = np.zeros((bins, _CELLS))
    np.add.at(counts, (own, np.searchsorted(inner, residuals)), 1)
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    if not freedom:
        return False
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    effect = (statistic - freedom) / len(residuals)
    p_value = float(stats.chi2.sf(statistic, freedom))
    return effect >= _LEAST_SHAPE_EFFECT and p_value <= _SHAPE_LEVEL


def _edges(mean: Float, bins: int) -> Float:
    """Edges between bins of μ with about as many rows each, `[z − 1]`."""
    levels = np.unique(np.sort(mean)[np.arange(1, bins) * len(mean) // bins])
    # Halfway to the next value, so that rounding moves no row of a category into another bin.
    above = [mean[mean > level + 1e-6].min(initial=np.inf) for level in levels]
    edges = np.full(bins - 1, _ABOVE)
    inner = [(low + high) / 2 for low, high in zip(levels, above, strict=True) if high < np.inf]
    edges[: len(inner)] = inner
    return edges
