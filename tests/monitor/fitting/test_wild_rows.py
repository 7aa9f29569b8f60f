"""One wild row moves neither the scales of the scores nor anybody's flip probability."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from monitor import Feature, FitData, FitResult, FitSpec, Judge, Model, OneHotGroup, fit
from monitor.fitting.parts import disjoint_parts
from monitor.fitting.spec import Output, ProtectedColumn

_ROWS = 20_000
SPEC = FitSpec(
    model=Model(name="wild", version="1"),
    classifier=Output(output="logit"),
    features=(
        Feature(name="income", kind="numeric"),
        Feature(name="gap", kind="numeric"),
        Feature(name="years", kind="integer"),
        Feature(name="member", kind="binary"),
        Feature(name="north", kind="onehot"),
        Feature(name="south", kind="onehot"),
    ),
    one_hot_groups=(OneHotGroup(name="region", features=("north", "south")),),
    protected_attributes=(ProtectedColumn(name="sex", groups=("man", "woman"), column="sex"),),
)
MULTIPLIED = [0, 1, 2]
# A fit takes seconds, so a failing example is not shrunk.
PHASES = (Phase.explicit, Phase.generate)


class Scorecard(torch.nn.Module):
    def forward(self, features: torch.Tensor) -> torch.Tensor:
        weights = torch.tensor([1 / 10_000, -1.0, 0.01, 0.1, 0.1, -0.1])
        return (features * weights).sum(1) - 2.7


def people(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features `[n, 6]` and groups `[n]`: women have lower incomes and more often a gap."""
    rng = np.random.default_rng(seed)
    woman = rng.integers(2, size=n)
    income = 30_000 * np.exp(rng.normal(-0.2 * woman, 0.3))
    gap = np.where(rng.random(n) < 0.1 + 0.3 * woman, rng.gamma(4, 0.15, n), 0)
    north = rng.random(n) < 0.5
    columns = income, gap, rng.poisson(20, n), rng.random(n) < 0.2, north, ~north
    return np.column_stack(columns).astype(np.float32), woman.astype(np.int8)


FEATURES, GROUPS = people(_ROWS, seed=1)
TRAINING_ROW = int(disjoint_parts(_ROWS, seed=0, most_scored=_ROWS)["training"][0])
TEST = torch.from_numpy(people(1_000, seed=2)[0])


def fitted(features: np.ndarray) -> FitResult:
    with tempfile.TemporaryDirectory() as folder:
        data = FitData(features=features, groups={"sex": GROUPS})
        return fit(Scorecard(), data, SPEC, Path(folder) / "bundle", compiled=False)


def flip_probabilities(result: FitResult) -> np.ndarray:
    scores = Judge.load(result.bundle, warn=False).scores(TEST)
    return scores.attributes["sex"].flip_probability.numpy()


@cache
def clean() -> np.ndarray:
    return flip_probabilities(fitted(FEATURES))


@settings(max_examples=3, deadline=None, derandomize=True, phases=PHASES)
@given(
    row=st.integers(0, _ROWS - 1),
    factor=st.floats(0, 12).map(lambda power: 10**power),
    sign=st.sampled_from([1, -1]),
)
@example(row=TRAINING_ROW, factor=1e12, sign=1)
@example(row=TRAINING_ROW, factor=1e4, sign=-1)
def test_one_wild_row_moves_no_flip_probability(row, factor, sign):
    features = FEATURES.copy()
    features[row, MULTIPLIED] = np.round(features[row, MULTIPLIED] * factor) * sign
    moved = np.abs(flip_probabilities(fitted(features)) - clean())
    assert moved.max() <= 0.05


def test_the_audit_names_the_features_of_wild_rows_but_not_their_values():
    features = FEATURES.copy()
    features[TRAINING_ROW, 0] = 123_456_789
    audit = fitted(features).audit
    assert audit.to_dict()["wild"] == {"rows": 1, "features": {"income": 1}, "logits": 1}
    text = " ".join(audit.text().split())
    assert "1 training rows have a value in: income (1); 1 have such a logit" in text
    assert "123" not in text.replace(",", "")
    assert "Wild values" not in fitted(FEATURES).audit.text()
