"""The permutation test of a correlation with a continuous protected attribute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.checked_arrays import finite, require_length
from offline_audit.permutation.intervals import Interval
from offline_audit.permutation.measured import DETECTABLE, LEAST_UNITS
from offline_audit.permutation.options import require_draws
from offline_audit.permutation.outcome import Comparison, Side
from offline_audit.permutation.ratio_test import judged_by_draws
from offline_audit.permutation.rearranged_sums import Alternative, Progress, Rearranging, chunks

__all__ = ["correlation_test"]

Float = NDArray[np.float64]

# Relative to the size of the values.
_NO_SPREAD = 1e-12
# Kurtosis; 3 is normal, 9 that of waiting times (docs/decisions/0009).
_FAR = 10.0


def correlation_test(
    protected: Any,
    values: Any,
    *,
    attribute: str = "attribute",
    of: str = "value",
    alternative: Alternative = "two-sided",
    studentized: bool = True,
    draws: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Comparison:
    """Is a score, or an error, correlated with a continuous attribute such as age?

    H0: the correlation ρ is 0, although the spread of one may depend on the other. T = √n ρ / τ,
    τ² = m₂₂ / (m₂₀ m₀₂), m being central moments (DiCiccio and Romano, JASA 112, 2017, eq. 2.4).
    Without studentizing, the test asks for independence, and rejects for unequal spreads.

    Args:
        protected: A number for each row, such as age.
        values: A number for each row: score, error, decision.
        attribute: Name of the first.
        of: Name of the second.
        alternative: `greater` if only a positive correlation counts.
        studentized: False for the plain correlation.
        draws: Rearrangements.
        seed: Of the draws.
        confidence: Level of the interval.
        progress: Called with draws done and draws in all.

    Raises:
        AuditInputError: The arrays differ in length or hold what is no finite number, or an
            option is none.
    """
    require_draws(alternative=alternative, draws=draws, seed=seed, confidence=confidence)
    x, y = finite(protected, attribute), finite(values, of)
    n = require_length({attribute: len(x), of: len(y)})
    how = Rearranging(
        alternative=alternative, draws=draws, seed=seed, studentized=studentized, progress=progress
    )
    reason, judged, rho, interval, error = None, None, None, None, None
    scaled = [_standardized(part) for part in (x, y)]
    if scaled[0] is None or scaled[1] is None:
        flat = attribute if scaled[0] is None else of
        reason = f"{flat} has the same value in every row, so nothing can be correlated with it"
    else:
        u, v = scaled[0], scaled[1]
        rho = float(u @ v / n)
        error = math.sqrt(float(u**2 @ v**2) / n / n)
        interval = _interval(u, v, rho, confidence)
        if n < LEAST_UNITS:
            reason = f"not enough data: {n} rows; {LEAST_UNITS} are needed"
    if reason is None:
        assert rho is not None
        assert scaled[0] is not None
        assert scaled[1] is not None
        seen = float(_statistic(scaled[0], scaled[1][None, :], how)[0])
        judged = judged_by_draws(seen, _drawn(scaled[0], scaled[1], how), alternative)
    return Comparison(
        metric="correlation",
        question=f"is {of} correlated with {attribute}?",
        attribute=attribute,
        group=Side(
            name=f"{of} with {attribute}", rows=n, counted=n, hits=None, units=n, estimate=rho
        ),
        other=None,
        effect=rho,
        interval=interval,
        interval_method="Fisher's z, with a variance that allows unequal spreads",
        confidence=confidence,
        statistic=None if judged is None else judged.statistic,
        p_value=None if judged is None else judged.p_value,
        reason=reason,
        alternative=alternative,
        exchanged="all rows",
        draws=0 if judged is None else judged.draws,
        degenerate_draws=0 if judged is None else judged.degenerate,
        smallest_detectable=None if error is None else DETECTABLE * error,
        smallest_cell=float(n),
        least_cell=LEAST_UNITS,
        binning_error=0.0,
        warnings=_far_values({attribute: scaled[0], of: scaled[1]}),
        seed=seed,
    )


def _standardized(values: Float) -> Float | None:
    centred = values - values.mean()
    spread = float(np.sqrt(centred @ centred / len(centred)))
    if spread <= _NO_SPREAD * max(float(np.abs(values).max()), 1e-300):
        return None
    found: Float = centred / spread
    return found


def _far_values(scaled: dict[str, Float | None]) -> tuple[str, ...]:
    """What to know of values with far outliers, which no statistic of few rows makes up for."""
    found = []
    for name, values in scaled.items():
        if values is not None and float(np.mean(values**4)) > _FAR:
            found.append(
                f"Few rows with far values of {name} decide this correlation. If the spread of one "
                "depends on the other, about one fair sample in ten has p below .05; compare "
                "logarithms or ranks instead."
            )
    return tuple(found)


def _statistic(u: Float, v: Float, how: Rearranging) -> Float:
    """Of standardized values, `[n]` against rearranged ones, `[d, n]`."""
    n = len(u)
    rho: Float = v @ u / n
    if not how.studentized:
        return rho
    found: Float = math.sqrt(n) * rho / np.sqrt(v**2 @ u**2 / n)
    return found


def _drawn(u: Float, v: Float, how: Rearranging) -> Float:
    rng = np.random.default_rng(how.seed)
    found = [
        _statistic(u, rng.permuted(np.tile(v, (part, 1)), axis=1), how)
        for part in chunks(how, 2 * len(u))
    ]
    return np.concatenate(found)


def _interval(u: Float, v: Float, rho: float, confidence: float) -> Interval:
    """By the influence of each row on ρ, u v − ρ (u² + v²) / 2, on the scale of Fisher's z.

    Each influence is divided by 1 − leverage, the larger of the two, as HC3 does for slopes: far
    rows pull ρ towards themselves and so look closer than they are.
    """
    n = len(u)
    leverage = np.minimum((1 + np.maximum(u**2, v**2)) / n, 0.9)
    influence = (u * v - rho * (u**2 + v**2) / 2) / (1 - leverage)
    inside = min(max(rho, -1 + 1e-12), 1 - 1e-12)
    error = math.sqrt(float(influence @ influence)) / n / (1 - inside**2)
    half = float(stats.t.ppf((1 + confidence) / 2, max(n - 2, 1))) * error
    return math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
