"""The joint pass: how much would a prediction change, had the person belonged to another group?

`Sensitivity.joint` consists of traceable torch operations on any differentiable module. It runs
uncompiled, and `monitor.scoring.compiling` compiles the same function. In the formulas f is the
classifier's logit, A the status model, G_{s→t} the transport map from group s to t, and τ the
decision threshold; decisions are made on the shifted logit f − logit(τ).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import softplus

from monitor.errors import first_line
from monitor.scoring.counterfactual import LayerWeight, TransportMaps, row_uniforms
from monitor.scoring.counterfactual.draws import spread_draws
from monitor.scoring.scores import FIRST_OF_REASON, Reason, ScoreColumns, Scores

if TYPE_CHECKING:
    from monitor.bundle.manifest import BundleSpec
    from monitor.scoring.counterfactual.transport import Transported
    from monitor.scoring.first_layer import FirstLayer
    from monitor.scoring.input_check import InputCheck

__all__ = ["Joint", "Sensitivity", "against_others", "gradient_of"]

# A joint pass, compiled or not: `[n, d]` to `[n, w]` and `[n, a, d]`; see `Sensitivity.joint`.
Joint = Callable[[Tensor], tuple[Tensor, Tensor]]

# Slope of the sigmoid that smooths a flip, in units of the standard deviation of the logits: steep
# enough to read the result as a probability, flat enough to rank near misses.
_SHARPNESS = 48.0
# A margin below this is a tie; converting probabilities to logits has errors of this size.
_TIE = 1e-5
_MAX_COUNTERFACTUALS = 16_384
# Rounding error of a logit between batches, relative to the standard deviation of the logits.
_ROUNDING = 1e-4


@dataclass(eq=False, kw_only=True)
class Sensitivity:
    """Computes the scores of predictions of one classifier.

    Attributes:
        logit: The classifier, `[n, d]` to `[n]`.
        status: The status model, `[n, d]` to the calibrated logits of all groups of all attributes,
            concatenated, `[n, Σk]`.
        maps: Transport maps by attribute.
        spec: Features, protected attributes and decision threshold.
        logit_spread: Standard deviation of f on the training rows, without wild rows.
        first_layer: The classifier split after its first linear layer, if it begins with one; the
            layer's output is then computed once for a row and all its counterfactuals.
        inputs: What training rows look like; None to accept all rows of finite numbers.
        missing: Reason why the classifier or the status model has no gradient; empty if both have
            one.
        width: Number of features, d.
        columns: Columns of the first tensor of `joint`.
    """

    logit: Callable[[Tensor], Tensor]
    status: Callable[[Tensor], Tensor]
    maps: Mapping[str, TransportMaps]
    spec: BundleSpec
    logit_spread: float
    first_layer: FirstLayer | None = None
    inputs: InputCheck | None = None
    missing: str = field(init=False)
    width: int = field(init=False)
    columns: ScoreColumns = field(init=False)
    _logit_has_gradient: bool = field(init=False)
    _most_counterfactuals: int = field(init=False)
    _layer_weights: Mapping[str, LayerWeight] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Properties of the spec are computed on every access, so they are stored for the hot path.
        attributes = self.spec.protected_attributes
        self.width, self._heads = self.spec.width, self.spec.heads
        self.columns = ScoreColumns.of({a.name: len(a.groups) for a in attributes})
        zeros = torch.zeros(2, self.width)
        no_logit_gradient = _why_no_gradient(self.logit, zeros, "the classifier")
        self._logit_has_gradient = not no_logit_gradient
        self.missing = no_logit_gradient or _why_no_gradient(self.status, zeros, "the status model")
        self._most_counterfactuals = max(maps.counterfactuals for maps in self.maps.values())
        self._layer_weights = {}
        if self.first_layer is not None:
            weight = self.first_layer.weight
            self._layer_weights = {n: maps.layer_weight(weight) for n, maps in self.maps.items()}

    @property
    def max_rows(self) -> int:
        """Largest number of rows per pass; all counterfactuals of a pass are held in memory."""
        return max(16, _MAX_COUNTERFACTUALS // self._most_counterfactuals)

    def scores(self, features: Tensor) -> Scores:
        """Scores of n predictions, for features `[n, d]`."""
        return self.unpacked(*self.in_parts(self.joint, features))

    def in_parts(self, joint: Joint, features: Tensor) -> tuple[Tensor, Tensor]:
        """Result of a joint pass, compiled or not, in parts of at most `max_rows` rows."""
        if len(features) <= self.max_rows:
            return joint(features)
        parts = [joint(rows) for rows in features.split(self.max_rows)]
        packed, contributions = map(torch.cat, zip(*parts, strict=True))
        return packed, contributions

    def joint(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """All scores of n predictions, for features `[n, d]`.

        Returns:
            Scores `[n, w]`: logit, signed margin, code of `InputCheck.codes`, boundary distance;
            for every attribute log prediction sensitivity, flip probability, hard flips, expected
            change, posterior. And contributions `[n, a, d]`. Scores that cannot be computed are
            zero. Rows unlike the training rows have scores here; `ScoreColumns.mask_unlike` sets
            them to NaN.
        """
        # Gradients are needed even if the caller has disabled them.
        with torch.inference_mode(mode=False), torch.enable_grad():
            return self._joint(features.detach().clone().requires_grad_())

    def _joint(self, tracked: Tensor) -> tuple[Tensor, Tensor]:
        f, hidden = self._logit_and_hidden(tracked)
        has_gradient = self._logit_has_gradient
        gradient = gradient_of(f, tracked) if has_gradient else torch.zeros_like(tracked)
        f = f.detach()
        shifted = self.shifted(f)
        logits = self.status(tracked)
        # A row with a feature that is not finite has none of these scores.
        known = torch.isfinite(tracked.detach()).all(1)
        # Keeps the boundary distance finite where the gradient is zero.
        norm = gradient.square().sum(1).sqrt().clamp_min(1e-30)
        columns = [f, shifted, self._unlike(tracked.detach(), known), shifted.abs() / norm]
        contributions = []
        for attribute, head in self._heads.items():
            own = logits[:, head]
            log_ps, shares = self._gradient_scores(tracked, known, own, f, gradient)
            posterior = own.detach().softmax(1)
            flips = self._counterfactuals(tracked.detach(), hidden, attribute, posterior, shifted)
            columns += [log_ps, *flips, *posterior.unbind(1)]
            contributions.append(shares)
        # A type that represents the codes of `_unlike` exactly.
        kind = torch.promote_types(f.dtype, torch.float32)
        packed = torch.stack([column.to(kind) for column in columns], 1)
        packed = torch.cat([packed[:, :3], torch.where(known[:, None], packed[:, 3:], math.nan)], 1)
        return packed, torch.stack(contributions, 1)

    def _unlike(self, features: Tensor, known: Tensor) -> Tensor:
        """Code of why each row is unlike the training rows, `[n]`."""
        if self.inputs is not None:
            return self.inputs.codes(features)
        return torch.where(known, 0.0, float(Reason.NOT_FINITE * FIRST_OF_REASON))

    def unpacked(self, packed: Tensor, contributions: Tensor) -> Scores:
        """Result of `joint` by name; columns are views."""
        return self.columns.unpacked(
            packed,
            contributions,
            has_gradient=not self.missing,
            has_distance=self._logit_has_gradient,
            missing=self.missing,
        )

    def _logit_and_hidden(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """The logit `[n]`, and the output of the first layer if the classifier is split."""
        if self.first_layer is None:
            # A copy, since a model may write to its input; a split one does not.
            return self.logit(features.clone()), None
        hidden = self.first_layer.head(features)
        return self.first_layer.tail(hidden), hidden

    def shifted(self, logit: Tensor) -> Tensor:
        """Shifted logit f − logit(τ); 0 for a score equal to the threshold up to rounding."""
        threshold = self.spec.decision.threshold
        shifted = logit - (math.log(threshold) - math.log1p(-threshold))
        return torch.where(shifted.abs() < _TIE, 0.0, shifted)

    def flip_probability(self, features: Tensor, attribute: str, draws: int) -> Tensor:
        """Flip probability `[n]` of rows `[n, d]` with another number of draws."""
        maps = replace(self.maps[attribute], draws=draws)
        one = replace(self, maps={**self.maps, attribute: maps})
        with torch.no_grad():
            return torch.cat(
                [one._flip_probability(rows, attribute) for rows in features.split(one.max_rows)]
            )

    def _flip_probability(self, features: Tensor, attribute: str) -> Tensor:
        logit, hidden = self._logit_and_hidden(features)
        posterior = self.status(features)[:, self._heads[attribute]].softmax(1)
        shifted = self.shifted(logit)
        return self._counterfactuals(features, hidden, attribute, posterior, shifted)[0]

    def simulated_flips(
        self, features: Tensor, attribute: str, groups: Tensor, uniforms: Tensor
    ) -> Tensor:
        """Whether decisions flip for another group than the known one, bool `[r, n]`.

        Args:
            features: Rows, `[n, d]`.
            attribute: Name of the protected attribute.
            groups: Group of each row, int64 `[n]`.
            uniforms: Uniform numbers of the one draw of each row, `[n, u]`.
        """
        with torch.no_grad():
            logit, hidden = self._logit_and_hidden(features)
            return self._changes(
                features, hidden, attribute, groups[None], uniforms[None], self.shifted(logit)
            )[1][:, 0]

    def _counterfactuals(
        self,
        features: Tensor,
        hidden: Tensor | None,
        attribute: str,
        posterior: Tensor,
        shifted: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Flip probability, hard flips and expected change, `[n]` each.

        flip(x) = Σ_s P(s|x) · mean over draws from s of max_t h(f(x), f(G_{s→t}(x))), where h is
        the smoothed indicator of a flip, the indicator, or the absolute change of the logit; and
        the mean of that over causal orders.
        """
        maps = self.maps[attribute]
        draws = spread_draws(features, posterior, maps.n_uniforms, maps.draws)
        changes = self._changes(features, hidden, attribute, draws.sources, draws.uniforms, shifted)
        flip, hard_flips, expected = (
            (draws.weights * value).sum((0, 1)) / maps.orders for value in changes
        )
        return flip, hard_flips, expected

    def _changes(
        self,
        features: Tensor,
        hidden: Tensor | None,
        attribute: str,
        sources: Tensor,
        uniforms: Tensor,
        shifted: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Smoothed flip, flip and change of the logit of e draws in r orders, `[r, e, n]` each.

        All target groups t of a draw share their uniforms, since counterfactuals of one person
        share that person's noise. The maximum over t is then the event that the decision flips for
        at least one other group.
        """
        maps, n = self.maps[attribute], features.shape[0]
        # The k − 1 target groups of every draw, `[e, k − 1, n]`.
        step = torch.arange(1, maps.groups)[:, None]
        targets = (sources[:, None] + step) % maps.groups
        pairs = len(sources) * (maps.groups - 1)
        transported = maps.transport(
            features,
            sources[:, None].expand_as(targets).reshape(pairs, n),
            targets.reshape(pairs, n),
            uniforms.repeat_interleave(maps.groups - 1, 0),
        )
        shape = (maps.orders, *targets.shape)
        logits = self._logits_of(transported, hidden, attribute)
        counterfactual_logits = self.shifted(logits).reshape(shape)
        # A row that the map does not move, or moves by no more than rounding, does not flip even
        # if its logit is next to the threshold.
        change = (counterfactual_logits - shifted).abs()
        moved = transported.moved.reshape(shape) & (change > _ROUNDING * self.logit_spread)
        sharpness = _SHARPNESS / max(self.logit_spread, 1e-12)
        side = torch.where(shifted >= 0, sharpness, -sharpness)
        soft = (torch.sigmoid(-side * counterfactual_logits) * moved).amax(2)
        hard = (((counterfactual_logits >= 0) != (shifted >= 0)) & moved).any(2)
        return soft, hard, (change * moved).amax(2)

    def _logits_of(self, transported: Transported, hidden: Tensor | None, attribute: str) -> Tensor:
        """Logits of e counterfactuals for each of n rows, `[e · n]`."""
        with torch.no_grad():
            if self.first_layer is None or hidden is None:
                return self.logit(transported.features.flatten(0, 1))
            change = transported.layer_change(self._layer_weights[attribute])
            return self.first_layer.tail((hidden.detach() + change).flatten(0, 1))

    def _gradient_scores(
        self, tracked: Tensor, known: Tensor, logits: Tensor, f: Tensor, gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Log PS, log σ′(a) + log σ′(f) + log Σⱼ |g_A,j||g_F,j|, and the shares of the terms."""
        if self.missing:
            return torch.zeros_like(f), torch.zeros_like(gradient)
        groups = logits.shape[1]
        best: Tensor | None = None
        contributions = torch.zeros_like(gradient)
        # With two groups the logits are each other's negative, so both have the same score.
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

    def feature_shares(self, features: Tensor, attribute: str) -> dict[str, float]:
        """Share of every feature in the expected change, a one-hot group as one feature.

        One feature at a time is replaced by its counterfactual value. The share is the feature's
        part in the sum of Σ_s P(s|x) · max_t |f(x with that feature replaced) − f(x)| over all
        features and rows.
        """
        maps, heads = self.maps[attribute], self._heads[attribute]
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
                for order in range(maps.orders):
                    transported = [maps.apply(features, source, t, uniforms, order) for t in others]
                    for name, columns in units.items():
                        change = torch.zeros_like(f)
                        for moved in transported:
                            alone = features.clone()
                            alone[:, columns] = moved[:, columns]
                            change = torch.maximum(change, (self.logit(alone) - f).abs())
                        totals[name] += float((posterior[:, source] * change).sum())
        whole = sum(totals.values())
        return {name: total / whole if whole > 0 else 0.0 for name, total in totals.items()}


def gradient_of(value: Tensor, tracked: Tensor) -> Tensor:
    """Gradient of one value per row by the features of that row, `[n, d]`."""
    return torch.autograd.grad(value.sum(), tracked, retain_graph=True)[0]


def _why_no_gradient(model: Callable[[Tensor], Tensor], features: Tensor, name: str) -> str:
    """Reason why a model has no gradient at these features; empty if it has one."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        tracked = features.clone().requires_grad_()
        output = model(tracked.clone())
        if not output.requires_grad:
            return f"the output of {name} is not a differentiable function of its input"
        try:
            torch.autograd.grad(output.sum(), tracked)
        except RuntimeError as error:
            return f"no gradient of {name}: {first_line(error)}"
    return ""


def against_others(logits: Tensor, group: int) -> Tensor:
    """Logit of "in this group" against all others; exact for a softmax, so σ′ factors out."""
    others = [g for g in range(logits.shape[1]) if g != group]
    return logits[:, group] - logits[:, others].logsumexp(1)


def _log_sigmoid_slope(value: Tensor) -> Tensor:
    """Log σ′(v) = −softplus(v) − softplus(−v), which does not underflow."""
    return -softplus(value) - softplus(-value)
