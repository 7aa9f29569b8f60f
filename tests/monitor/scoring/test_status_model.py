"""The status model learns what can be learned, states honest chances, and says when it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from monitor import ProtectedAttribute, World
from monitor.scoring.status_model import StatusReport, calibrate, status_report, train_status_model

WORLD = World()


@pytest.fixture(scope="module")
def fitted():
    train, tune = WORLD.people(20_000, seed=31), WORLD.people(5_000, seed=32)
    model = train_status_model(train.features, train.groups, WORLD.attributes, seed=0)
    calibrate(model, tune.features, tune.groups, WORLD.attributes)
    return model


def judged(model, world, attributes=None):
    people = world.people(20_000, seed=33)
    with torch.no_grad():
        logits = model(torch.from_numpy(people.features))
    reports, start = {}, 0
    for attribute in attributes or world.attributes:
        stop = start + len(attribute.groups)
        reports[attribute.name] = status_report(
            logits[:, start:stop], people.groups[attribute.name], attribute
        )
        start = stop
    return reports


def test_several_attributes_of_two_and_more_groups_are_told_and_calibrated(fitted):
    for name, report in judged(fitted, WORLD).items():
        assert report.predictable, name
        assert report.accuracy > report.majority + 0.03
        assert report.calibration_error < 0.03
        assert len(report.reliability) == 10


def test_calibration_mends_an_overconfident_model(fitted):
    tune = WORLD.people(5_000, seed=32)
    fitted.inverse_temperature *= 4
    worse = judged(fitted, WORLD)["sex"].calibration_error
    calibrate(fitted, tune.features, tune.groups, WORLD.attributes)
    assert judged(fitted, WORLD)["sex"].calibration_error < 0.03 < worse


def test_an_attribute_that_leaves_no_trace_is_said_to_be_unpredictable():
    blank = World(proxy_bias=0)
    train = blank.people(5_000, seed=34)
    model = train_status_model(train.features, train.groups, blank.attributes, seed=0)
    for report in judged(model, blank).values():
        assert not report.predictable


def test_rows_without_a_group_are_passed_over():
    train = WORLD.people(6_000, seed=35)
    hidden = {name: groups.copy() for name, groups in train.groups.items()}
    hidden["sex"][::2] = -1
    # If the hidden rows were used, these would mislead.
    features = train.features.copy()
    features[::2] = features[::2][:, ::-1]
    model = train_status_model(features, hidden, WORLD.attributes[:1], seed=0)
    assert judged(model, WORLD, WORLD.attributes[:1])["sex"].accuracy > 0.7


def test_a_category_unseen_in_training_does_not_swamp_the_rest():
    train = WORLD.people(4_000, seed=37)
    features = np.column_stack([train.features, np.zeros((4_000, 2), np.float32)])
    features[7, -1] = 1  # and one that was seen once
    model = train_status_model(features, train.groups, WORLD.attributes[:1], seed=0)
    rows = torch.from_numpy(features[:200])
    strange = rows.clone()
    strange[:, -2:] = 1
    with torch.no_grad():
        moved = (model(strange) - model(rows)).abs()
    assert moved.max() < 5


def test_training_is_repeatable_and_tells_its_progress():
    train = WORLD.people(3_000, seed=36)
    told = []
    first, second = (
        train_status_model(
            train.features, train.groups, WORLD.attributes, seed=1,
            progress=lambda done, total: told.append((done, total)),
        )
        for _ in range(2)
    )  # fmt: skip
    rows = torch.from_numpy(train.features)
    assert torch.equal(first(rows), second(rows))
    assert told[-1][0] == told[-1][1]


def test_a_report_of_known_numbers():
    """Four people, chances of 3/4 stated for the first group, three of four right."""
    logits = torch.tensor([[3.0, 1.0]]).log().repeat(5, 1)
    attribute = ProtectedAttribute(name="a", groups=("x", "y"))
    report = status_report(logits, np.array([0, 0, 0, 1, -1], np.int8), attribute)
    assert report.rows == 4
    assert report.accuracy == report.majority == 0.75
    assert abs(report.skill) < 1e-6
    # One row a bin: three off by 1/4, one by 3/4.
    assert report.calibration_error == pytest.approx(0.375)
    assert not report.predictable


@pytest.mark.parametrize(
    ("skill", "error", "predictable", "conclusive"),
    [(0.3, 0.05, True, True), (0.03, 0.05, False, False), (0.001, 0.002, False, True)],
)
def test_too_few_rows_are_not_taken_for_no_trace(skill, error, predictable, conclusive):
    report = StatusReport(
        attribute="a", rows=9, accuracy=0.5, majority=0.5, skill=skill, skill_error=error,
        calibration_error=0.0, reliability=(),
    )  # fmt: skip
    assert (report.predictable, report.conclusive) == (predictable, conclusive)


def test_a_few_hundred_rows_are_learned_from_as_well_as_they_can_be():
    rng = np.random.default_rng(3)
    attribute = ProtectedAttribute(name="a", groups=("x", "y"))
    group = rng.integers(2, size=20_000).astype(np.int8)
    rows = (rng.normal(size=(20_000, 5)) + 0.8 * group[:, None] / np.sqrt(5)).astype(np.float32)
    for seed in range(3):
        model = train_status_model(rows[:500], {"a": group[:500]}, [attribute], seed=seed)
        with torch.no_grad():
            report = status_report(model(torch.from_numpy(rows[500:])), group[500:], attribute)
        # The best possible is Φ(0.4) = .655.
        assert report.accuracy > 0.6
