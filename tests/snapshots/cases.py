"""All cases: importing a module of cases registers them."""

from __future__ import annotations

from tests.snapshots import (
    fliptest_cases,
    monitor_cases,
    permutation_cases,
    projection_cases,
    window_cases,
)
from tests.snapshots.case import CASES

__all__ = ["CASES"]

_REGISTERED = (permutation_cases, projection_cases, fliptest_cases, window_cases, monitor_cases)
assert all(_REGISTERED)
