"""What a FlipTest is asked to do, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.errors import AuditInputError
from offline_audit.groups import word_of
from offline_audit.maps.transport_map import MapMethod
from offline_audit.rendering import some
from offline_audit.validation import require_alpha, require_whole

__all__ = ["Options", "checked_options"]

_PERMUTATIONS, _RESAMPLES = 499, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test was asked to do; see `flip_test`."""

    criterion: Criterion
    method: MapMethod
    reference: str | None
    n_counterparts: int
    n_resamples: int
    n_bootstrap: int
    alpha: float
    max_rows: int
    smallest_group: int
    smallest_cell: int
    explain: bool
    seed: int

    @property
    def labels(self) -> tuple[int | None, ...]:
        """Within which outcomes people are transported; None: whatever the outcome."""
        return CRITERIA[self.criterion]


def checked_options(
    *,
    criterion: Any,
    method: MapMethod,
    reference: Any,
    n_counterparts: Any,
    n_resamples: Any,
    n_bootstrap: Any,
    alpha: Any,
    max_rows: Any,
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
    return Options(
        criterion=criterion,
        method=method,
        reference=None if reference is None else word_of(reference),
        n_counterparts=_whole("n_counterparts", n_counterparts, 1),
        n_resamples=_whole("n_resamples", _default(n_resamples, method, _PERMUTATIONS), 0),
        n_bootstrap=_whole("n_bootstrap", _default(n_bootstrap, method, _RESAMPLES), 0),
        alpha=require_alpha(alpha),
        max_rows=_whole("max_rows", max_rows, 1),
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
    return require_whole(name, value, least)
