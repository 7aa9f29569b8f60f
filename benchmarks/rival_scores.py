"""Scores from the literature for comparison: from gradients, and from the attribute itself."""

from __future__ import annotations

import torch
from torch import Tensor

from monitor.scoring.sensitivity import Sensitivity, against_others, gradient_of

__all__ = ["attribute_flip", "linear_change"]


def linear_change(sensitivity: Sensitivity, features: Tensor, attribute: str) -> Tensor | None:
    """Change of f along the status model's gradient until the status logit changes sign, `[n]`.

    Columns are weighted by their variance over the rows `[n, d]`. None if the classifier has no
    gradient, or for more than two groups.
    """
    heads = sensitivity.spec.heads[attribute]
    if sensitivity.missing or heads.stop - heads.start != 2:
        return None
    tracked = features.detach().clone().requires_grad_()
    gradient = gradient_of(sensitivity.logit(tracked), tracked)
    a = against_others(sensitivity.status(tracked)[:, heads], 0)
    slope = gradient_of(a, tracked)
    weighted = slope * features.var(0)
    along = (weighted * slope).sum(1).clamp_min(1e-30)
    return (-2 * a.detach() * (weighted * gradient).sum(1) / along).to(gradient.dtype)


def attribute_flip(sensitivity: Sensitivity, features: Tensor, attribute: str) -> Tensor | None:
    """Largest |f(x with another group's value) − f(x)|, `[n]`; None if x has no such column."""
    spec = sensitivity.spec
    protected = next(a for a in spec.protected_attributes if a.name == attribute)
    if protected.feature is None:
        return None
    names = [feature.name for feature in spec.features]
    members = {group.name: group.features for group in spec.one_hot_groups}
    one_hot = protected.feature in members
    columns = [names.index(n) for n in members.get(protected.feature, (protected.feature,))]
    with torch.no_grad():
        f = sensitivity.logit(features)
        largest = torch.zeros_like(f)
        for group in range(len(protected.groups)):
            changed = features.clone()
            # The dropped category is last and has no column.
            value = torch.arange(len(columns)) == group if one_hot else torch.tensor([group])
            changed[:, columns] = value.to(features.dtype)
            largest = torch.maximum(largest, (sensitivity.logit(changed) - f).abs())
    return largest
