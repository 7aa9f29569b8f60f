"""What a FlipTest is asked to do, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offline_audit.errors import AuditInputError
from offline_audit.group_names import word_of
from offline_audit.maps.transport_map import MapMethod
from offline_audit.plain_words import some
from offline_audit.projection.criteria import CRITERIA, Criterion

__all__ = ["Options", "checked_options"]

_PERMUTATIONS, _RESAMPLES = 499, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test was asked to do; see `flip_test`."""

    criterion: Criterion
    method: MapMethod
    reference: str | None
    draws: int
    permutations: int
    resamples: int
    level: float
    most_rows: int
    smallest_group: int
    smallest_cell: int
    explain: bool
    seed: int

    @property
    def labels(self) -> tuple[int | None, ...]:
        """Within which outcomes people are carried; None: whatever the outcome."""
        return CRITERIA[self.criterion]


def checked_options(
    *,
    criterion: Any,
    method: MapMethod,
    reference: Any,
    draws: Any,
    permutations: Any,
    resamples: Any,
    level: Any,
    most_rows: Any,
    smallest_group: Any,
    smallest_cell: Any,
    explain: bool,
    seed: Any,
) -> Options:
    """Refuse what fits no test; maps that are slow to fit are not refitted unless asked for.

    Raises:
        AuditInputError: An option is none that the test takes.
    """
    if not any(criterion == each for each in CRITERIA):
        raise AuditInputError(f"criterion: {criterion!r} is none of {some(list(CRITERIA), 9)}")
    if not isinstance(level, int | float) or not 0 < level < 1:
        raise AuditInputError(f"level: {level!r} is not between 0 and 1")
    return Options(
        criterion=criterion,
        method=method,
        reference=None if reference is None else word_of(reference),
        draws=_whole("draws", draws, 1),
        permutations=_whole("permutations", _default(permutations, method, _PERMUTATIONS), 0),
        resamples=_whole("resamples", _default(resamples, method, _RESAMPLES), 0),
        level=float(level),
        most_rows=_whole("most_rows", most_rows, 1),
        smallest_group=_whole("smallest_group", smallest_group, 10),
        smallest_cell=_whole("smallest_cell", smallest_cell, 1),
        explain=bool(explain),
        seed=_whole("seed", seed, 0),
    )


def _default(given: Any, method: MapMethod, usual: int) -> Any:
    if given is None:
        return usual if method.quick else 0
    return given


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise AuditInputError(f"{name}: a whole number of at least {least} is needed")
    return int(value)
