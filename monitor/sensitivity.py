"""Scores of one prediction: how much would it change, had the person belonged to another group?

Everything here is eager torch on any differentiable module, and the oracle of what is compiled.
f is the classifier's logit, A the status model, G_{s→t} the transport map from group s to t; a
decision threshold τ shifts f by logit(τ) wherever a decision is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from monitor.bundle.manifest import BundleSpec, ProtectedAttribute
from monitor.counterfactual import DRAWS, TransportMaps, draws

__all__ = ["AttributeScores", "Scores", "Sensitivity"]

# How sharply a crossing of the threshold counts, in units of the classifier's own spread of logits:
# sharp enough to read as a probability, soft enough to rank near misses.
_SHARPNESS = 48.0
_TIE = 1e-5
# Of the spread of logits: less is what a row's logit differs by from batch to batch.
_NOTHING = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeScores:
    """What is known of n predictions as to one protected attribute.

    Attributes:
        posterior: P(group | x) by the status model, `[n, k]`.
        log_prediction_sensitivity: log Σⱼ |∂A/∂xⱼ|·|∂F/∂xⱼ| (Definition 3.2 of the paper), of the
            group for which it is largest, `[n]`; None where no gradient can be taken.
        contributions: Each feature's share of that sum, `[n, d]`; zeros where the sum is zero.
        flip_probability: Chance that the decision flips for another group, `[n]`.
        hard_flips: The same without softening: its mean over a stream is the flip share, `[n]`.
        expected_change: E|f(G(x)) − f(x)|, the larger over other groups, `[n]`.
        linear_change: Change of f along the status model's gradient to the mirror image of the
            person's status, `[n]`; None where no gradient can be taken or k > 2.
        attribute_flip: Largest |f(x with another group's value) − f(x)|, `[n]`; None where the
            classifier does not see the attribute.
    """

    posterior: Tensor
    log_prediction_sensitivity: Tensor | None
    contributions: Tensor | None
    flip_probability: Tensor
    hard_flips: Tensor
    expected_change: Tensor
    linear_change: Tensor | None
    attribute_flip: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What is known of n predictions.

    Attributes:
        logit: f(x), not shifted, `[n]`.
        decision: Class 1 or not, bool `[n]`.
        margin: |f(x) − logit(τ)|, `[n]`.
        boundary_distance: margin / ‖∇f‖, `[n]`; None where no gradient can be taken.
        attributes: The scores of each protected attribute by name.
        missing: Why some scores are None; empty when none is.
    """

    logit: Tensor
    decision: Tensor
    margin: Tensor
    boundary_distance: Tensor | None
    attributes: Mapping[str, AttributeScores]
    missing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Judges predictions of one classifier.

    Attributes:
        logit: The classifier, `[n, d]` to `[n]`.
        status: The status model, `[n, d]` to calibrated logits of all groups of all attributes side
            by side, `[n, Σk]`.
        maps: Transport maps of each attribute.
        spec: Features, attributes and decision.
        feature_variance: Of each column on the training rows, `[d]`.
        logit_spread: Standard deviation of f on the training rows.
    """

    logit: Callable[[Tensor], Tensor]
    status: Callable[[Tensor], Tensor]
    maps: Mapping[str, TransportMaps]
    spec: BundleSpec
    feature_variance: Tensor
    logit_spread: float

    def scores(self, features: Tensor) -> Scores:
        """Judge n predictions, `[n, d]`; the tensor is left as it is."""
        tracked = features.detach().clone().requires_grad_()
        f, gradient, missing = _with_gradient(self.logit, tracked)
        shifted = self._shifted(f)
        distance = None
        if gradient is not None:
            distance = shifted.abs() / gradient.norm(dim=1).clamp_min(1e-30)
        judged = {
            attribute.name: self._judge(tracked, attribute, f, shifted, gradient)
            for attribute in self.spec.protected_attributes
        }
        if not missing and any(j.log_prediction_sensitivity is None for j in judged.values()):
            missing = (
                "the status model's output does not depend on its input by differentiable steps"
            )
        return Scores(
            logit=f,
            decision=shifted >= 0,
            margin=shifted.abs(),
            boundary_distance=distance,
            attributes=judged,
            missing=missing,
        )

    def _shifted(self, logit: Tensor) -> Tensor:
        """The shifted f − logit(τ); a score equal to the threshold survives the logarithms."""
        threshold = self.spec.decision.threshold
        shifted = logit - (math.log(threshold) - math.log1p(-threshold))
        return torch.where(shifted.abs() < _TIE, 0.0, shifted)

    def _judge(
        self,
        tracked: Tensor,
        attribute: ProtectedAttribute,
        f: Tensor,
        shifted: Tensor,
        gradient: Tensor | None,
    ) -> AttributeScores:
        features, heads = tracked.detach(), self.spec.heads[attribute.name]
        with torch.no_grad():
            posterior = self.status(features)[:, heads].softmax(1)
            flip, hard, change = self._counterfactuals(features, attribute, posterior, shifted)
            attribute_flip = self._attribute_flip(features, attribute, f)
        log_ps, contributions, linear = None, None, None
        if gradient is not None:
            log_ps, contributions, linear = self._gradient_scores(tracked, heads, f, gradient)
        return AttributeScores(
            posterior=posterior,
            log_prediction_sensitivity=log_ps,
            contributions=contributions,
            flip_probability=flip,
            hard_flips=hard,
            expected_change=change,
            linear_change=linear,
            attribute_flip=attribute_flip,
        )

    def _counterfactuals(
        self, features: Tensor, attribute: ProtectedAttribute, posterior: Tensor, shifted: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """flip(x) = Σ_s P(s|x) · mean over draws of max_t h(f(x), f(G_{s→t}(x))), and its kin.

        All targets of a draw share their uniforms, as one person's counterfactuals share her noise,
        so the maximum within a draw is the event that at least one other group flips.
        """
        maps, n = self.maps[attribute.name], len(features)
        sharpness = _SHARPNESS / max(self.logit_spread, 1e-12)
        side = torch.where(shifted >= 0, 1.0, -1.0)
        totals = torch.zeros(3, n, dtype=features.dtype)
        samples = draws(features, maps.uniforms)
        for source in range(maps.groups):
            for uniforms in samples:
                others = [t for t in range(maps.groups) if t != source]
                carried = torch.cat([maps.apply(features, source, t, uniforms) for t in others])
                there = self._shifted(self.logit(carried)).reshape(len(others), n)
                # Whom the map does not move, or by nothing but rounding, does not flip, however
                # near the threshold.
                moved = (carried.reshape(len(others), n, -1) != features).any(2)
                moved &= (there - shifted).abs() > _NOTHING * self.logit_spread
                hard = (((there >= 0) != (shifted >= 0)) & moved).any(0)
                soft = (torch.sigmoid(-sharpness * side * there) * moved).amax(0)
                change = ((there - shifted).abs() * moved).amax(0)
                totals += posterior[:, source] * torch.stack([soft, hard.to(soft), change]) / DRAWS
        flip, hard_flips, expected_change = totals
        return flip, hard_flips, expected_change

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
            f, uniforms = self.logit(features), draws(features, maps.uniforms)[0]
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

    def _gradient_scores(
        self, tracked: Tensor, heads: slice, f: Tensor, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """PS in log space: log σ′(a) + log σ′(f) + log Σⱼ |g_A,j||g_F,j|, and Δf along g_A."""
        logits = self.status(tracked)[:, heads]
        if not logits.requires_grad:
            return None, None, None
        groups = logits.shape[1]
        best: Tensor | None = None
        contributions = torch.zeros_like(gradient)
        linear = None
        for group in range(1 if groups == 2 else groups):
            others = [g for g in range(groups) if g != group]
            # The logit of "is in this group": exact for a softmax, so σ′ factors out.
            a = logits[:, group] - logits[:, others].logsumexp(1)
            (slope,) = torch.autograd.grad(a.sum(), tracked, retain_graph=True)
            terms = slope.abs() * gradient.abs()
            total = terms.sum(1)
            score = _log_sigmoid_slope(a.detach()) + _log_sigmoid_slope(f) + total.log()
            shares = torch.where(total[:, None] > 0, terms / total.clamp_min(1e-45)[:, None], 0.0)
            better = torch.ones_like(score, dtype=torch.bool) if best is None else score > best
            best = score if best is None else torch.where(better, score, best)
            contributions = torch.where(better[:, None], shares, contributions)
            if groups == 2:
                weighted = slope * self.feature_variance
                along = (weighted * slope).sum(1).clamp_min(1e-30)
                linear = (-2 * a.detach() * (weighted * gradient).sum(1) / along).to(f.dtype)
        return best, contributions, linear

    def _attribute_flip(
        self, features: Tensor, attribute: ProtectedAttribute, f: Tensor
    ) -> Tensor | None:
        """Largest change of f when only the attribute's own columns change."""
        if attribute.feature is None:
            return None
        names = [feature.name for feature in self.spec.features]
        members = {group.name: group.features for group in self.spec.one_hot_groups}
        one_hot = attribute.feature in members
        columns = [names.index(n) for n in members.get(attribute.feature, (attribute.feature,))]
        largest = torch.zeros_like(f)
        for group in range(len(attribute.groups)):
            changed = features.clone()
            # A dropped category comes last and has no column of its own.
            value = torch.arange(len(columns)) == group if one_hot else torch.tensor([group])
            changed[:, columns] = value.to(features.dtype)
            largest = torch.maximum(largest, (self.logit(changed) - f).abs())
        return largest


def _with_gradient(
    logit: Callable[[Tensor], Tensor], tracked: Tensor
) -> tuple[Tensor, Tensor | None, str]:
    """The logit and its gradient, or the logit alone and the reason why there is no gradient."""
    f = logit(tracked)
    if not f.requires_grad:
        return (
            f,
            None,
            "the classifier's output does not depend on its input by differentiable steps",
        )
    try:
        (gradient,) = torch.autograd.grad(f.sum(), tracked)
    except RuntimeError as error:
        return f.detach(), None, f"no gradient of the classifier: {str(error).splitlines()[0]}"
    return f.detach(), gradient, ""


def _log_sigmoid_slope(value: Tensor) -> Tensor:
    """Stable log σ′(v) = −softplus(v) − softplus(−v), which never underflows."""
    return -softplus(value) - softplus(-value)
