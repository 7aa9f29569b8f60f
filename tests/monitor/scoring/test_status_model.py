"""The status model is accurate and calibrated, and reports attributes that it cannot predict."""

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


def reports_of(model, world, attributes=None):
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


def test_several_attributes_of_two_or_more_groups_are_predicted_and_calibrated(fitted):
    for name, report in reports_of(fitted, WORLD).items():
        assert report.predictable, name
        assert report.accuracy > report.majority + 0.03
        assert report.calibration_error < 0.03
        assert len(report.reliability) == 10


def test_calibration_corrects_an_overconfident_model(fitted):
    tune = WORLD.people(5_000, seed=32)
    fitted.inverse_temperature *= 4
    worse = reports_of(fitted, WORLD)["sex"].calibration_error
    calibrate(fitted, tune.features, tune.groups, WORLD.attributes)
    assert reports_of(fitted, WORLD)["sex"].calibration_error < 0.03 < worse


def test_an_attribute_without_proxies_is_reported_as_unpredictable():
    blank = World(proxy_bias=0)
    train = blank.people(5_000, seed=34)
    model = train_status_model(train.features, train.groups, blank.attributes, seed=0)
    for report in reports_of(model, blank).values():
        assert not report.predictable


def test_rows_without_a_group_are_ignored():
    train = WORLD.people(6_000, seed=35)
    hidden = {name: groups.copy() for name, groups in train.groups.items()}
    hidden["sex"][::2] = -1
    # Reversed features, which would reduce the accuracy if the hidden rows were used.
    features = train.features.copy()
    features[::2] = features[::2][:, ::-1]
    model = train_status_model(features, hidden, WORLD.attributes[:1], seed=0)
    assert reports_of(model, WORLD, WORLD.attributes[:1])["sex"].accuracy > 0.7


def test_an_unseen_category_has_little_effect_on_logits():
    train = WORLD.people(4_000, seed=37)
    features = np.column_stack([train.features, np.zeros((4_000, 2), np.float32)])
    features[7, -1] = 1  # a category with one training row
    model = train_status_model(features, train.groups, WORLD.attributes[:1], seed=0)
    rows = torch.from_numpy(features[:200])
    strange = rows.clone()
    strange[:, -2:] = 1
    with torch.no_grad():
        moved = (model(strange) - model(rows)).abs()
    assert moved.max() < 5


def test_training_is_reproducible_and_reports_progress():
    train = WORLD.people(3_000, seed=36)
    calls = []
    first, second = (
        train_status_model(
            train.features, train.groups, WORLD.attributes, seed=1,
            progress=lambda done, total: calls.append((done, total)),
        )
        for _ in range(2)
    )  # fmt: skip
    rows = torch.from_numpy(train.features)
    assert torch.equal(first(rows), second(rows))
    assert calls[-1][0] == calls[-1][1]


def test_a_report_has_the_expected_figures():
    """Four people, probability 3/4 of the first group for each, three of four correct."""
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
def test_with_too_few_rows_a_report_is_inconclusive(skill, error, predictable, conclusive):
    report = StatusReport(
        attribute="a", rows=9, accuracy=0.5, majority=0.5, skill=skill, skill_error=error,
        calibration_error=0.0, reliability=(),
    )  # fmt: skip
    assert (report.predictable, report.conclusive) == (predictable, conclusive)


def test_a_few_hundred_rows_give_nearly_optimal_accuracy():
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
