"""Options that a caller gives, checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from offline_audit.errors import AuditInputError

__all__ = ["is_whole", "require_confidence", "require_draws", "require_limits"]

_ALTERNATIVES = ("two-sided", "greater", "less")
_LEAST_DRAWS = 99
# Fewer would blur what the draws are compared by.
_LEAST_BINS = 32


def require_draws(
    *, alternative: Any, draws: Any, seed: Any, bins: Any = None, confidence: Any
) -> None:
    """How rearrangements are drawn and read.

    Raises:
        AuditInputError: One of them is not what it should be.
    """
    if not isinstance(alternative, str) or alternative not in _ALTERNATIVES:
        raise AuditInputError(f"alternative: one of {', '.join(_ALTERNATIVES)}")
    if not is_whole(draws):
        raise AuditInputError("draws: a whole number is needed")
    if draws < _LEAST_DRAWS:
        raise AuditInputError(f"draws: at least {_LEAST_DRAWS}, or no p-value can be below 1%")
    if not is_whole(seed) or seed < 0:
        raise AuditInputError("seed: a whole number from 0 on is needed")
    if bins is not None and (not is_whole(bins) or 0 < bins < _LEAST_BINS or bins < 0):
        raise AuditInputError(f"bins: None, 0 for none, or a whole number from {_LEAST_BINS} on")
    require_confidence(confidence)


def require_confidence(confidence: Any) -> None:
    """Level of an interval.

    Raises:
        AuditInputError: It is none.
    """
    if not _number(confidence) or not 0.5 <= confidence < 1:
        raise AuditInputError("confidence: from .5 to below 1")


def require_limits(limits: Any) -> None:
    """Between which scores must lie.

    Raises:
        AuditInputError: They are not two ascending numbers.
    """
    if limits is None:
        return
    ends = list(limits) if isinstance(limits, tuple | list | np.ndarray) else []
    if len(ends) != 2 or not all(map(_number, ends)) or not ends[0] < ends[1]:
        raise AuditInputError("score_limits: None, or two numbers, the lower first")


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, and neither true nor false."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and not math.isnan(value)
