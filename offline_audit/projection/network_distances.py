"""Distances to the decision boundary of a differentiable classifier, refined by a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from offline_audit.errors import AuditInputError
from offline_audit.projection.boundary import BoundaryDistances, Refined, number
from offline_audit.projection.distances import named_table

__all__ = ["network_distances"]

# Rows per call of the classifier, to bound memory.
_CHUNK = 4_096
# Steps of the search, and bisections after it.
_STEPS = 40
_BISECTIONS = 30
# Multiples of a step at which the classifier is evaluated on the ray from the row.
_OVERSHOOTS = (1.0, 1.001, 1.02, 1.1, 1.3, 1.7)
# Step lengths of the line search.
_STEP_LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003)


def network_distances(
    logit: Callable[[Tensor], Tensor],
    features: ArrayLike,
    *,
    threshold: float = 0.5,
    feature_names: Sequence[str] = (),
) -> BoundaryDistances:
    """First-order distances |f|/‖∇f‖, with f the logit minus the logit of the threshold.

    `projection_test` refines the distances of the rows that change. The refinement minimises
    ‖x′ - x‖ subject to f(x′) = 0 by sequential linearisation with a line search, then bisects the
    ray from x to the nearest point with the other decision. A refined distance belongs to a point
    with the other decision, so it is never too small. If the search finds no such point, the row
    keeps its first-order distance and counts as not converged.

    Args:
        logit: Function from float32 rows `[n, d]` to logits `[n]` or `[n, 1]`, for example a torch
            module.
        features: Rows, `[n, d]`; see `feature_names` for data frames.
        threshold: Smallest probability for which the decision is 1.
        feature_names: Names of the features in the order of the logit's input, for the explanation.
            A data frame is ordered by them; without them, its own names and order are used.
    """
    x, names = named_table(features, feature_names)
    if not 0 < number("threshold", threshold) < 1:
        raise AuditInputError(f"threshold: must be between 0 and 1, not {threshold:g}")
    net = _Net(logit=logit, shift=math.log(threshold / (1 - threshold)))
    distances, slopes = np.empty(len(x)), np.empty(len(x))
    decided = np.empty(len(x), dtype=bool)
    for start in range(0, len(x), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        value, gradient = net.slope(_tensor(x[chunk]))
        distances[chunk] = value.abs().numpy()
        decided[chunk] = (value >= 0).numpy()
        slopes[chunk] = gradient.norm(dim=1).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        # With a zero gradient there is no first-order distance; it is set to infinity.
        distances = np.where(slopes > 0, distances / slopes, math.inf)

    def changes(rows: NDArray[np.intp]) -> NDArray[np.float64]:
        value, gradient = net.slope(_tensor(x[rows]))
        square = (gradient**2).sum(dim=1, keepdim=True).clamp_min(1e-30)
        return np.asarray(-(value[:, None] * gradient / square).numpy(), dtype=np.float64)

    return BoundaryDistances(
        distances=distances,
        method="first-order, refined where decisions change",
        changes=changes,
        feature_names=names,
        scales=x.std(axis=0),
        refine=lambda rows: _search(net, x[rows], distances[rows], changes(rows)),
        decided=decided,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Net:
    """A classifier whose decision is 1 if `value` is 0 or more.

    Attributes:
        logit: Function from rows to logits.
        shift: Logit of the threshold.
    """

    logit: Callable[[Tensor], Tensor]
    shift: float

    def value(self, x: Tensor) -> Tensor:
        """Logit minus that of the threshold, in double precision, `[n]`."""
        with torch.no_grad():
            return self.logit(x).reshape(len(x)).double() - self.shift

    def slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient in double precision; the caller's tensor is not modified."""
        with torch.enable_grad():
            inputs = x.detach().clone().requires_grad_(True)  # noqa: FBT003
            value = self.logit(inputs).reshape(len(x))
            (gradient,) = torch.autograd.grad(value.sum(), inputs)
        return value.detach().double() - self.shift, gradient.detach().double()


def _search(
    net: _Net,
    rows: NDArray[np.float64],
    first_order: NDArray[np.float64],
    first_order_changes: NDArray[np.float64],
) -> Refined:
    """The nearest point with the other decision, for each row."""
    parts = [
        _search_chunk(net, _tensor(rows[start : start + _CHUNK]))
        for start in range(0, len(rows), _CHUNK)
    ]
    distances = np.concatenate([p[0] for p in parts]) if parts else np.empty(0)
    changes = np.concatenate([p[1] for p in parts]) if parts else np.empty((0, rows.shape[1]))
    converged = np.isfinite(distances)
    return Refined(
        distances=np.where(converged, distances, first_order),
        changes=np.where(converged[:, None], changes, first_order_changes),
        converged=converged,
    )


def _search_chunk(net: _Net, origin: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distances `[n]`, infinite if the search failed, and feature changes `[n, d]`."""
    side = net.value(origin) >= 0
    point = origin.clone()
    best = torch.full((len(origin),), math.inf, dtype=torch.float64)
    beyond = torch.zeros_like(origin)
    for _ in range(_STEPS):
        value, gradient = net.slope(point)
        square = (gradient**2).sum(dim=1).clamp_min(1e-30)
        # The nearest point to the origin on the plane where f, linear at `point`, is 0.
        linear = value + (gradient * (origin - point).double()).sum(dim=1)
        target = (origin.double() - (linear / square)[:, None] * gradient).float()
        point = _line_search(net, origin, point, target, square.sqrt())
        best, beyond = _crossed(net, origin, point, side, best, beyond)
    crossed = torch.isfinite(best)
    low, high = torch.zeros(len(origin)), torch.ones(len(origin))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        same = (net.value(origin + middle[:, None] * beyond) >= 0) == side
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    change = (high[:, None] * beyond).double()
    distance = torch.where(crossed, change.norm(dim=1), torch.inf)
    return distance.numpy(), change.numpy()


def _line_search(
    net: _Net, origin: Tensor, point: Tensor, target: Tensor, steepness: Tensor
) -> Tensor:
    """The step with the smallest merit: the distance plus twice the first-order remainder."""

    def merit(x: Tensor) -> Tensor:
        distance: Tensor = (x - origin).double().norm(dim=1)
        return distance + 2 * net.value(x).abs() / steepness

    least, best = merit(point), point
    for length in _STEP_LENGTHS:
        candidate = point + length * (target - point)
        value = merit(candidate)
        better = value < least
        least = torch.where(better, value, least)
        best = torch.where(better[:, None], candidate, best)
    return best


def _crossed(
    net: _Net, origin: Tensor, point: Tensor, side: Tensor, best: Tensor, beyond: Tensor
) -> tuple[Tensor, Tensor]:
    """The nearest point with the other decision so far, on the ray to the visited point.

    Returns:
        Its distance `[n]`, and the feature changes that reach it `[n, d]`.
    """
    for overshoot in _OVERSHOOTS:
        change = overshoot * (point - origin)
        length = change.double().norm(dim=1)
        better = ((net.value(origin + change) >= 0) != side) & (length < best)
        best = torch.where(better, length, best)
        beyond = torch.where(better[:, None], change, beyond)
    return best, beyond


def _tensor(rows: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
