"""Number of draws of stochastic transport maps: the fewest that score about as well as the most.

Flips are simulated on held-out rows of known groups: each row is transported from its own group
with random numbers of its own, and its decision flips or not. The flip probability, which knows
neither the group nor these numbers, ranks the rows; its AUC is compared between numbers of draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.scoring.counterfactual.draws import fewest_draws
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["DrawsChoice", "choose_draws", "with_chosen_draws"]

# Numbers of draws that are compared with the fewest; the last is the reference.
_CANDIDATES = (4, 8, 16)
# Loss of AUC against the reference that is accepted, after one standard error is subtracted.
_TOLERANCE = 0.002
# Bound on the cost: counterfactuals per row, relative to the fewest draws.
_MOST_COST = 3.0
_MOST_ROWS = 4_000
# Independent parts of the rows, whose losses give a standard error; flips are simulated repeatedly
# in each.
_PARTS, _SIMULATIONS = 8, 4
# Flips, and rows without a flip, that a part needs for an AUC.
_LEAST_IN_PART = 5

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawsChoice:
    """The number of draws of one attribute's maps, and what it was chosen by.

    Attributes:
        draws: The chosen number.
        cost: Counterfactuals per row by number of draws.
        loss: Loss of AUC against the most draws, by number of draws; empty if all draws are equal
            or there are too few flips.
        standard_error: Standard error of each loss.
        rows: Number of rows on which flips were simulated.
    """

    draws: int
    cost: dict[int, int]
    loss: dict[int, float]
    standard_error: dict[int, float]
    rows: int


def with_chosen_draws(
    sensitivity: Sensitivity,
    features: NDArray[np.float32],
    groups: Mapping[str, NDArray[np.int8]],
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Sensitivity:
    """The joint pass with the chosen number of draws for the maps of every attribute.

    Args:
        sensitivity: Joint pass with the maps.
        features: Rows that the status model was not trained on, `[n, d]`.
        groups: Group of each row, `[n]`, by attribute; negative if it is not known.
        seed: Seed of the random generator.
        progress: Called with the completed and the total number of attributes.
    """
    maps = dict(sensitivity.maps)
    for number, attribute in enumerate(maps, start=1):
        choice = choose_draws(sensitivity, features, groups[attribute], attribute, seed=seed)
        maps[attribute] = replace(maps[attribute], draws=choice.draws)
        if progress is not None:
            progress(number, len(maps))
    return replace(sensitivity, maps=maps)


def choose_draws(
    sensitivity: Sensitivity,
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    attribute: str,
    *,
    seed: int,
) -> DrawsChoice:
    """Choose the number of draws of one attribute's maps.

    The choice is the fewest draws whose loss of AUC against 16 draws, less one standard error, is
    at most 0.002, among those with at most three times the counterfactuals of the fewest. So a
    world without a gain, or with too few rows to show one, keeps the lowest cost. Deterministic
    maps need one draw.

    Args:
        sensitivity: Joint pass with the maps.
        features: Rows that the status model was not trained on, `[n, d]`.
        groups: Group of each row, `[n]`; rows with a negative one are ignored.
        attribute: Name of the protected attribute.
        seed: Seed of the random generator.
    """
    maps = sensitivity.maps[attribute]
    fewest = 1 if maps.deterministic else fewest_draws(maps.orders)
    candidates = (fewest,) if maps.deterministic else (fewest, *_CANDIDATES)
    cost = {draws: replace(maps, draws=draws).counterfactuals for draws in candidates}
    if maps.deterministic:
        return DrawsChoice(draws=1, cost=cost, loss={}, standard_error={}, rows=0)
    rng = np.random.default_rng([seed, len(features)])
    rows = rng.permutation(np.flatnonzero(groups >= 0))[:_MOST_ROWS]
    losses = _losses(sensitivity, attribute, features[rows], groups[rows], candidates, rng)
    if len(losses) < 2:
        return DrawsChoice(draws=fewest, cost=cost, loss={}, standard_error={}, rows=len(rows))
    mean = losses.mean(0)
    error = losses.std(0, ddof=1) / math.sqrt(len(losses))
    loss = dict(zip(candidates, mean.tolist(), strict=True))
    noise = dict(zip(candidates, error.tolist(), strict=True))
    affordable = [d for d in candidates if cost[d] <= _MOST_COST * cost[fewest]]
    enough = [d for d in affordable if loss[d] - noise[d] <= _TOLERANCE]
    return DrawsChoice(
        draws=min(enough, default=max(affordable)),
        cost=cost,
        loss=loss,
        standard_error=noise,
        rows=len(rows),
    )


def _losses(
    sensitivity: Sensitivity,
    attribute: str,
    features: NDArray[np.float32],
    groups: NDArray[np.int8],
    candidates: tuple[int, ...],
    rng: np.random.Generator,
) -> _Floats:
    """Loss of AUC against the last candidate in each part that has enough flips, `[p, c]`."""
    x, own = torch.from_numpy(features), torch.from_numpy(groups.astype(np.int64))
    maps = sensitivity.maps[attribute]
    scores = np.stack(
        [sensitivity.flip_probability(x, attribute, draws).double().numpy() for draws in candidates]
    )
    losses: list[list[_Floats]] = [[] for _ in range(_PARTS)]
    for number in range(_SIMULATIONS):
        uniforms = torch.from_numpy(rng.random((len(x), maps.n_uniforms), np.float32))
        # One of the causal orders is the true one in each simulation.
        order = number % maps.orders
        flips = sensitivity.simulated_flips(x, attribute, own, uniforms)[order].numpy()
        for part, rows in zip(losses, np.array_split(np.arange(len(x)), _PARTS), strict=True):
            if min(flips[rows].sum(), (~flips[rows]).sum()) >= _LEAST_IN_PART:
                aucs = _auc(scores[:, rows], flips[rows])
                part.append(aucs[-1] - aucs)
    return np.array([np.mean(part, 0) for part in losses if part])


def _auc(scores: _Floats, flips: NDArray[np.bool_]) -> _Floats:
    """AUC of scores `[c, n]` for flips `[n]`, by ranks (Mann–Whitney), `[c]`."""
    positive = int(flips.sum())
    ranks = stats.rankdata(scores, axis=1)[:, flips].sum(1)
    auc: _Floats = (ranks - positive * (positive + 1) / 2) / (positive * (len(flips) - positive))
    return auc
