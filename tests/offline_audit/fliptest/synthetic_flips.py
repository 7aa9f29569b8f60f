"""Synthetic rows with counterparts, and a model whose decision differs for some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.fliptest.flipset import Flipset
from offline_audit.fliptest.transparency import transparency_report

COLUMNS = Columns(
    features=(
        Feature(name="income", kind="numeric"),
        Feature(name="sector=care", kind="onehot"),
        Feature(name="sector=trades", kind="onehot"),
        Feature(name="years", kind="integer"),
        Feature(name="part_time", kind="binary"),
        Feature(name="sector=office", kind="onehot"),
        Feature(name="town=north", kind="onehot"),
        Feature(name="town=south", kind="onehot"),
        Feature(name="fixed", kind="numeric"),
    ),
    one_hot_groups=(
        OneHotGroup(name="sector", features=("sector=care", "sector=trades", "sector=office")),
        OneHotGroup(name="town", features=("town=north", "town=south"), dropped="village"),
    ),
)
SCALE = np.array([2.0, 0.8, 0.8, 3.0, 0.5, 0.8, 0.7, 0.7, 1.0])


def rows_of(income, sector, years, part_time, town):
    """Encoded rows, `[..., 9]`."""
    shape = np.shape(income)
    rows = np.zeros((*shape, 9), np.float32)
    rows[..., 0], rows[..., 3], rows[..., 4], rows[..., 8] = income, years, part_time, 7.5
    for code, column in enumerate((1, 2, 5)):
        rows[..., column] = np.equal(sector, code)
    for code, column in enumerate((6, 7)):
        rows[..., column] = np.equal(town, code)
    return rows


def score(rows):
    category_terms = rows[:, 1] + 0.6 * rows[:, 2] - 0.5 * rows[:, 6] - 0.2 * rows[:, 7]
    return rows[:, 0] - 2 * rows[:, 4] + category_terms + 0.3 * rows[:, 3] - 1.5


def model(rows):
    return (score(rows) >= 0).astype(np.int8)


def draw_flipset(n, draws, seed=0, shift=1.0):
    """Rows whose counterparts have less income, more part-time work and other categories."""
    rng = np.random.default_rng(seed)
    person_effect = rng.normal(size=n)
    income = rng.gamma(4.0, 0.5, n)
    sector, town = rng.choice(3, n, p=[0.2, 0.3, 0.5]), rng.choice(3, n)
    years, part_time = rng.poisson(2, n), rng.random(n) < 0.3
    size = (draws, n)
    moves = rng.random(size) < 0.4
    own = rows_of(income, sector, years, part_time, town)
    others = rows_of(
        income - shift * rng.gamma(1.5, 0.3, size) * np.exp(0.3 * person_effect),
        np.where(moves, rng.choice(3, size, p=[0.5, 0.3, 0.2]), sector),
        np.maximum(years + rng.integers(-1, 2, size), 0),
        np.where(moves, rng.random(size) < 0.6, part_time),
        np.where(rng.random(size) < 0.2, rng.choice(3, size), town),
    )
    return Flipset(
        features=own,
        counterparts=others,
        decisions=model(own) == 1,
        counterpart_decisions=np.stack([model(draw) == 1 for draw in others]),
    )


def report_of(flipset, side="advantaged", decide=model, **options) -> Any:
    """Typed as Any, so that tests can read optional fields without narrowing."""
    return transparency_report(flipset, side, COLUMNS, SCALE, decide, **options)
