"""Ranges and spreads equal the plain ones on ordinary data, and ignore one wild row in 1,000."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monitor.scoring.robust import OrdinaryRange, robust_spread, without_tails
from monitor.scoring.status_model import StatusModel

_N = 5_000


def columns() -> np.ndarray:
    """Normal, log-normal, rare flag, zero-inflated, rare amount, constant; `[5,000, 6]`."""
    rng = np.random.default_rng(4)
    zero_inflated = np.where(rng.random(_N) < 0.1, rng.gamma(3, 100, _N), 0)
    rare = np.zeros(_N)
    rare[:4] = [200, 300, 250, 400]
    flag = np.arange(_N) < 3
    normal, skewed = rng.normal(5, 2, _N), np.exp(rng.normal(0, 0.5, _N))
    return np.column_stack([normal, skewed, flag, zero_inflated, rare, np.ones(_N)]).astype("f4")


def test_ordinary_columns_are_not_changed():
    features = columns()
    ordinary = OrdinaryRange.of(features)
    assert np.array_equal(ordinary.ordinary(features), features)
    assert not ordinary.wild(features).any()
    model = StatusModel(torch.from_numpy(features), [2])
    assert torch.equal(model.mean, torch.from_numpy(features).mean(0))
    assert robust_spread(features[:, 0]) == pytest.approx(features[:, 0].std(ddof=1), rel=1e-5)


@pytest.mark.parametrize("value", [1e8, -1e8, 3e38, -3e38])
def test_one_row_in_a_thousand_does_not_move_the_scales(value):
    features = columns()
    wild = features.copy()
    wild[::1000, [0, 1, 3]] = value
    before, after = (StatusModel(torch.from_numpy(x), [2]) for x in (features, wild))
    # Five rows at the median instead of elsewhere.
    assert torch.allclose(before.scale, after.scale, rtol=0.02)
    assert robust_spread(wild[:, 0]) == pytest.approx(robust_spread(features[:, 0]), rel=0.02)
    assert OrdinaryRange.of(wild).wild(wild)[:, [0, 1, 3]].sum() == 15


def test_values_that_are_not_ordinary_become_the_median():
    features = columns()[:, :2]
    changed = features.copy()
    largest, middle = np.abs(features[:, 0] - 5).max(), np.sort(features[1:, 0])[(_N - 1) // 2]
    changed[0] = 5 + 5 * largest, 1e6
    ordinary = OrdinaryRange.of(changed).ordinary(changed)
    assert ordinary[0, 0] == pytest.approx(middle, rel=0.01)
    assert ordinary[0, 1] == pytest.approx(np.median(features[:, 1]), rel=0.01)
    assert np.array_equal(ordinary[1:], features[1:])
    changed[0] = 5 + 2 * largest, 1
    assert np.array_equal(OrdinaryRange.of(changed).ordinary(changed), changed)


def test_a_tail_has_one_in_2000_rows_on_either_side():
    features = columns()
    low, high = without_tails(features)
    inside = (features >= low) & (features <= high)
    # Three rows of 5,000 in each tail, and two of the four rare amounts.
    assert (~inside).sum(0).tolist() == [6, 6, 3, 3, 4, 0]
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()


def test_the_status_model_bounds_its_input_but_not_the_gradient_of_ordinary_rows():
    features = torch.from_numpy(columns())
    model = StatusModel(features, [2]).eval()
    rows = features[:20].clone().requires_grad_()
    model(rows).sum().backward()
    plain = features[:20].clone().requires_grad_()
    (model.layers((plain - model.mean) * model.scale) * model.inverse_temperature).sum().backward()
    assert rows.grad is not None
    assert plain.grad is not None
    assert torch.equal(rows.grad, plain.grad)
    far, farther = features[:1].clone(), features[:1].clone()
    far[0, 0], farther[0, 0] = 1e6, 1e30
    assert torch.equal(model(far), model(farther))
