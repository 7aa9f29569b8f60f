"""Rows unlike the training rows are detected by reason, ordinary rows are not."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

from monitor import Feature, OneHotGroup, World
from monitor.errors import BundleError
from monitor.npz import read_npz, write_npz
from monitor.scoring.input_check import InputCheck
from monitor.scoring.scores import FIRST_OF_REASON, Reason

WORLD = World()
FRESH = WORLD.people(10_000, seed=12).features
NUMBERS = [i for i, f in enumerate(WORLD.features) if f.kind in ("numeric", "integer")]
GROUP = [i for i, f in enumerate(WORLD.features) if f.name in WORLD.one_hot_groups[0].features]

FEATURES = (
    Feature(name="income", kind="numeric"),
    Feature(name="tax", kind="numeric"),
    Feature(name="score", kind="numeric"),
    Feature(name="years", kind="integer"),
    Feature(name="member", kind="binary"),
    Feature(name="north", kind="onehot"),
    Feature(name="south", kind="onehot"),
    Feature(name="red", kind="onehot"),
    Feature(name="blue", kind="onehot"),
)
GROUPS = (
    OneHotGroup(name="region", features=("north", "south")),
    OneHotGroup(name="colour", features=("red", "blue"), dropped="grey"),
)


def rows(n: int, seed: int) -> np.ndarray:
    """Tax depends on income, and score is a scaled integer, `[n, 9]`."""
    rng = np.random.default_rng(seed)
    income = rng.normal(0, 1, n)
    tax = 0.9 * income + rng.normal(0, 0.3, n)
    score = (rng.integers(300, 500, n) - 400) / 37.3
    north, colour = rng.random(n) < 0.5, rng.integers(3, size=n)
    flags = [rng.random(n) < 0.3, north, ~north, colour == 1, colour == 2]
    return np.column_stack([income, tax, score, rng.poisson(9, n), *flags]).astype("f4")


CHECK = InputCheck.fit(rows(8_000, 1), FEATURES, GROUPS)


def share_unlike(check: InputCheck, features: np.ndarray) -> float:
    found = check.reasons(np.ascontiguousarray(features, np.float32))
    return float((found != Reason.NONE).mean())


@pytest.mark.parametrize(("n", "most"), [(500, 0.01), (2_000, 0.005), (15_000, 0.003)])
def test_ordinary_rows_are_not_unlike(n, most):
    check = InputCheck.fit(WORLD.people(n, seed=11).features, WORLD.features, WORLD.one_hot_groups)
    assert share_unlike(check, FRESH) <= most


def reversed_columns(features):
    return features[:, ::-1]


def shifted_columns(features):
    return np.roll(features, 1, 1)


def all_categories(features):
    features[:, GROUP] = 1
    return features


def unscaled(features):
    """As if the classifier took standardised numbers, and these were not."""
    features[:, NUMBERS] = 40 * features[:, NUMBERS] + 25
    return features


def out_of_range(features):
    column = np.resize(NUMBERS, len(features))
    span = np.ptp(features, axis=0)[column]
    features[np.arange(len(features)), column] = features.max(0)[column] + 0.3 * span
    return features


@pytest.mark.parametrize(
    "wrong", [reversed_columns, shifted_columns, all_categories, unscaled, out_of_range]
)
def test_wrong_rows_are_unlike(wrong):
    learn = WORLD.people(15_000, seed=11).features
    check = InputCheck.fit(learn, WORLD.features, WORLD.one_hot_groups)
    assert share_unlike(check, wrong(FRESH.copy())) >= 0.95


@pytest.mark.parametrize(
    ("values", "reason", "index"),
    [
        ({}, Reason.NONE, 0),
        ({"score": math.nan}, Reason.NOT_FINITE, 0),
        ({"score": math.inf, "north": 1, "south": 1}, Reason.NOT_FINITE, 0),
        ({"north": 1, "south": 1}, Reason.ONE_HOT, 0),
        ({"north": 0, "south": 0}, Reason.ONE_HOT, 0),
        ({"red": 1, "blue": 1}, Reason.ONE_HOT, 1),
        ({"red": 0, "blue": 0}, Reason.NONE, 0),
        ({"years": 9.5}, Reason.VALUE, 3),
        ({"score": 0.5 / 37.3}, Reason.VALUE, 2),
        ({"score": 4 / 37.3}, Reason.NONE, 0),
        ({"member": 0.5}, Reason.VALUE, 4),
        ({"member": 2}, Reason.RANGE, 4),
        ({"income": 9.0}, Reason.RANGE, 0),
        ({"income": 9.0, "years": 9.5}, Reason.VALUE, 3),
        ({"income": 2.0, "tax": -2.0}, Reason.COMBINATION, 0),
    ],
)
def test_the_code_names_reason_and_column(values, reason, index):
    names = [feature.name for feature in FEATURES]
    row = torch.tensor([[0.1, 0.1, 3 / 37.3, 9, 1, 1, 0, 0, 1]])
    for name, value in values.items():
        row[0, names.index(name)] = value
    code = int(CHECK.codes(row)[0])
    assert divmod(code, FIRST_OF_REASON) == (reason, index)


def slow_reasons(check: InputCheck, row: np.ndarray) -> set[Reason]:
    """The reasons of one row, one column and one group at a time."""
    if not np.isfinite(row).all():
        return {Reason.NOT_FINITE}
    found = set()
    for column, value in enumerate(row):
        if not check.low[column] <= value <= check.high[column]:
            found.add(Reason.RANGE)
        elif check.rate[column] > 0:
            steps = float((value - check.origin[column]) * check.rate[column])
            if abs(steps - round(steps)) > check.rounding[column]:
                found.add(Reason.VALUE)
    for group in GROUPS:
        columns = [i for i, f in enumerate(FEATURES) if f.name in group.features]
        ones = sum(float(row[column]) for column in columns)
        if not (group.dropped is None) <= ones <= 1:
            found.add(Reason.ONE_HOT)
    related = row[check.related.numpy()].astype(float) - check.centre.numpy()
    if np.square(check.whitening.double().numpy() @ related).sum() > check.limit[0]:
        found.add(Reason.COMBINATION)
    return found


def test_the_codes_are_those_of_a_slow_check_of_each_row():
    rng = np.random.default_rng(5)
    mixed = rows(600, 2)
    cells = rng.random(mixed.shape) < 0.1
    mixed[cells] = rng.choice([0, 1, 0.5, 7.25, -3, 1e30, math.nan, math.inf], int(cells.sum()))
    expected = [max(slow_reasons(CHECK, row), default=Reason.NONE) for row in mixed]
    assert CHECK.reasons(mixed).tolist() == expected
    assert len(set(expected)) == len(Reason)


def test_wild_training_rows_do_not_widen_the_limits():
    learn = rows(8_000, 1)
    learn[::2_000, 0], learn[::2_000, 3] = 1e9, 100_000
    check = InputCheck.fit(learn, FEATURES, GROUPS)
    assert torch.allclose(check.high, CHECK.high, rtol=0.1)
    assert torch.allclose(check.limit, CHECK.limit, rtol=0.1)


def test_the_margin_of_a_skewed_column_is_that_of_its_side():
    rng = np.random.default_rng(7)
    amounts = rng.lognormal(8, 1, (3_000, 1)).astype("f4")
    check = InputCheck.fit(amounts, FEATURES[:1], ())
    smallest, largest = float(amounts.min()), float(amounts.max())
    assert check.reasons(np.array([[-999], [-1], [largest * 2]], "f4")).tolist() == [2, 2, 2]
    fine = np.array([[smallest * 0.5], [largest * 1.1]], "f4")
    assert check.reasons(fine).tolist() == [0, 0]


def test_a_dropped_category_that_no_training_row_has_is_unlike():
    learn = rows(2_000, 1)
    check = InputCheck.fit(learn[learn[:, -2:].sum(1) == 1], FEATURES, GROUPS)
    row = torch.tensor([[0.1, 0.1, 3 / 37.3, 9, 1, 1, 0, 0, 0]])
    assert divmod(int(check.codes(row)[0]), FIRST_OF_REASON) == (Reason.ONE_HOT, 1)
    row[0, -1] = 1
    assert int(check.codes(row)[0]) == 0


def test_unrelated_columns_have_no_combinations():
    check = InputCheck.fit(rows(8_000, 1)[:, 2:], FEATURES[2:], GROUPS)
    assert len(check.related) == 0


def test_values_that_are_not_evenly_spaced_or_mostly_new_are_not_restricted():
    assert CHECK.rate.tolist() == [0, 0, pytest.approx(37.3, rel=1e-4), 1, 1, 1, 1, 1, 1]
    few = InputCheck.fit(rows(300, 1), FEATURES, GROUPS)
    assert few.rate[2] == 0
    uneven = rows(8_000, 1)
    uneven[:, 2] = np.log1p(np.abs(np.round(uneven[:, 2] * 37.3)))
    assert InputCheck.fit(uneven, FEATURES, GROUPS).rate[2] == 0


def test_a_stored_check_is_read_again():
    read = InputCheck.from_npz(CHECK.to_npz(), len(FEATURES), len(GROUPS))
    sample = torch.from_numpy(rows(500, 3) * 1.5)
    assert torch.equal(read.codes(sample), CHECK.codes(sample))


@pytest.mark.parametrize(
    "change",
    [
        {"low": np.zeros(3, np.float32)},
        {"related": np.array([0, 99])},
        {"limit": np.array([math.nan], np.float32)},
        {"members": np.zeros((1, 9), np.float32)},
        {"rate": np.zeros(9)},
    ],
    ids=["width", "column", "NaN", "groups", "type"],
)
def test_a_damaged_file_is_refused(change):
    _, arrays = read_npz(CHECK.to_npz())
    data = write_npz({}, arrays | change)
    with pytest.raises(BundleError, match=r"inputs\.npz is damaged"):
        InputCheck.from_npz(data, len(FEATURES), len(GROUPS))
    with pytest.raises(BundleError, match=r"inputs\.npz is damaged"):
        InputCheck.from_npz(io.BytesIO(data).read(50), len(FEATURES), len(GROUPS))
