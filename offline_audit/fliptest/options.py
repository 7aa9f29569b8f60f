"""Options of a FlipTest, validated, with defaults that depend on the map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.errors import AuditInputError
from offline_audit.groups import word_of
from offline_audit.maps.transport_map import MapMethod
from offline_audit.validation import require_alpha, require_whole

__all__ = ["Options", "checked_options", "pair_steps"]

# Steps of a pair besides its refits: fitting, deciding, identification, explanation.
_STEPS = 4
# Defaults, for maps that are quick to fit.
_REFITS = {"n_resamples": 499, "n_bootstrap": 100}
# Smallest value of every option that is a whole number.
_LEAST = {
    "n_counterparts": 1,
    "n_resamples": 0,
    "n_bootstrap": 0,
    "max_rows": 1,
    "smallest_group": 10,
    "smallest_cell": 1,
    "seed": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Validated options of a FlipTest; see `flip_test`."""

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
    # Attribute by variable that holds it.
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[int | None, ...]:
        """Labels within which rows are transported; None for rows of any label."""
        return CRITERIA[self.criterion]


def checked_options(
    *, criterion: Any, method: MapMethod, reference: Any, alpha: Any, explain: bool, **integers: Any
) -> Options:
    """Validate options and fill in defaults: slow maps are not refitted unless requested.

    Raises:
        AuditInputError: An option is invalid.
    """
    if not any(criterion == name for name in CRITERIA):
        raise AuditInputError(
            f"criterion: unknown criterion {criterion!r}; use one of {', '.join(CRITERIA)}"
        )
    for name, default in _REFITS.items():
        if integers[name] is None:
            integers[name] = default if method.quick else 0
    whole: dict[str, Any] = {
        name: require_whole(name, value, _LEAST[name]) for name, value in integers.items()
    }
    return Options(
        criterion=criterion,
        method=method,
        reference=None if reference is None else word_of(reference),
        alpha=require_alpha(alpha),
        explain=bool(explain),
        **whole,
    )


def pair_steps(options: Options) -> int:
    """Number of progress steps of one pair."""
    return _STEPS + options.n_resamples + options.n_bootstrap
