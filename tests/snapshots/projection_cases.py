"""The projection test."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from offline_audit import linear_distances, projection_test
from tests.snapshots.case import case


@functools.cache
def projected_rows() -> dict[str, Any]:
    rng = np.random.default_rng(11)
    n = 500
    sex = rng.choice(["female", "male"], n, p=[0.4, 0.6])
    age = rng.choice(["young", "middle", "old"], n)
    score = rng.normal(size=n) + 0.5 * (sex == "male") + 0.2 * (age == "old")
    labels = (score + rng.normal(size=n) > 0.3).astype(int)
    return {
        "decisions": (score > 0.2).astype(int),
        "distances": np.abs(score - 0.2),
        "sex": sex,
        "age": age,
        "labels": labels,
    }


def _projection(*attributes: str, **options: Any) -> Any:
    rows = projected_rows()
    return projection_test(
        groups={a: rows[a] for a in attributes},
        decisions=rows["decisions"],
        distances=rows["distances"],
        **options,
    )


@case
def projection_statistical_parity() -> Any:
    return _projection("sex")


@case
def projection_three_groups() -> Any:
    return _projection("age")


@case
def projection_equalized_odds() -> Any:
    labels = projected_rows()["labels"]
    return _projection("sex", criterion="equalized_odds", labels=labels)


@case
def projection_equal_opportunity_by_kernel() -> Any:
    labels = projected_rows()["labels"]
    return _projection("sex", criterion="equal_opportunity", labels=labels, law="kernel")


@case
def projection_two_attributes() -> Any:
    return _projection("sex", "age")


@case
def projection_tolerance_favoured() -> Any:
    return _projection("sex", tolerance=0.05, favoured="male", alpha=0.1)


@case
def projection_units() -> Any:
    rows = projected_rows()
    return projection_test(
        groups=np.repeat(rows["sex"], 2),
        decisions=np.repeat(rows["decisions"], 2),
        distances=np.repeat(rows["distances"], 2),
        units=np.repeat(np.arange(500), 2),
    )


@case
def projection_linear_distances() -> Any:
    rng = np.random.default_rng(12)
    features = rng.normal(size=(400, 3))
    groups = np.where(rng.random(400) < 0.4, "a", "b")
    features[:, 0] += groups == "b"
    weights = np.array([1.0, -0.5, 0.2])
    decisions = (features @ weights > 0.4).astype(int)
    return projection_test(
        groups=groups,
        decisions=decisions,
        distances=linear_distances(features, weights, -0.4),
    )


@case
def projection_too_few() -> Any:
    rows = projected_rows()
    return projection_test(
        groups=rows["sex"][:12], decisions=rows["decisions"][:12], distances=rows["distances"][:12]
    )


@case
def projection_selective_labels() -> Any:
    rows = projected_rows()
    labels = np.where(rows["decisions"] == 1, rows["labels"], np.nan)
    return _projection("sex", criterion="equalized_odds", labels=labels)
