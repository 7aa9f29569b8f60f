"""The lower bound on the share of flips holds, and an estimate below it is not called low."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from monitor import FitData, FitSpec, fit
from monitor.fitting.audit_text import attribute_lines
from monitor.fitting.bound import flip_share_bound


def test_the_bound_is_the_weighted_largest_difference_of_rates():
    groups = np.repeat([0, 1, 2], [50, 30, 20]).astype(np.int8)
    positive = np.concatenate([np.arange(50) < 40, np.arange(30) < 12, np.arange(20) < 2])
    bound = flip_share_bound(positive, groups)
    # Rates .8, .4 and .1.
    assert bound is not None
    assert bound.share == pytest.approx(0.5 * 0.7 + 0.3 * 0.4 + 0.2 * 0.7)
    assert bound.low < bound.share < bound.high


def test_rows_without_a_group_are_ignored_and_one_group_has_no_bound():
    groups = np.array([0, 0, 1, 1, -1, -1], np.int8)
    positive = np.array([True, True, False, True, True, True])
    bound = flip_share_bound(positive, groups)
    assert bound is not None
    assert bound.share == pytest.approx(0.5)
    assert flip_share_bound(positive, np.where(groups == 1, -1, groups)) is None


@pytest.mark.calibration
@pytest.mark.parametrize("gap", [0.0, 0.02, 0.2])
def test_the_lower_end_exceeds_the_true_bound_rarely(gap):
    """Nominal 2.5% above; 400 samples, exact binomial bound at 99.9%."""
    rng, above = np.random.default_rng(1), 0
    for _ in range(400):
        groups = rng.choice(3, 600, p=[0.6, 0.3, 0.1]).astype(np.int8)
        positive = rng.random(600) < np.array([0.4, 0.4 + gap, 0.4 + gap])[groups]
        bound = flip_share_bound(positive, groups)
        assert bound is not None
        above += bound.low > gap
    assert above <= stats.binom.ppf(0.999, 400, 0.025)


class Matches(nn.Module):
    """Positive if both categories, one-hot in the first six columns, are the same."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        same = (features[:, :3] * features[:, 3:6]).sum(1)
        return 4 * same - 2 + 0.3 * features[:, 6]


def people(*, dependent: bool) -> FitData:
    """Two categories that mostly agree in one group and mostly disagree in the other, or not."""
    rng = np.random.default_rng(2)
    groups = (rng.random(4_000) < 0.5).astype(np.int8)
    first = rng.integers(3, size=4_000)
    agree = rng.random(4_000) < np.where(groups == 1, 0.15, 0.85 if dependent else 0.15)
    second = np.where(agree, first, (first + rng.integers(1, 3, 4_000)) % 3)
    one_hot = [values[:, None] == np.arange(3) for values in (first, second)]
    return FitData(
        features=np.column_stack([*one_hot, rng.normal(size=4_000)]).astype(np.float32),
        groups={"group": groups},
    )


SPEC = FitSpec.model_validate(
    {
        "model": {"name": "matching", "version": "1"},
        "classifier": {"output": "logit"},
        "features": [
            *({"name": f"{v}={c}", "kind": "onehot"} for v in "ab" for c in range(3)),
            {"name": "x", "kind": "numeric"},
        ],
        "one_hot_groups": [{"name": v, "features": [f"{v}={c}" for c in range(3)]} for v in "ab"],
        "protected_attributes": [{"name": "group", "groups": ["one", "other"], "column": "g"}],
    }
)


@pytest.mark.parametrize("n_refits", [0, 5])
def test_a_share_below_the_bound_is_not_established(tmp_path, n_refits):
    """The maps do not transport the dependence between two categories."""
    audits = [
        fit(Matches(), people(dependent=dependent), SPEC, tmp_path / str(dependent),
            compiled=False, n_refits=n_refits).audit
        for dependent in (True, False)
    ]  # fmt: skip
    hidden, ordinary = (" ".join(audit.text().split()) for audit in audits)
    assert not audits[0].attributes["group"].established
    assert "The share is not established: by the rates of decisions at least 7" in hidden
    assert "That is low" not in hidden
    assert audits[1].attributes["group"].established
    assert "not established" not in ordinary
    assert "must change for any map between the groups of group" in ordinary
    if n_refits:
        # Also without the bound.
        pairs_only = dataclasses.replace(audits[0].attributes["group"], bound=None)
        text = " ".join("\n".join(attribute_lines("group", pairs_only)).split())
        assert not pairs_only.established
        assert "The share is not established: the transport maps do not explain" in text
        assert "That is low" not in text
        assert "rows of other in 1" in text
        attribute = audits[0].to_dict()["attributes"]["group"]
        assert attribute["established"] is False
        assert [pair["established"] for pair in attribute["interval"]["pairs"]] == [False, False]
