"""Many tests of one window: p-values that allow for how many were asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.stats import false_discovery_control

from offline_audit.errors import AuditInputError

__all__ = ["Correction", "adjusted_p_values", "guarantee"]

# Benjamini and Hochberg; Benjamini and Yekutieli; Holm; none.
Correction = Literal["bh", "by", "holm", "none"]

_GUARANTEES: dict[Correction, str] = {
    "bh": "of the differences that are called, at most the level are expected to be none "
    "(Benjamini and Hochberg; holds for tests that are independent or go together)",
    "by": "of the differences that are called, at most the level are expected to be none, however "
    "the tests depend on each other (Benjamini and Yekutieli)",
    "holm": "the chance that any difference is called that is none is at most the level (Holm)",
    "none": "each test on its own is wrong at most as often as the level says; of many, more are",
}


def adjusted_p_values(p_values: Sequence[float | None], method: Correction) -> list[float | None]:
    """The level at which each test would be called, given all of them.

    Args:
        p_values: None where there was not enough data; such a test does not count as one.
        method: How it is allowed for.

    Raises:
        AuditInputError: There is no such method.
    """
    if method not in _GUARANTEES:
        raise AuditInputError(f"correction: {method!r} is none; there are {', '.join(_GUARANTEES)}")
    tested = [place for place, p in enumerate(p_values) if p is not None]
    raw = np.array([p_values[place] for place in tested], float)
    found: list[float | None] = [None] * len(p_values)
    for place, p in zip(tested, _adjusted(raw, method), strict=True):
        found[place] = float(p)
    return found


def guarantee(method: Correction) -> str:
    """What a method promises, in words."""
    return _GUARANTEES[method]


def _adjusted(p: np.ndarray, method: Correction) -> np.ndarray:
    if method == "none" or not len(p):
        return p
    if method != "holm":
        return np.asarray(false_discovery_control(p, method=method))
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty_like(p)
    found[order] = np.minimum(steps, 1.0)
    return found
