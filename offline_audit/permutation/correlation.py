"""The permutation test of a correlation with a continuous protected attribute."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.coverage import Unknowns
from offline_audit.duplicates import duplicate_warning
from offline_audit.intervals import Interval
from offline_audit.permutation.estimates import (
    SMALLEST_UNITS,
    GroupEstimate,
)
from offline_audit.permutation.permutations import (
    Alternative,
    PermutationOptions,
    chunks,
    p_value_from_resamples,
    require_options,
)
from offline_audit.permutation.power import (
    POWER_QUANTILE,
    detectable_shift,
    tested_directions,
)
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.unknown import Missing
from offline_audit.power import Detectable, possible
from offline_audit.progress import Progress, reporting
from offline_audit.validation import finite, require_length

__all__ = ["correlation_test"]

Float = NDArray[np.float64]

# A standard deviation below this, relative to the values, is rounding error.
_NO_SPREAD = 1e-12
# Steps in which the smallest detectable correlation converges.
_ITERATIONS = 50
# Kurtosis above which outliers are reported; 3 is normal, 9 exponential (docs/decisions/0009).
_HEAVY_TAILS = 10.0


def correlation_test(
    attribute_values: Any,
    values: Any,
    *,
    attribute: str = "attribute",
    of: str = "value",
    alternative: Alternative = "two-sided",
    studentized: bool = True,
    alpha: float = 0.05,
    confidence_level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Comparison:
    """Is a score, or an error, correlated with a continuous attribute such as age?

    H0: the correlation ρ is 0; the variance of one may depend on the other. T = √n ρ / τ,
    τ² = m₂₂ / (m₂₀ m₀₂), with central moments m (DiCiccio and Romano, JASA 112, 2017, eq. 2.4).
    Without studentizing, H0 is independence, and the test also rejects for unequal variances.

    Args:
        attribute_values: Protected attribute of each row, a number such as age.
        values: Score, error or decision of each row.
        attribute: Name of the attribute.
        of: Name of the values.
        alternative: `greater` if only a positive correlation counts.
        studentized: False for the plain correlation.
        alpha: Significance level.
        confidence_level: Confidence level of the interval.
        n_resamples: Number of random permutations.
        seed: Seed of the random generator.
        progress: Function that is called with the current task, the steps done and the total;
            True for a progress bar, False for none, None for a bar if stderr is a terminal.

    Raises:
        AuditInputError: The arrays differ in length, a value is not a finite number, or an option
            is invalid.
    """
    require_options(
        alternative=alternative,
        alpha=alpha,
        confidence_level=confidence_level,
        n_resamples=n_resamples,
        seed=seed,
    )
    x, y = finite(attribute_values, attribute), finite(values, of)
    n = require_length({attribute: len(x), of: len(y)})
    copies = duplicate_warning([x, y], "Keep one row per person.")
    u, v = _standardized(x), _standardized(y)
    options = PermutationOptions(
        alternative=alternative,
        n_resamples=int(n_resamples),
        seed=int(seed),
        alpha=alpha,
        studentized=studentized,
    )
    reason, test, rho, interval, detectable = None, None, None, None, None
    if u is None or v is None:
        constant = attribute if u is None else of
        reason = f"{constant} has the same value in every row, so it has no correlation"
    else:
        rho = float(u @ v / n)
        detectable = _detectable(math.sqrt(float(u**2 @ v**2) / n), n, options)
        interval = _interval(u, v, rho, confidence_level)
        if n < SMALLEST_UNITS:
            reason = f"{n} rows; at least {SMALLEST_UNITS} are needed"
        else:
            observed = float(_statistic(u, v[None, :], options)[0])
            with reporting(progress, int(n_resamples)) as reporter:
                reporter.doing(f"permuting {of}")
                options = dataclasses.replace(options, step=reporter.step)
                null_distribution = _null_distribution(u, v, options)
            test = p_value_from_resamples(observed, null_distribution, alternative)
    group = GroupEstimate(
        name=f"{of} with {attribute}", rows=n, counted=n, hits=None, units=n, estimate=rho
    )
    return Comparison(
        metric="correlation",
        question=f"is {of} correlated with {attribute}?",
        attribute=attribute,
        group=group,
        other=None,
        effect=rho,
        unit="correlation",
        direction=_direction(attribute, of, rho),
        interval=interval,
        interval_method="Fisher's z with a variance that is robust to heteroscedasticity",
        alpha=alpha,
        confidence_level=confidence_level,
        statistic=None if test is None else test.statistic,
        p_value=None if test is None else test.p_value,
        reason=reason,
        alternative=alternative,
        exchanged="all rows",
        n_resamples=0 if test is None else test.n_resamples,
        degenerate_resamples=0 if test is None else test.degenerate,
        smallest_detectable_effect=detectable,
        smallest_count=float(n),
        required_count=SMALLEST_UNITS,
        binning_error=0.0,
        missing=Missing(unknown=Unknowns(rows=n, groups={attribute: 0})),
        warnings=(*_outlier_warnings({attribute: u, of: v}), *filter(None, [copies])),
        seed=seed,
    )


def _detectable(tau: float, n: int, options: PermutationOptions) -> Detectable:
    """The smallest detectable correlations; approximate.

    As for normal variables, a correlation ρ increases τ² by 2ρ² and reduces the standard deviation
    of its estimate by the factor 1 − ρ².
    """
    shift = detectable_shift(0.0, options)
    rho = shift * tau / math.sqrt(n)
    for _ in range(_ITERATIONS):
        critical = (shift - POWER_QUANTILE) * math.sqrt(tau**2 + 2 * rho**2)
        rho = min((critical + POWER_QUANTILE * tau * (1 - rho**2)) / math.sqrt(n), 2.0)
    return tested_directions(possible((-rho, rho), 0.0, -1.0, 1.0), options)


def _direction(attribute: str, of: str, rho: float | None) -> str | None:
    if rho is None:
        return None
    return (
        f"rows with a higher {attribute} have a {'higher' if rho > 0 else 'lower'} {of} on average"
    )


def _standardized(values: Float) -> Float | None:
    """Values with mean 0 and standard deviation 1; None if they are constant."""
    centred = values - values.mean()
    spread = float(np.sqrt(centred @ centred / len(centred)))
    if spread <= _NO_SPREAD * max(float(np.abs(values).max()), 1e-300):
        return None
    standardized: Float = centred / spread
    return standardized


def _outlier_warnings(standardized: dict[str, Float | None]) -> tuple[str, ...]:
    """Warnings about outliers, for which no statistic of few rows can compensate."""
    return tuple(
        f"A few rows with outlying values of {name} determine this correlation. If the variance of "
        "one variable depends on the other, about one in ten samples without correlation has p "
        "below .05; compare logarithms or ranks instead."
        for name, values in standardized.items()
        if values is not None and float(np.mean(values**4)) > _HEAVY_TAILS
    )


def _statistic(u: Float, v: Float, options: PermutationOptions) -> Float:
    """T of standardized values, `[n]` with permuted values, `[d, n]`, to `[d]`."""
    n = len(u)
    rho: Float = v @ u / n
    if not options.studentized:
        return rho
    # τ² = m₂₂ / (m₂₀ m₀₂); standardized values have m₂₀ = m₀₂ = 1.
    t: Float = math.sqrt(n) * rho / np.sqrt(v**2 @ u**2 / n)
    return t


def _null_distribution(u: Float, v: Float, options: PermutationOptions) -> Float:
    rng = np.random.default_rng(options.seed)
    statistics = [
        _statistic(u, rng.permuted(np.tile(v, (part, 1)), axis=1), options)
        for part in chunks(options, 2 * len(u))
    ]
    return np.concatenate(statistics)


def _interval(u: Float, v: Float, rho: float, confidence_level: float) -> Interval:
    """Interval from the influence of each row on ρ, u v − ρ (u² + v²) / 2, on Fisher's z scale.

    Each influence is divided by 1 − leverage, the larger of the two, as HC3 does for slopes:
    outliers pull ρ towards themselves, so their residuals are too small.
    """
    n = len(u)
    leverage = np.minimum((1 + np.maximum(u**2, v**2)) / n, 0.9)
    influence = (u * v - rho * (u**2 + v**2) / 2) / (1 - leverage)
    inside = min(max(rho, -1 + 1e-12), 1 - 1e-12)
    error = math.sqrt(float(influence @ influence)) / n / (1 - inside**2)
    half = float(stats.t.ppf((1 + confidence_level) / 2, max(n - 2, 1))) * error
    return math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
