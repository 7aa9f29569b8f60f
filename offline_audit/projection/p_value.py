"""The p-value of the gaps, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.cells import Stratum
from offline_audit.projection.gaps import Gaps, restricted_rates
from offline_audit.projection.limiting_law import (
    curve_density,
    kernel_density,
    limiting_p_value,
    s_matrix,
)
from offline_audit.projection.options import Options
from offline_audit.projection.sample import Sample
from offline_audit.projection.tolerance import tolerated_p_value

__all__ = ["PValue", "p_value_of"]

# Rates that differ by less than rounding are equal.
_EQUAL = 1e-9
_USE_STANDARDIZED = 'law="standardized" tests the gaps independently of their cost.'
_NO_COST = (
    "closing the gaps costs nothing, because too many rows lie on the boundary; "
    f"{_USE_STANDARDIZED}"
)
_NO_DENSITY = (
    "no row is near enough to the boundary to estimate the cost of the gaps; " + _USE_STANDARDIZED
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PValue:
    """A p-value, or why there is none.

    Attributes:
        s: S of Theorem 1, `[m, m]`.
        value: The p-value; None if it would be meaningless.
        error: Standard error of the p-value if it is simulated, else 0.
        reason: Why there is no p-value.
    """

    s: NDArray[np.float64]
    value: float | None = None
    error: float = 0.0
    reason: str | None = None


def p_value_of(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, statistic: float, options: Options
) -> PValue:
    """The p-value by the requested law.

    Args:
        sample: The rows.
        strata: Cells of the rows.
        gaps: The gaps.
        statistic: Cost of closing the gaps, finite.
        options: Options of the test.
    """
    s = s_matrix(gaps, _density(sample, strata, gaps, options))
    if statistic == 0 and _has_free_gaps(gaps, strata, options):
        return PValue(s=s, reason=_NO_COST)
    if not (np.diag(s) > 0).all():
        return PValue(s=s, reason=_NO_DENSITY)
    p, error = _computed(gaps, s, strata, statistic, options)
    return PValue(s=s, value=p, error=error)


def _has_free_gaps(gaps: Gaps, strata: Sequence[Stratum], options: Options) -> bool:
    """Whether rates are unfair although the cost that weights their gaps is 0."""
    if _cost_cancels(gaps, options):
        return False
    fair = [
        restricted_rates(s, tolerance=options.tolerance, favoured=options.favoured) for s in strata
    ]
    excess = (np.abs(s.rates - rates).max() for s, rates in zip(strata, fair, strict=True))
    return any(gap > _EQUAL for gap in excess)


def _cost_cancels(gaps: Gaps, options: Options) -> bool:
    """Whether p does not depend on distances: a single gap cancels S, except in the paper's law."""
    return options.law == "standardized" or (options.law == "curve" and len(gaps.values) == 1)


def _density(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, options: Options
) -> NDArray[np.float64] | None:
    if _cost_cancels(gaps, options):
        return None
    if options.law == "curve":
        return curve_density(strata)
    return kernel_density(sample, strata, bandwidth=options.bandwidth)


def _computed(
    gaps: Gaps,
    s: NDArray[np.float64],
    strata: Sequence[Stratum],
    statistic: float,
    options: Options,
) -> tuple[float, float]:
    """The p-value and its simulation error."""
    bounded = options.tolerance > 0 or options.one_sided
    if options.law == "kernel" and statistic == 0:
        return 1.0, 0.0
    if options.law == "kernel" and bounded:
        # One-sided: half of the two-sided tail (section 4).
        return 0.5 * limiting_p_value(gaps, s, law="kernel", statistic=statistic), 0.0
    if bounded:
        return tolerated_p_value(
            gaps,
            s,
            strata,
            tolerance=options.tolerance,
            favoured=options.favoured,
            seed=options.seed,
        )
    return limiting_p_value(gaps, s, law=options.law, statistic=statistic), 0.0
