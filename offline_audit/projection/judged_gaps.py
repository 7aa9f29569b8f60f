"""Whether chance explains the gaps, or why that cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, restricted_rates
from offline_audit.projection.kernel_density import kernel_crowding
from offline_audit.projection.limiting_law import curve_crowding, cushion, p_value
from offline_audit.projection.options import Options
from offline_audit.projection.sample import Sample
from offline_audit.projection.tolerance import tolerated_p_value

__all__ = ["Judged", "judge"]

# Rates that differ by less are equal, but for rounding.
_EQUAL = 1e-9
_WHATEVER_COST = 'law="standardized" judges the gaps whatever they cost.'
_COSTLESS = (
    f"closing the gaps costs nothing, since so many rows lie on the boundary; {_WHATEVER_COST}"
)
_DESERTED = f"no row is near enough to the boundary to estimate what gaps cost; {_WHATEVER_COST}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A p-value, or why there is none.

    Attributes:
        softness: S, how far gaps give way for a unit of cost, `[m, m]`.
        p_value: None if it would mean nothing.
        error: Standard error of the p-value where it is simulated, else 0.
        reason: Why there is no p-value.
    """

    softness: NDArray[np.float64]
    p_value: float | None = None
    error: float = 0.0
    reason: str | None = None


def judge(
    sample: Sample, strata: Sequence[Stratum], found: Gaps, statistic: float, options: Options
) -> Judged:
    """The p-value by the law that was asked for.

    Args:
        sample: The rows.
        strata: Their cells.
        found: The gaps.
        statistic: What closing them costs, finite.
        options: As asked.
    """
    softness = cushion(found, _crowding(sample, strata, found, options))
    if statistic == 0 and _unpriced(found, strata, options):
        return Judged(softness=softness, reason=_COSTLESS)
    if not (np.diag(softness) > 0).all():
        return Judged(softness=softness, reason=_DESERTED)
    p, error = _p_value(found, softness, strata, statistic, options)
    return Judged(softness=softness, p_value=p, error=error)


def _unpriced(found: Gaps, strata: Sequence[Stratum], options: Options) -> bool:
    """Whether gaps that are there are to be weighed by a cost that is 0."""
    if _cancels(found, options):
        return False
    fair = [
        restricted_rates(s, tolerance=options.tolerance, favoured=options.favoured) for s in strata
    ]
    apart = (np.abs(s.rates - rates).max() for s, rates in zip(strata, fair, strict=True))
    return any(gap > _EQUAL for gap in apart)


def _cancels(found: Gaps, options: Options) -> bool:
    """Whether distances have no say: the price of a single gap cancels, but by the paper's law."""
    return options.law == "standardized" or (options.law == "curve" and len(found.values) == 1)


def _crowding(
    sample: Sample, strata: Sequence[Stratum], found: Gaps, options: Options
) -> NDArray[np.float64] | None:
    if _cancels(found, options):
        return None
    if options.law == "curve":
        return curve_crowding(strata)
    return kernel_crowding(sample, strata, bandwidth=options.bandwidth)


def _p_value(
    found: Gaps,
    softness: NDArray[np.float64],
    strata: Sequence[Stratum],
    statistic: float,
    options: Options,
) -> tuple[float, float]:
    bounded = options.tolerance > 0 or options.one_sided
    if options.law == "kernel" and statistic == 0:
        return 1.0, 0.0
    if options.law == "kernel" and bounded:
        return 0.5 * p_value(found, softness, law="kernel", statistic=statistic), 0.0
    if bounded:
        return tolerated_p_value(
            found, softness, strata, tolerance=options.tolerance, favoured=options.favoured
        )
    return p_value(found, softness, law=options.law, statistic=statistic), 0.0
