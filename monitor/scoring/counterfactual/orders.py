"""Choice of the causal orders that scores average over, and the repair of dependence in each.

Rows of one group, transported to another, are compared with the rows of that group: first without a
repair, by pairs of variables, then with it, by triples. An order in which the transported rows
remain far from the target, while they do not in another order, does not explain the difference
between the groups, and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.scoring.counterfactual.dependence import (
    RANKS,
    Moves,
    Rules,
    fit_repair,
    moves_by_order,
)
from monitor.scoring.counterfactual.lookup import GRID, OrderedLookup
from monitor.scoring.counterfactual.pairs import BinnedRows, Variables
from monitor.scoring.counterfactual.repair import Repair
from monitor.scoring.counterfactual.transport import TransportMaps
from monitor.scoring.counterfactual.triples import differing_triples

__all__ = ["repaired_orders"]

Rows = NDArray[np.float32]
# Rows per group that are transported with the repair, for the tests of the repair.
_TESTED = 5_000
# Misfit, as a multiple of the smallest one of all orders, for which an order is dropped.
_WORSE = 4.0

_Levels = tuple[Repair, ...]


def repaired_orders(
    maps: TransportMaps,
    members: Sequence[Rows],
    rules: Rules,
    rng: np.random.Generator,
) -> tuple[_Levels, ...]:
    """Repairs of maps of single features, for each causal order that scores average over.

    Args:
        maps: Maps of single features.
        members: Rows of each group, `[n, d]`.
        rules: What tells which of several variables moves.
        rng: Random generator.

    Returns:
        None if nothing needs repair.
    """
    variables = rules.variables
    moved = _transported(maps, members, rng)
    pairs = {
        groups: _differing_pairs(moved, members, groups, variables) for groups in _each(members)
    }
    orders = moves_by_order(pairs, rules)
    if orders:
        repairs = _fitted(maps, members, variables, orders, rng)
        some = [rows[:: -(-len(rows) // _TESTED)] for rows in members]
        repairs, moved_by_rank = _explaining(maps, repairs, some, variables, rng)
    else:
        repairs, some, moved_by_rank = {}, list(members), {0: moved}
    triples = {
        groups: sorted(
            set().union(
                *(_differing_triples(m, some, groups, variables) for m in moved_by_rank.values())
            )
        )
        for groups in _each(members)
    }
    # Orders that were dropped stay dropped.
    kept = tuple(repairs) if len(orders) > len(repairs) else RANKS
    every = {groups: [*pairs[groups], *triples[groups]] for groups in pairs}
    if any(triples.values()) and (orders := moves_by_order(every, rules, kept)):
        repairs = _fitted(maps, members, variables, orders, rng)
        some = [rows[:: -(-len(rows) // _TESTED)] for rows in members]
        repairs, _ = _explaining(maps, repairs, some, variables, rng)
    return tuple(repairs.values())


def _fitted(
    maps: TransportMaps,
    members: Sequence[Rows],
    variables: Variables,
    orders: Mapping[int, Moves],
    rng: np.random.Generator,
) -> dict[int, _Levels]:
    """Repairs by the rank of the order."""
    moving = (part for moves in orders.values() for part in moves.predictors.values())
    ranks = _own_ranks(maps, members, sorted(set().union(*moving)), rng)
    repairs = fit_repair(members, ranks, variables, list(orders.values()))
    return dict(zip(orders, repairs, strict=True))


def _own_ranks(
    maps: TransportMaps, members: Sequence[Rows], used: Sequence[int], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Rank in [0, 1] of each row's used ordered features in its own group, 0 of others `[n, o]`."""
    columns, moves = maps.ordered[used], torch.ones_like(maps.ordered_moves[:, :, used])
    lookup = OrderedLookup.of(
        columns, maps.continuous[used], maps.quantiles[:, used], moves, maps.width
    )
    position = lookup.position[columns]
    ranks = []
    for group, rows in enumerate(members):
        uniforms = torch.from_numpy(rng.random((1, len(rows), lookup.size), np.float32))
        sources = torch.full((1, len(rows)), group)
        values = torch.from_numpy(rows)[:, lookup.columns]
        own = np.zeros((len(rows), len(maps.ordered)))
        own[:, used] = lookup.ranks(values, sources, uniforms)[0][:, position] / (GRID - 1)
        ranks.append(own)
    return ranks


