"""Probe rows: synthetic rows that a classifier is tested on before it is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Feature

__all__ = ["probe_features", "with_ranges"]


def with_ranges(features: Sequence[Feature], rows: NDArray[np.float32]) -> tuple[Feature, ...]:
    """Features with the 1% to 99% quantile range of their values in rows `[n, d]`."""
    lows, highs = np.quantile(rows, [0.01, 0.99], axis=0).tolist()
    return tuple(
        feature.model_copy(update={"low": low, "high": high})
        if feature.kind in ("numeric", "integer")
        else feature
        for feature, low, high in zip(features, lows, highs, strict=True)
    )


def probe_features(spec: BundleSpec, rows: int) -> NDArray[np.float32]:
    """Synthetic rows of each feature's kind and range, float32 `[rows, d]`."""
    rng = np.random.default_rng(0)
    features = np.zeros((rows, spec.width), np.float32)
    for column, feature in enumerate(spec.features):
        low = 0.0 if feature.low is None else feature.low
        high = 1.0 if feature.high is None else feature.high
        if feature.kind == "numeric":
            features[:, column] = rng.uniform(low, high, rows)
        elif feature.kind in ("integer", "binary"):
            features[:, column] = np.round(rng.uniform(low, high, rows))
    columns = {feature.name: column for column, feature in enumerate(spec.features)}
    for group in spec.one_hot_groups:
        members = [columns[name] for name in group.features]
        # One more choice if a category was dropped: all zeros.
        choice = rng.integers(len(members) + (group.dropped is not None), size=rows)
        for index, column in enumerate(members):
            features[:, column] = choice == index
    return features
