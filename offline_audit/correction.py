"""Corrections of p-values for multiple tests."""

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
    "bh": "The expected share of false positives among reported differences is at most α (false "
    "discovery rate, Benjamini and Hochberg; for independent or positively dependent tests).",
    "by": "The expected share of false positives among reported differences is at most α (false "
    "discovery rate, Benjamini and Yekutieli; for any dependence between tests).",
    "holm": "The probability of any false positive is at most α (family-wise error rate, Holm).",
    "none": "Each test alone has a false positive rate of at most α; not corrected for the number "
    "of tests.",
}


def adjusted_p_values(p_values: Sequence[float | None], method: Correction) -> list[float | None]:
    """p-values corrected for the number of tests.

    Args:
        p_values: p-values; None where there was not enough data, which does not count as a test.
        method: Correction method.

    Raises:
        AuditInputError: There is no such method.
    """
    if method not in _GUARANTEES:
        raise AuditInputError(
            f"correction: unknown method {method!r}; use one of {', '.join(_GUARANTEES)}"
        )
    tested = [index for index, p in enumerate(p_values) if p is not None]
    raw = np.array([p_values[index] for index in tested], float)
    adjusted: list[float | None] = [None] * len(p_values)
    for index, p in zip(tested, _adjusted(raw, method), strict=True):
        adjusted[index] = float(p)
    return adjusted


def guarantee(method: Correction) -> str:
    """Statistical guarantee of a method, in words."""
    return _GUARANTEES[method]


def _adjusted(p: np.ndarray, method: Correction) -> np.ndarray:
    if method == "none" or not len(p):
        return p
    if method != "holm":
        return np.asarray(false_discovery_control(p, method=method))
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