def _each(members: Sequence[Rows]) -> Iterable[tuple[int, int]]:
    return combinations(range(len(members)), 2)


def _transported(
    maps: TransportMaps, members: Sequence[Rows], rng: np.random.Generator, order: int = 0
) -> dict[tuple[int, int], Rows]:
    """Rows of each group, transported to every other group, by both groups, `[n, d]`."""
    transported = {}
    for source, rows in enumerate(members):
        # Random numbers instead of a hash of the row: duplicates must spread, too.
        uniforms = torch.from_numpy(rng.random((len(rows), maps.n_uniforms), np.float32))
        for target in range(len(members)):
            if target != source:
                moved = maps.apply(torch.from_numpy(rows), source, target, uniforms, order)
                transported[source, target] = moved.numpy()
    return transported


def _differing_pairs(
    transported: Mapping[tuple[int, int], Rows],
    members: Sequence[Rows],
    groups: tuple[int, int],
    variables: Variables,
) -> list[tuple[int, int]]:
    """Pairs of variables that differ after transport in either direction."""
    found: set[tuple[int, int]] = set()
    for s, t in (groups, groups[::-1]):
        binned, first = _binned(transported[s, t], members[t], variables)
        found.update(binned.differing(first))
    return sorted(found)


def _differing_triples(
    transported: Mapping[tuple[int, int], Rows],
    members: Sequence[Rows],
    groups: tuple[int, int],
    variables: Variables,
) -> set[tuple[int, int, int]]:
    """Triples of variables that differ after transport in both directions.

    A small misfit of the maps, which differs between directions, is no dependence of three.
    """
    there, back = (
        differing_triples(transported[s, t], members[t], variables)
        for s, t in (groups, groups[::-1])
    )
    return set(there) & set(back)


def _explaining(
    maps: TransportMaps,
    repairs: dict[int, _Levels],
    members: Sequence[Rows],
    variables: Variables,
    rng: np.random.Generator,
) -> tuple[dict[int, _Levels], dict[int, dict[tuple[int, int], Rows]]]:
    """The repairs that explain the difference between groups, and rows transported by them."""
    whole = replace(maps, repairs=tuple(repairs.values()))
    transported = {
        rank: _transported(whole, members, rng, order) for order, rank in enumerate(repairs)
    }
    if len(repairs) < 2:
        return repairs, transported
    misfits, noise = {}, 0.0
    for rank, moved in transported.items():
        misfits[rank] = 0.0
        for (_, target), rows in moved.items():
            binned, first = _binned(rows, members[target], variables)
            _, statistic, degrees = binned.statistics(first)
            misfits[rank] += float(np.maximum(statistic - degrees, 0.0).sum())
            # Half of a standard deviation of each χ² is more than its expected positive part.
            noise += float(np.sqrt(degrees / 2).sum()) / len(transported)
    bound = _WORSE * (min(misfits.values()) + noise)
    kept = [rank for rank, misfit in misfits.items() if misfit <= bound]
    return {rank: repairs[rank] for rank in kept}, {rank: transported[rank] for rank in kept}


def _binned(one: Rows, other: Rows, variables: Variables) -> tuple[BinnedRows, NDArray[np.bool_]]:
    """Two samples together, binned, and whether a row is in the first."""
    binned = BinnedRows.of(np.concatenate([one, other]), variables)
    return binned, np.arange(len(one) + len(other)) < len(one)
