"""Draws are evenly spaced and independent; duplicates get different counterparts."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import Feature
from offline_audit import Columns
from offline_audit.maps.draws import (
    draw_shifts,
    draw_uniforms,
    draws_per_row,
    duplicate_codes,
    one_counterpart,
)
from offline_audit.maps.quantile import QuantileMethod

BINARY = Columns(features=(Feature(name="b", kind="binary"),))


def test_duplicates_share_a_code():
    people = np.array([[0, 1], [2, 3], [0, 1], [0, 1], [2, 3]], np.float32)
    codes = duplicate_codes(people)
    assert codes is not None
    assert codes.tolist() == [0, 1, 0, 0, 1]


def test_few_duplicates_are_ignored():
    people = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    assert duplicate_codes(people) is None
    # Ten of a hundred rows occur twice.
    assert duplicate_codes(np.concatenate([people, people[:10]])) is None
    assert duplicate_codes(np.concatenate([people, np.zeros((100, 2), np.float32)])) is not None


def test_rows_get_as_many_draws_as_their_copies():
    assert draws_per_row(np.ones(500, int), 8) == 8
    assert draws_per_row(np.full(50, 3), 8) == 24
    assert draws_per_row(np.array([100_000, 100_000]), 8) == 256
    # One row with many copies among very many distinct rows must not multiply the work.
    assert draws_per_row(np.array([10_000, *[1] * 60_000]), 8) == 8


@pytest.mark.parametrize("share", [0.1, 0.37, 0.8])
def test_one_counterpart_per_row_has_the_targets_shares(share):
    rng = np.random.default_rng(1)
    source = np.zeros((1_000, 1), np.float32)
    target = (rng.random((1_000, 1)) < share).astype(np.float32)
    fitted = QuantileMethod().fit(source, target, BINARY)
    transported = one_counterpart(fitted, source)
    assert transported.shape == source.shape
    assert abs(transported.mean() - target.mean()) < 2 / 256
    assert fitted.transport(source)[0].mean() in (0, 1)


def test_distinct_rows_get_their_first_draw():
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(2, 200, 1)).astype(np.float32)
    fitted = QuantileMethod().fit(source, target + 1, Columns.numeric(["a"]))
    assert np.array_equal(one_counterpart(fitted, source), fitted.transport(source)[0])


def test_uniforms_depend_on_the_row_and_are_evenly_spaced_over_the_draws():
    people = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    uniforms = np.stack([draw_uniforms(people, 4, draw, 16) for draw in range(16)])
    assert uniforms.min() >= 0
    assert uniforms.max() < 1
    np.testing.assert_allclose(np.diff(np.sort(uniforms, 0), axis=0), 1 / 16, atol=1e-6)
    order = np.random.default_rng(1).permutation(200)
    assert np.array_equal(draw_uniforms(people[order], 4, 3, 16), uniforms[3, order])
    # Mean of 200 uniforms: standard error .02.
    np.testing.assert_allclose(draw_uniforms(people, 4, 0, 1).mean(0), 0.5, atol=4 * 0.0204)


def test_the_uniforms_of_one_rows_draws_are_uncorrelated():
    shifts = draw_shifts(6, 256)
    assert np.array_equal(np.sort(shifts, 0)[:, 0], np.arange(256) / 256)
    correlations = np.corrcoef(shifts.T) - np.eye(6)
    assert np.abs(correlations).max() < 4 / np.sqrt(256)
    # The shifts of a column do not depend on the number of columns.
    assert np.array_equal(draw_shifts(3, 256), shifts[:, :3])
    assert draw_shifts(0, 8).shape == (8, 0)
