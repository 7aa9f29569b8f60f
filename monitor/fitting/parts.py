"""Disjoint parts of the data.

    rows ─┬─ 50%  training: status model and transport maps
          ├─ 10%  calibration: temperatures of the status model, number of draws
          ├─ 20%  baseline: scores that production is compared with
          └─ 20%  evaluation: the audit

The parts are disjoint, so the baseline is exchangeable with traffic and the audit is unbiased.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from monitor.errors import FitError

__all__ = ["check_parts", "disjoint_parts"]

_SHARES = {"training": 0.5, "calibration": 0.1, "baseline": 0.2, "evaluation": 0.2}


def disjoint_parts(rows: int, seed: int, *, most_scored: int) -> dict[str, NDArray[np.int64]]:
    """Row indices of each part: training, calibration, baseline and evaluation.

    Args:
        rows: Number of rows.
        seed: Seed of their random order.
        most_scored: Largest number of rows of the baseline and of the evaluation.
    """
    order = np.random.default_rng(seed).permutation(rows)
    cuts = np.cumsum([int(share * rows) for share in _SHARES.values()])[:-1]
    parts = dict(zip(_SHARES, np.split(order, cuts), strict=True))
    for part in ("baseline", "evaluation"):
        parts[part] = parts[part][:most_scored]
    return parts


def check_parts(
    parts: Mapping[str, NDArray[np.int64]], groups: Mapping[str, NDArray[np.int8]]
) -> None:
    """Check that every part has rows of at least two groups of each attribute.

    Raises:
        FitError: A part has rows of fewer groups.
    """
    for part, rows in parts.items():
        for name, known in groups.items():
            if len(np.unique(known[rows][known[rows] >= 0])) < 2:
                raise FitError(
                    f"too few rows: the {part} part has fewer than two groups of {name!r}"
                )
