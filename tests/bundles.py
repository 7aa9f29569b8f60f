"""A small bundle for tests: five columns, every kind of feature, two protected attributes."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import torch
from torch import nn

from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
    export_classifier,
)

WIDTH = 5


def small_spec(**changes: Any) -> BundleSpec:
    """Spec of the small bundle, with some fields changed."""
    fields: dict[str, Any] = {
        "model": Model(name="loans", version="3"),
        "classifier": ClassifierFile(output="logit"),
        "features": (
            Feature(name="income", kind="numeric", low=0.5, high=3.0),
            Feature(name="years", kind="integer", low=0, high=40),
            Feature(name="owner", kind="binary"),
            Feature(name="purpose=car", kind="onehot"),
            Feature(name="purpose=home", kind="onehot"),
        ),
        "one_hot_groups": (
            OneHotGroup(name="purpose", features=("purpose=car", "purpose=home"), dropped="other"),
        ),
        "protected_attributes": (
            ProtectedAttribute(name="sex", groups=("man", "woman")),
            ProtectedAttribute(name="age", groups=("young", "old"), feature="owner"),
        ),
        "decision": Decision(threshold=0.4, class_names=("refused", "granted")),
        "fitted": Fitted(
            at=dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
            evenhand="0.1.0",
            torch=torch.__version__,
            seed=1,
            rows=100,
        ),
    }
    return BundleSpec(**{**fields, **changes})


def small_module() -> nn.Module:
    """A classifier with batch norm and dropout, in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 1)
        )


@functools.cache
def exported_classifier() -> bytes:
    """The small classifier as the bytes of `classifier.pt2`."""
    return export_classifier(small_module(), WIDTH)
