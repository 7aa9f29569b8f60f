"""Distances to the decision boundary of a differentiable classifier: first-order, then searched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from offline_audit.errors import AuditInputError
from offline_audit.projection.boundary import BoundaryDistances, Refined, names_of, number
from offline_audit.projection.distances import table

__all__ = ["network_distances"]

_CHUNK = 4_096
_STEPS = 40
_HALVINGS = 30
# How far beyond a point the ray from the row is followed to find the other side.
_OVERSHOOTS = (1.0, 1.001, 1.02, 1.1, 1.3, 1.7)
_SHORTER = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003)


def network_distances(
    logit: Callable[[Tensor], Tensor],
    features: ArrayLike,
    *,
    threshold: float = 0.5,
    feature_names: Sequence[str] = (),
) -> BoundaryDistances:
    """|f|/‖∇f‖, with f the logit less that of the threshold; a search for the rows that turn.

    The search minimises ‖x′ - x‖ subject to f(x′) = 0 by linearising f where it stands and halving
    steps that do not help, then halves the ray from x to the best point on the other side. A
    distance that it returns is that of a point whose decision is the other one, so it is never
    too small; where it finds none the first-order distance stays and the row counts as not
    converged.

    Args:
        logit: From float32 rows `[n, d]` to logits `[n]` or `[n, 1]`; a torch module for example.
        features: `[n, d]`.
        threshold: On the probability; decision 1 where it is reached.
        feature_names: For the explanation.
    """
    x = table("features", features)
    if not 0 < number("threshold", threshold) < 1:
        raise AuditInputError(f"threshold: {threshold:g} is not between 0 and 1")
    net = _Net(logit=logit, shift=math.log(threshold / (1 - threshold)))
    distances, slopes = np.empty(len(x)), np.empty(len(x))
    decided = np.empty(len(x), dtype=bool)
    for start in range(0, len(x), _CHUNK):
        here = slice(start, start + _CHUNK)
        value, gradient = net.slope(_tensor(x[here]))
        distances[here] = value.abs().numpy()
        decided[here] = (value >= 0).numpy()
        slopes[here] = gradient.norm(dim=1).numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where the gradient vanishes the boundary is nowhere near, as far as this can tell.
        distances = np.where(slopes > 0, distances / slopes, math.inf)

    def changes(rows: NDArray[np.intp]) -> NDArray[np.float64]:
        value, gradient = net.slope(_tensor(x[rows]))
        square = (gradient**2).sum(dim=1, keepdim=True).clamp_min(1e-30)
        return np.asarray(-(value[:, None] * gradient / square).numpy(), dtype=np.float64)

    return BoundaryDistances(
        distances=distances,
        method="first-order, refined where decisions turn",
        changes=changes,
        feature_names=names_of(feature_names, x.shape[1]),
        scales=x.std(axis=0),
        refine=lambda rows: _search(net, x[rows], distances[rows], changes(rows)),
        decided=decided,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Net:
    """A classifier whose decision is 1 where `value` is 0 or more."""

    logit: Callable[[Tensor], Tensor]
    shift: float

    def value(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.logit(x).reshape(len(x)).double() - self.shift

    def slope(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient, in double precision; the caller's tensors stay as they are."""
        with torch.enable_grad():
            inputs = x.detach().clone().requires_grad_(True)  # noqa: FBT003
            value = self.logit(inputs).reshape(len(x))
            (gradient,) = torch.autograd.grad(value.sum(), inputs)
        return value.detach().double() - self.shift, gradient.detach().double()


def _search(
    net: _Net,
    rows: NDArray[np.float64],
    first: NDArray[np.float64],
    first_changes: NDArray[np.float64],
) -> Refined:
    """The nearest point found on the other side of each row."""
    parts = [
        _search_some(net, _tensor(rows[start : start + _CHUNK]))
        for start in range(0, len(rows), _CHUNK)
    ]
    distances = np.concatenate([p[0] for p in parts]) if parts else np.empty(0)
    changes = np.concatenate([p[1] for p in parts]) if parts else np.empty((0, rows.shape[1]))
    converged = np.isfinite(distances)
    return Refined(
        distances=np.where(converged, distances, first),
        changes=np.where(converged[:, None], changes, first_changes),
        converged=converged,
    )


def _search_some(net: _Net, origin: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    side = net.value(origin) >= 0
    point = origin.clone()
    best = torch.full((len(origin),), math.inf, dtype=torch.float64)
    beyond = torch.zeros_like(origin)
    for _ in range(_STEPS):
        value, gradient = net.slope(point)
        square = (gradient**2).sum(dim=1).clamp_min(1e-30)
        # The nearest point to the origin on the plane where f, linear at `point`, is 0.
        ahead = value + (gradient * (origin - point).double()).sum(dim=1)
        target = (origin.double() - (ahead / square)[:, None] * gradient).float()
        point = _line_search(net, origin, point, target, square.sqrt())
        best, beyond = _crossed(net, origin, point, side, best, beyond)
    found = torch.isfinite(best)
    low, high = torch.zeros(len(origin)), torch.ones(len(origin))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        same = (net.value(origin + middle[:, None] * beyond) >= 0) == side
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    change = (high[:, None] * beyond).double()
    distance = torch.where(found, change.norm(dim=1), torch.inf)
    return distance.numpy(), change.numpy()


def _line_search(
    net: _Net, origin: Tensor, point: Tensor, target: Tensor, steepness: Tensor
) -> Tensor:
    """The step that most lowers the distance plus what is left to the boundary."""

    def merit(x: Tensor) -> Tensor:
        far: Tensor = (x - origin).double().norm(dim=1)
        return far + 2 * net.value(x).abs() / steepness

    least, chosen = merit(point), point
    for share in _SHORTER:
        tried = point + share * (target - point)
        found = merit(tried)
        better = found < least
        least = torch.where(better, found, least)
        chosen = torch.where(better[:, None], tried, chosen)
    return chosen


def _crossed(
    net: _Net, origin: Tensor, point: Tensor, side: Tensor, best: Tensor, beyond: Tensor
) -> tuple[Tensor, Tensor]:
    """The nearest point on the other side so far, along the rays to the points visited."""
    for overshoot in _OVERSHOOTS:
        change = overshoot * (point - origin)
        length = change.double().norm(dim=1)
        better = ((net.value(origin + change) >= 0) != side) & (length < best)
        best = torch.where(better, length, best)
        beyond = torch.where(better[:, None], change, beyond)
    return best, beyond


def _tensor(rows: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))
