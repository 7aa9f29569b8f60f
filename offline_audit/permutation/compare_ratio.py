"""One comparison of rates or means: requirements on the data, estimates, interval and test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.intervals import (
    Interval,
    combined,
    quantile,
    skewed_t_interval,
    wilson,
)
from offline_audit.permutation.estimates import (
    INVERTED,
    SMALLEST_UNITS,
    ComparisonEstimate,
    GroupEstimate,
)
from offline_audit.permutation.metrics import Metric
from offline_audit.permutation.permutations import PermutationOptions
from offline_audit.permutation.power import detectable_rate, detectable_shifts
from offline_audit.permutation.ratio_test import Moments, powers, ratio_moments, ratio_test
from offline_audit.permutation.sources import Tally
from offline_audit.power import Detectable

__all__ = [
    "SMALLEST_EFFECTIVE_UNITS",
    "SMALLEST_LABELS",
    "SMALLEST_RARE_VALUES",
    "SMALLEST_RATE_COUNT",
    "compare_ratio",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Expected successes and failures that either group needs. With fewer, two groups of the same size
# cannot reach a p-value of 5% for any data.
SMALLEST_RATE_COUNT = 2
# Effective units that either group needs, where units have several rows.
SMALLEST_EFFECTIVE_UNITS = 20
# Expected rows with label 1, and with label 0, that either group needs for a calibration gap.
SMALLEST_LABELS = 8
# Expected rare values that either group needs for a mean, where the groups differ in shape.
SMALLEST_RARE_VALUES = 5
# Upper 5% quantile of Kolmogorov's distribution.
_KOLMOGOROV = 1.358
# Quantiles at which two distributions are aligned before they are compared.
_ALIGNED = (0.1, 0.25, 0.5, 0.75)
# A standard deviation of a score below this is rounding error.
_NO_SPREAD = 1e-12


def compare_ratio(
    metric: Metric,
    tally: Tally,
    names: tuple[str, str],
    members: tuple[Int, Int],
    positives: tuple[int, int] | None,
    confidence_level: float,
    options: PermutationOptions,
) -> ComparisonEstimate:
    """Estimate and test a difference of rates or means, where there is enough data.

    Args:
        metric: The metric.
        tally: Units by type.
        names: Names of the two sides of the comparison.
        members: Indices of the groups of each side.
        positives: Counted rows with label 1 of each side, for a mean that involves the label.
        confidence_level: Confidence level of the interval.
        options: Number of permutations, seed, alternative.
    """
    pair = tally.between(*members)
    rates = metric.kind == "rate"
    first, second = (
        _group_estimate(name, tally.values, counts, rates=rates)
        for name, counts in zip(names, pair, strict=True)
    )
    required: float = SMALLEST_RATE_COUNT if rates else SMALLEST_UNITS
    for group in (first, second):
        if group.counted == 0:
            return ComparisonEstimate(
                groups=(first, second),
                required_count=required,
                reason=f"{metric.name} counts no row of {group.name}",
            )
    interval: Interval | None
    detectable: Detectable | None
    spread = _spread(tally.values, pair, rates=rates)
    if rates:
        smallest, detectable, interval, method = _rates(
            tally.values, pair, (first, second), confidence_level, options
        )
    else:
        smallest, detectable, interval, method = _means(
            tally.values, pair, confidence_level, options
        )
    reason, test = None, None
    if spread <= _NO_SPREAD:
        reason = "no variation: all counted rows have the same value"
    else:
        requirements = _requirements(
            tally.values, pair, (first, second), smallest, positives, rates=rates
        )
        unmet = next((r for r in requirements if r.count < r.required), None)
        if unmet is not None:
            smallest, required, reason = unmet.count, unmet.required, unmet.reason
    if reason is None:
        test = ratio_test(
            tally.values,
            tally.strata,
            *pair,
            rates=rates,
            confidence_level=confidence_level,
            options=options,
        )
        if test.p_value is None:
            reason = "no variation within the groups, so the difference has no standard error"
            test = None
    if not rates and test is None:
        # Without the rows that a test needs, no interval of a mean has its coverage.
        interval, method = None, "none"
    elif test is not None and test.interval is not None:
        interval, method = test.interval, INVERTED
    return ComparisonEstimate(
        groups=(first, second),
        interval=interval,
        method=method,
        detectable=detectable if spread > _NO_SPREAD else None,
        smallest_count=smallest,
        required_count=required,
        reason=reason,
        test=test,
    )


def _group_estimate(name: str, values: Float, counts: Int, *, rates: bool) -> GroupEstimate:
    a, b = counts @ values
    return GroupEstimate(
        name=name,
        rows=0,
        counted=round(b),
        hits=round(a) if rates else None,
        units=int(counts[values[:, 1] > 0].sum()),
        estimate=float(a / b) if b else None,
    )


@dataclass(frozen=True, slots=True)
class _Requirement:
    """A count and the minimum that the test needs."""

    count: float
    required: float
    description: str

    @property
    def reason(self) -> str:
        """Why there is no p-value, if the count is below the minimum."""
        return f"{self.description}; at least {self.required} are needed"


def _requirements(
    values: Float,
    pair: tuple[Int, Int],
    groups: tuple[GroupEstimate, GroupEstimate],
    smallest: float,
    positives: tuple[int, int] | None,
    *,
    rates: bool,
) -> Iterator[_Requirement]:
    """Requirements on the data, in the order in which they are checked."""
    if rates:
        description = (
            "under equal rates, the smallest expected count of successes or failures is "
            f"{smallest:.1f}"
        )
        yield _Requirement(smallest, SMALLEST_RATE_COUNT, description)
    else:
        description = f"the smaller group has {smallest:.0f} units"
        yield _Requirement(smallest, SMALLEST_UNITS, description)
    if values[:, 1].max() > 1:
        effective = min(_effective_units(values, counts) for counts in pair)
        description = f"the effective number of units in a group is {effective:.1f}"
        yield _Requirement(effective, SMALLEST_EFFECTIVE_UNITS, description)
    if not rates and _different_shapes(values, pair):
        rare = _expected_rare_values(values, pair)
        description = (
            "heavy tails: the groups differ in shape, and the values are so skewed that a group is "
            f"expected to have {rare:.1f} of the rare values that determine its mean"
        )
        yield _Requirement(rare, SMALLEST_RARE_VALUES, description)
    if positives is not None:
        labels = _expected_labels(values, pair, groups, positives)
        description = (
            "under equal calibration gaps, the smallest expected count of rows with label 1, or "
            f"with label 0, is {labels:.1f}"
        )
        yield _Requirement(labels, SMALLEST_LABELS, description)


def _effective_units(values: Float, counts: Int) -> float:
    """(Σb)²/Σb²: the number of units with equally many rows that is as informative."""
    b = values[:, 1]
    squares = float(counts @ b**2)
    return float(counts @ b) ** 2 / squares if squares else 0.0


def _expected_rare_values(values: Float, pair: tuple[Int, Int]) -> float:
    """Units over the squared skewness, of the smaller group and of each group by itself.

    For a rare value with probability p it is about n p. Values are centred and scaled within their
    group, since variances may differ. The smaller group gets the skewness of both groups, since a
    small group that happens to have no rare value is not skewed.
    """
    cubes, units, own = 0.0, [], []
    for counts in pair:
        a, b = counts @ values
        residuals = values[:, 0] - a / b * values[:, 1]
        used = counts * (values[:, 1] > 0)
        n = float(used.sum())
        spread = float(np.sqrt(used @ residuals**2 / n))
        units.append(n)
        cube = float(used @ (residuals / spread) ** 3) if spread > _NO_SPREAD else 0.0
        own.append(n / max((cube / n) ** 2, 1.0))
        cubes += cube
    skewness = cubes / sum(units)
    return min(min(units) / max(skewness**2, 1.0), *own)


def _different_shapes(values: Float, pair: tuple[Int, Int]) -> bool:
    """Whether the groups differ by more than a shift: Kolmogorov and Smirnov's test at 5%.

    If they differ by a shift only, the permutation test of means is exact for any tails. The groups
    are aligned at the quantile that brings them closest; few large values do not move it.
    """
    sorted_values, weights, shares = [], [], []
    for counts in pair:
        used = (counts > 0) & (values[:, 1] > 0)
        means = values[used, 0] / values[used, 1]
        order = np.argsort(means, kind="stable")
        sorted_values.append(means[order])
        weights.append(counts[used][order].astype(np.float64))
        shares.append(np.cumsum(weights[-1]) / weights[-1].sum())
    n, m = (float(w.sum()) for w in weights)
    steps = np.concatenate([weights[0] / n, -weights[1] / m])
    distances = []
    for quantile_level in _ALIGNED:
        aligned = [
            part - part[np.searchsorted(share, quantile_level)]
            for part, share in zip(sorted_values, shares, strict=True)
        ]
        # Rounded, so that values which are equal up to the shift stay equal.
        _, level = np.unique(np.round(np.concatenate(aligned), 9), return_inverse=True)
        distances.append(np.abs(np.cumsum(np.bincount(level, weights=steps))).max())
    return bool(min(distances) * math.sqrt(n * m / (n + m)) > _KOLMOGOROV)


def _expected_labels(
    values: Float,
    pair: tuple[Int, Int],
    groups: tuple[GroupEstimate, GroupEstimate],
    positives: tuple[int, int],
) -> float:
    """Smallest expected count of a label in a group if both calibration gaps were equal."""
    a, b = (pair[0] + pair[1]) @ values
    smallest = []
    for group, counts, ones in zip(groups, pair, positives, strict=True):
        assert group.estimate is not None
        # Rows of one unit are dependent, so counts are scaled to effective units.
        weight = _effective_units(values, counts) / group.counted
        expected = ones - group.counted * (group.estimate - a / b)
        smallest.append(weight * min(expected, group.counted - expected))
    return max(float(min(smallest)), 0.0)


def _spread(values: Float, pair: tuple[Int, Int], *, rates: bool) -> float:
    """Standard deviation of the compared values over both groups; 0 without variation."""
    types = pair[0] + pair[1]
    a, b = types @ values
    if rates:
        return float(math.sqrt(max(a / b * (1 - a / b), 0)))
    residuals = values[:, 0] - a / b * values[:, 1]
    return float(np.sqrt(types @ residuals**2 / types.sum()))


def _rates(
    values: Float,
    pair: tuple[Int, Int],
    groups: tuple[GroupEstimate, GroupEstimate],
    confidence_level: float,
    options: PermutationOptions,
) -> tuple[float, Detectable, Interval, str]:
    """Smallest expected count, smallest detectable effects, interval and its method."""
    single = bool(np.all(values[:, 1] <= 1))
    # One success and one failure keep the variance of a rate of 0 or 1 positive.
    added = powers(np.array([[1.0, 1.0], [0.0, 1.0]])).sum(axis=0)
    sizes, ends = [], []
    for counts, group in zip(pair, groups, strict=True):
        design_effect = 1.0
        if not single:
            design_effect = _design_effect(
                counts @ powers(values) + added, group.units, confidence_level
            )
        sizes.append(group.counted / design_effect)
        assert group.estimate is not None
        ends.append(wilson(group.estimate, sizes[-1], confidence_level))
    first, second = groups
    assert first.estimate is not None
    assert second.estimate is not None
    assert first.hits is not None
    assert second.hits is not None
    pooled = (first.hits + second.hits) / (first.counted + second.counted)
    # Under H0 both groups have the pooled rate.
    smallest = min(sizes) * min(pooled, 1 - pooled)
    n, m = (max(round(size), 1) for size in sizes)
    detectable = detectable_rate(n, m, pooled, SMALLEST_RATE_COUNT, options)
    interval = combined(first.estimate, ends[0], second.estimate, ends[1])
    method = "Newcombe" if single else "Newcombe with effective sample sizes"
    return smallest, detectable, interval, method


def _design_effect(sums: Float, units: int, confidence_level: float) -> float:
    """Variance of a rate between units over that of independent rows (Kish's design effect).

    Multiplied by (t/z)², since the variance between few units is estimated poorly.
    """
    moments = ratio_moments(sums, rates=False)
    r, rows = float(moments.estimate), float(sums[1])
    t = float(stats.t.ppf((1 + confidence_level) / 2, max(units - 1, 1)))
    widened = (t / quantile(confidence_level)) ** 2
    return max(float(moments.variance) / (r * (1 - r) / rows), 0.2) * widened


def _means(
    values: Float,
    pair: tuple[Int, Int],
    confidence_level: float,
    options: PermutationOptions,
) -> tuple[float, Detectable | None, Interval | None, str]:
    """Smallest number of units, smallest detectable effects, interval and its method."""
    types = pair[0] + pair[1]
    total = types @ values
    centre = float(total[0] / total[1])
    # Centred, so that sums of squares and cubes do not cancel.
    centred = np.stack([values[:, 0] - centre * values[:, 1], values[:, 1]], axis=1)
    terms = powers(centred)
    used = [counts * (values[:, 1] > 0) for counts in pair]
    moments: list[Moments] = [ratio_moments(counts @ terms, rates=False) for counts in used]
    units = [int(counts.sum()) for counts in used]
    method = "Welch with skewness correction"
    if min(units) < 2:
        return float(min(units)), None, None, method
    first, second = (float(m.variance) for m in moments)
    variance = first + second
    if variance <= _NO_SPREAD**2:
        return float(min(units)), None, None, method
    difference = float(moments[0].estimate - moments[1].estimate)
    skewness = float(moments[0].third - moments[1].third) / variance**1.5
    # Welch and Satterthwaite's degrees of freedom.
    freedom = variance**2 / (first**2 / (units[0] - 1) + second**2 / (units[1] - 1))
    interval = skewed_t_interval(difference, variance, skewness, freedom, confidence_level)
    detectable = detectable_shifts(math.sqrt(variance), skewness, options, freedom)
    return float(min(units)), detectable, interval, method
