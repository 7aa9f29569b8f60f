"""Scores of one prediction: how much would it change, had the person belonged to another group?

`Sensitivity.joint` is torch on any differentiable module, in steps that can be traced: it runs as
it stands, and `scoring.kernel` compiles the very same function. f is the classifier's logit, A the
status model, G_{s→t} the transport map from group s to t; a decision threshold τ shifts f by
logit(τ) wherever a decision is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import softplus

from monitor.bundle.manifest import BundleSpec, ProtectedAttribute
from monitor.errors import first_line
from monitor.scoring.counterfactual import (
    LayerWeight,
    TransportMaps,
    row_uniforms,
    shifted_uniforms,
)
from monitor.scoring.first_layer import FirstLayer
from monitor.scoring.scores import ScoreColumns, Scores

__all__ = ["Joint", "Sensitivity", "against_others", "gradient_of"]

# What judges n predictions, `[n, d]` to `[n, w]` and `[n, a, d]`; see `Sensitivity.joint`.
Joint = Callable[[Tensor], tuple[Tensor, Tensor]]

# How sharply a crossing of the threshold counts, in units of the classifier's own spread of logits:
# sharp enough to read as a probability, soft enough to rank near misses.
_SHARPNESS = 48.0
_TIE = 1e-5
_MOST_COUNTERFACTUALS = 16_384
# Draws of the maps for the group that a person most likely belongs to; one for each other group.
_DRAWS = 3
# Of the spread of logits: less is what a row's logit differs by from batch to batch.
_NOTHING = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Judges predictions of one classifier.

    Attributes:
        logit: The classifier, `[n, d]` to `[n]`.
        status: The status model, `[n, d]` to calibrated logits of all groups of all attributes side
            by side, `[n, Σk]`.
        maps: Transport maps of each attribute.
        spec: Features, attributes and decision.
        logit_spread: Standard deviation of f on the training rows.
        first_layer: The classifier cut after its first linear layer, where it has one: what its
            counterfactuals share is then computed once.
        missing: Why no gradient can be taken of the classifier or of the status model; empty where
            both have one.
    """

    logit: Callable[[Tensor], Tensor]
    status: Callable[[Tensor], Tensor]
    maps: Mapping[str, TransportMaps]
    spec: BundleSpec
    logit_spread: float
    first_layer: FirstLayer | None = None
    missing: str = field(init=False)
    _slope_of_logit: bool = field(init=False)
    _most_groups: int = field(init=False)
    _layer_weights: Mapping[str, LayerWeight] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        trial = torch.zeros(2, self.spec.width)
        missing = _why_no_gradient(self.logit, trial, "the classifier")
        object.__setattr__(self, "_slope_of_logit", not missing)
        missing = missing or _why_no_gradient(self.status, trial, "the status model")
        object.__setattr__(self, "missing", missing)
        most = max(maps.groups for maps in self.maps.values())
        object.__setattr__(self, "_most_groups", most)
        weights = {}
        if self.first_layer is not None:
            weights = {n: m.layer_weight(self.first_layer.weight) for n, m in self.maps.items()}
        object.__setattr__(self, "_layer_weights", weights)

    @property
    def rows_at_once(self) -> int:
        """How many predictions to judge at once: each has counterfactuals to be held in memory."""
        most = self._most_groups
        return max(16, _MOST_COUNTERFACTUALS // ((most + _DRAWS - 1) * (most - 1)))

    @property
    def columns(self) -> ScoreColumns:
        """Where each score stands in what `joint` returns first."""
        return ScoreColumns.of({a.name: len(a.groups) for a in self.spec.protected_attributes})

    def scores(self, features: Tensor) -> Scores:
        """Judge n predictions, `[n, d]`; the tensor is left as it is."""
        return self.unpacked(*self.in_parts(self.joint, features))

    def in_parts(self, joint: Joint, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the joint pass, uncompiled or compiled, returns of n predictions, some at once."""
        if len(features) <= self.rows_at_once:
            return joint(features)
        parts = [joint(rows) for rows in features.split(self.rows_at_once)]
        packed, contributions = map(torch.cat, zip(*parts, strict=True))
        return packed, contributions

    def joint(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Everything about n predictions in one pass, as two tensors.

        Returns:
            `[n, w]`: logit, signed margin, boundary distance; for each attribute log prediction
            sensitivity, flip probability, hard flips, expected change, posterior. And the
            contributions, `[n, a, d]`. Zeros stand for what cannot be computed.
        """
        # Whatever the caller has switched off: gradients are what this is about.
        with torch.inference_mode(mode=False), torch.enable_grad():
            return self._joint(features.detach().clone().requires_grad_())

    def _joint(self, tracked: Tensor) -> tuple[Tensor, Tensor]:
        f, hidden = self._logit_and_hidden(tracked)
        gradient = gradient_of(f, tracked) if self._slope_of_logit else torch.zeros_like(tracked)
        f = f.detach()
        shifted = self.shifted(f)
        logits = self.status(tracked)
        # Of what is not a number nothing is known but the classifier's own answer.
        known = torch.isfinite(tracked.detach()).all(1)
        norm = gradient.square().sum(1).sqrt().clamp_min(1e-30)
        columns, contributions = [f, shifted, shifted.abs() / norm], []
        for attribute in self.spec.protected_attributes:
            heads = logits[:, self.spec.heads[attribute.name]]
            log_ps, shares = self._gradient_scores(tracked, known, heads, f, gradient)
            posterior = heads.detach().softmax(1)
            found = self._counterfactuals(tracked.detach(), hidden, attribute, posterior, shifted)
            columns += [log_ps, *found, *posterior.unbind(1)]
            contributions.append(shares)
        packed = torch.stack([column.to(f.dtype) for column in columns], 1)
        packed = torch.cat([packed[:, :2], torch.where(known[:, None], packed[:, 2:], math.nan)], 1)
        return packed, torch.stack(contributions, 1)

    def unpacked(self, packed: Tensor, contributions: Tensor) -> Scores:
        """Result of `joint` by name; columns are views."""
        return self.columns.unpacked(
            packed,
            contributions,
            has_gradient=not self.missing,
            has_distance=self._slope_of_logit,
            missing=self.missing,
        )

    def _logit_and_hidden(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logit `[n]`, and on the way the first layer's output where the classifier is cut."""
        if self.first_layer is None:
            # A copy, since a model may write to what it is given; one that was cut does not.
            return self.logit(features.clone()), None
        hidden = self.first_layer.head(features)
        return self.first_layer.tail(hidden), hidden

    def shifted(self, logit: Tensor) -> Tensor:
        """The shifted f − logit(τ); a score equal to the threshold survives the logarithms."""
        threshold = self.spec.decision.threshold
        shifted = logit - (math.log(threshold) - math.log1p(-threshold))
        return torch.where(shifted.abs() < _TIE, 0.0, shifted)

    def _counterfactuals(
        self,
        features: Tensor,
        hidden: Tensor | None,
        attribute: ProtectedAttribute,
        posterior: Tensor,
        shifted: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """flip(x) = Σ_s P(s|x) · mean over draws of max_t h(f(x), f(G_{s→t}(x))), and its kin.

        Every source s has a draw of its own; the likeliest one, on which most depends, has more.
        All targets t of a draw share their uniforms, as one person's counterfactuals share her
        noise, so the maximum within a draw is the event that at least one other group flips.
        """
        maps, (n, width) = self.maps[attribute.name], features.shape
        sources, uniforms, weights = _draws(features, posterior, maps.n_uniforms)
        # The k − 1 other groups of each draw, `[e, k − 1, n]`.
        step = torch.arange(1, maps.groups)[:, None]
        targets = (sources[:, None] + step) % maps.groups
        pairs = targets.shape[0] * targets.shape[1]
        carried = maps.transport(
            features,
            sources[:, None].expand_as(targets).reshape(pairs, n),
            targets.reshape(pairs, n),
            uniforms.repeat_interleave(maps.groups - 1, 0),
        )
        with torch.no_grad():
            if self.first_layer is not None and hidden is not None:
                near = hidden.detach() + carried.layer_change(self._layer_weights[attribute.name])
                there = self.first_layer.tail(near.reshape(pairs * n, near.shape[2]))
            else:
                there = self.logit(carried.features.reshape(pairs * n, width))
        there = self.shifted(there).reshape(targets.shape)
        # Whom the map does not move, or by nothing but rounding, does not flip, however near the
        # threshold.
        change = (there - shifted).abs()
        moved = carried.moved.reshape(targets.shape) & (change > _NOTHING * self.logit_spread)
        sharpness = _SHARPNESS / max(self.logit_spread, 1e-12)
        side = torch.where(shifted >= 0, sharpness, -sharpness)
        soft = (torch.sigmoid(-side * there) * moved).amax(1)
        hard = (((there >= 0) != (shifted >= 0)) & moved).any(1)
        flip, hard_flips, expected = (
            (weights * value).sum(0) for value in (soft, hard, (change * moved).amax(1))
        )
        return flip, hard_flips, expected

    def _gradient_scores(
        self, tracked: Tensor, known: Tensor, logits: Tensor, f: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """PS in log space, log σ′(a) + log σ′(f) + log Σⱼ |g_A,j||g_F,j|, and shares of the sum."""
        if self.missing:
            return torch.zeros_like(f), torch.zeros_like(gradient)
        groups = logits.shape[1]
        best: Tensor | None = None
        contributions = torch.zeros_like(gradient)
        # Of two groups either has the same score.
        for group in range(1 if groups == 2 else groups):
            a = against_others(logits, group)
            terms = gradient_of(a, tracked).abs() * gradient.abs()
            total = torch.where(known, terms.sum(1), math.nan)
            score = _log_sigmoid_slope(a.detach()) + _log_sigmoid_slope(f) + total.log()
            shares = terms / torch.where(total == 0, 1.0, total)[:, None]
            if best is None:
                best, contributions = score, shares
            else:
                better = score > best
                best = torch.where(better, score, best)
                contributions = torch.where(better[:, None], shares, contributions)
        assert best is not None
        return best, contributions

    def carriers(self, features: Tensor, attribute: str) -> dict[str, float]:
        """Through which features a group reaches the decision, one-hot groups as one.

        Each feature is moved to the other group's value alone; its share is its part of the sum of
        Σ_s P(s|x) · max_t |f(x with that feature moved) − f(x)| over features and people.
        """
        maps, heads = self.maps[attribute], self.spec.heads[attribute]
        names = [feature.name for feature in self.spec.features]
        single = [f.name for f in self.spec.features if f.kind != "onehot"]
        units = {name: [names.index(name)] for name in single}
        units |= {g.name: [names.index(n) for n in g.features] for g in self.spec.one_hot_groups}
        with torch.no_grad():
            posterior = self.status(features)[:, heads].softmax(1)
            f, uniforms = self.logit(features), row_uniforms(features, maps.n_uniforms)
            totals = dict.fromkeys(units, 0.0)
            for source in range(maps.groups):
                others = [t for t in range(maps.groups) if t != source]
                carried = [maps.apply(features, source, t, uniforms) for t in others]
                for name, columns in units.items():
                    change = torch.zeros_like(f)
                    for moved in carried:
                        alone = features.clone()
                        alone[:, columns] = moved[:, columns]
                        change = torch.maximum(change, (self.logit(alone) - f).abs())
                    totals[name] += float((posterior[:, source] * change).sum())
        whole = sum(totals.values())
        return {name: total / whole if whole > 0 else 0.0 for name, total in totals.items()}


def _draws(features: Tensor, posterior: Tensor, uniforms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources `[e, n]`, their uniforms `[e, n, u]` and their weights `[e, n]`, which add to 1."""
    groups = posterior.shape[1]
    number = torch.arange(groups + _DRAWS - 1)[:, None]
    likeliest = posterior.argmax(1)
    sources = torch.where(number < groups, number, likeliest)
    first = row_uniforms(features, uniforms)
    # Arithmetic instead of stacking, for which each part would be compiled on its own.
    shifts = (number - (groups - 1)).clamp_min(0)[:, :, None] / _DRAWS
    shared = torch.where(sources == likeliest, 1 / _DRAWS, 1.0)
    weights = posterior.T.gather(0, sources) * shared
    return sources, shifted_uniforms(first, shifts), weights


def gradient_of(value: Tensor, tracked: Tensor) -> Tensor:
    """Of one number a row by that row's features, `[n, d]`."""
    return torch.autograd.grad(value.sum(), tracked, retain_graph=True)[0]


def _why_no_gradient(model: Callable[[Tensor], Tensor], trial: Tensor, name: str) -> str:
    """Why no gradient of a model can be taken, tried on made-up rows; empty where it can."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        tracked = trial.clone().requires_grad_()
        output = model(tracked.clone())
        if not output.requires_grad:
            return f"{name}'s output does not depend on its input by differentiable steps"
        try:
            torch.autograd.grad(output.sum(), tracked)
        except RuntimeError as error:
            return f"no gradient of {name}: {first_line(error)}"
    return ""


def against_others(logits: Tensor, group: int) -> Tensor:
    """The logit of "is in this group": exact for a softmax, so σ′ factors out."""
    others = [g for g in range(logits.shape[1]) if g != group]
    return logits[:, group] - logits[:, others].logsumexp(1)


def _log_sigmoid_slope(value: Tensor) -> Tensor:
    """Stable log σ′(v) = −softplus(v) − softplus(−v), which never underflows."""
    return -softplus(value) - softplus(-value)
