"""Scores from the literature follow their formulas."""

from __future__ import annotations

from dataclasses import replace

import torch

from benchmarks.rival_scores import attribute_flip, linear_change
from monitor import ProtectedAttribute
from tests.families import PEOPLE, loaded, seeded, sensitivity, spec

ROWS = torch.from_numpy(PEOPLE.features[:60])
SENSITIVITY = sensitivity(loaded(seeded("MLP")))


def test_the_linear_change_of_linear_models_is_a_reflection():
    """A reflection in the plane where both groups are equally likely, scaled by the variances."""
    rows = torch.randn(4_000, 25, generator=torch.Generator().manual_seed(2))
    weights, of_group = torch.linspace(-1, 1, 25), torch.linspace(2, -1, 25)
    linear = replace(
        SENSITIVITY,
        logit=lambda x: x @ weights,
        status=lambda x: torch.stack([torch.zeros(len(x)), x @ of_group], 1),
        first_layer=None,
    )
    variance = rows.var(0)
    along = (rows @ of_group)[:, None] * (of_group * variance) / (of_group**2 * variance).sum()
    change = linear_change(linear, rows, "sex")
    assert change is not None
    assert torch.allclose(change, -2 * along @ weights, rtol=1e-4, atol=1e-4)


def test_the_attribute_flip_changes_only_the_attribute():
    column = next(i for i, f in enumerate(spec().features) if f.kind == "binary")
    attribute = ProtectedAttribute(
        name="sex", groups=("man", "woman"), feature=spec().features[column].name
    )
    visible = replace(
        SENSITIVITY, spec=spec().model_copy(update={"protected_attributes": (attribute,)})
    )
    flipped = ROWS.clone()
    flipped[:, column] = 1 - flipped[:, column]
    change = attribute_flip(visible, ROWS, "sex")
    assert change is not None
    with torch.no_grad():
        assert torch.allclose(change, (SENSITIVITY.logit(flipped) - SENSITIVITY.logit(ROWS)).abs())
    assert attribute_flip(SENSITIVITY, ROWS, "sex") is None
