"""Values that a map computes become values that the column could hold."""

from __future__ import annotations

import numpy as np
import pytest

from offline_audit import Columns
from offline_audit.maps.columns import Features
from offline_audit.maps.grid import Grid, GridMap


@pytest.mark.parametrize(
    ("values", "computed", "expected"),
    [
        ([2.6, 3.1, 1.0], [2.6, 2.64, 2.66, 3.0999999], [2.6, 2.6, 2.7, 3.1]),
        ([19.99, 5.0, 0.01], [19.99, 7.123], [19.99, 7.12]),
        ([0.25, 0.5, 2.5], [1.1, 1.2, 2.0], [1.0, 1.25, 2.0]),
        ([500, 1_500, 3_000], [1_100, 2_600], [1_000, 2_500]),
        ([100_000_001, 100_000_002], [100_000_001], [100_000_001]),
        ([1_234_567.89, 7_654_321.12], [1_234_567.89], [1_234_567.89]),
        ([0.1 + 0.2, 1 / 3, np.pi], [0.3, np.float32(np.pi), 0.5], [0.1 + 0.2, np.pi, 0.5]),
        ([7.5, 7.5], [7.5, 8.4], [7.5, 8.4]),
        ([-0.3, 0.3], [0.2], [0.3]),
    ],
)
def test_moved_values_are_the_nearest_on_the_grid(values, computed, expected):
    """Decimals, even steps, or the observed value where there is no grid."""
    features = np.array(values, np.float64)[:, None]
    grid = Grid.of(features, Columns.numeric(["x"]), [features.dtype])
    transported = np.array(computed, np.float32)[None, :, None]
    # Rows of another value, so that every cell is moved.
    placed = grid.counterparts(transported, np.full((len(computed), 1), -1e6))
    assert placed[0, :, 0].tolist() == expected


def test_float32_columns_have_grids_of_their_own_type():
    features = np.linspace(1, 4, 31).round(1).astype(np.float32)[:, None]
    grid = Grid.of(features, Columns.numeric(["x"]), [features.dtype])
    transported = np.array([[[2.63]], [[2.6]]], np.float32)
    placed = grid.counterparts(transported, np.ones((1, 1), np.float32))
    assert placed.dtype == np.float32
    assert (placed == np.float32(2.6)).all()


def test_counterparts_stay_within_the_range_of_whole_numbers():
    features = np.arange(200, dtype=np.float32)[:, None]
    grid = Grid.of(features, Columns.numeric(["x"]), [np.dtype(np.uint8)])
    placed = grid.counterparts(np.array([[[-3.2]], [[300.0]]], np.float32), features[:1])
    assert placed.ravel().tolist() == [0, 199]


class Shift:
    """A map that adds .13 in float32 to the first column, and asserts what it gets."""

    splits = False

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        assert features.dtype == np.float32
        return (features + np.array([0.13, 0], np.float32))[None]


def test_a_map_on_a_grid_takes_and_returns_exact_values():
    features = np.column_stack([np.linspace(1, 4, 31).round(1), np.pi * np.arange(31)])
    grid = Grid.of(features, Columns.numeric(["x", "y"]), [features.dtype] * 2)
    counterparts = GridMap(map=Shift(), grid=grid).transport(features)
    np.testing.assert_array_equal(counterparts[0, :, 0], (features[:, 0] + 0.13).round(1))
    np.testing.assert_array_equal(counterparts[0, :, 1], features[:, 1])
