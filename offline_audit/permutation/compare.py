"""One comparison: whether it can be made, what it estimates, what the test says."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.permutation.auc_test import RankedSides, auc_test
from offline_audit.permutation.intervals import (
    Interval,
    auc_interval,
    combined,
    skewed_t_interval,
    wilson,
)
from offline_audit.permutation.metrics import Metric
from offline_audit.permutation.outcome import Side
from offline_audit.permutation.ratio import GroupMoments, moments_of, powers
from offline_audit.permutation.ratio_test import Judged, ratio_test
from offline_audit.permutation.rearranged_sums import Rearranging
from offline_audit.permutation.tally import Exchange, Tally

__all__ = [
    "DETECTABLE",
    "LEAST_AUC_CELL",
    "LEAST_RATE_CELL",
    "LEAST_UNITS",
    "Measured",
    "measured_auc",
    "measured_ratio",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Expected successes and failures that either group needs. With fewer, two groups of the same size
# could not reach a p-value of 5% whatever they show.
LEAST_RATE_CELL = 2
# Expected positives, and negatives, that rank on the wrong side (docs/decisions/0009).
LEAST_AUC_CELL = 5
# Units of either group, for a mean.
LEAST_UNITS = 30
# z at 97.5% plus z at 80%: a difference of so many standard errors is found in 80% of samples.
DETECTABLE = 1.959964 + 0.841621
# Of a score; less than this is rounding.
_NO_SPREAD = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the data say of one comparison, apart from names and words.

    Attributes:
        sides: Counted rows, hits, units and estimate of both groups; `rows` and `name` are open.
        interval: Of the difference.
        method: How the interval was made.
        error: Standard error of the difference if the groups were alike.
        cell: The smallest expected count; None where it has no meaning.
        least: What it must be at least.
        reason: Why there is no p-value; None if there is.
        judged: What the test says; None if it was not run.
    """

    sides: tuple[Side, Side]
    interval: Interval | None
    method: str
    error: float | None
    cell: float | None
    least: float
    reason: str | None
    judged: Judged | None

    def untold(self, reason: str) -> Self:
        """The same without any figure, where the data do not tell it."""
        one, two = (dataclasses.replace(side, estimate=None) for side in self.sides)
        return dataclasses.replace(
            self, sides=(one, two), interval=None, error=None, reason=reason, judged=None
        )


def measured_ratio(
    metric: Metric,
    tally: Tally,
    names: tuple[str, str],
    members: tuple[Int, Int],
    confidence: float,
    how: Rearranging,
) -> Measured:
    """Compare a rate or a mean."""
    pair = tally.between(*members)
    rates = metric.kind == "rate"
    sides = tuple(
        _side(name, tally.values, counts, rates=rates)
        for name, counts in zip(names, pair, strict=True)
    )
    one, two = sides
    least = LEAST_RATE_CELL if rates else LEAST_UNITS
    for side in sides:
        if side.counted == 0:
            return _refused((one, two), least, f"no row of {side.name} counts: {metric.words}")
    interval: Interval | None
    spread = _spread(tally.values, pair, rates=rates)
    if rates:
        cell, error, interval, method = _of_rates(tally.values, pair, (one, two), confidence)
    else:
        cell, error, interval, method = _of_means(tally.values, pair, confidence)
    reason = None
    if spread <= _NO_SPREAD:
        reason = "nothing varies: every row that counts has the same value, so groups cannot differ"
        interval = None if not rates else interval
    elif cell < least:
        reason = _too_few(metric, cell, least)
    judged = None
    if reason is None:
        judged = ratio_test(tally.values, tally.strata, *pair, rates=rates, how=how)
    if judged is not None and judged.p_value is None:
        reason = "nothing varies within the groups, so the difference has no standard error"
    return Measured(
        sides=(one, two),
        interval=interval,
        method=method,
        error=error if spread > _NO_SPREAD else None,
        cell=cell,
        least=least,
        reason=reason,
        judged=judged if reason is None else None,
    )


def measured_auc(
    sides: RankedSides,
    names: tuple[str, str],
    exchange: Exchange,
    confidence: float,
    how: Rearranging,
) -> Measured:
    """Compare an AUC."""
    found = [_auc_side(name, sides, place) for place, name in enumerate(names)]
    described = (found[0][0], found[1][0])
    for side, moments_ok in zip(described, (found[0][1], found[1][1]), strict=True):
        if not moments_ok:
            text = f"{side.name} has fewer than two positives or two negatives with a score"
            return _refused(described, LEAST_AUC_CELL, text)
    moments = [sides.moments(place) for place in (0, 1)]
    aucs, variances = ([float(getattr(m, n)) for m in moments] for n in ("auc", "variance"))
    classes = sides.counts.sum(axis=2).astype(np.float64)
    ends = [
        auc_interval(auc, variance, float(classes[i].prod()), confidence)
        for i, (auc, variance) in enumerate(zip(aucs, variances, strict=True))
    ]
    weights = classes.prod(axis=1)
    pooled = float(np.average(aucs, weights=weights))
    cell = float(sides.classes.min() * min(pooled, 1 - pooled))
    reason = None
    if cell < LEAST_AUC_CELL:
        reason = (
            f"not enough data: if the groups were alike, {cell:.1f} of the smallest class would "
            f"rank on the wrong side; {LEAST_AUC_CELL} are needed"
        )
    judged = auc_test(sides, exchange, how) if reason is None else None
    if judged is not None and judged.p_value is None:
        reason, judged = "the AUCs have no standard error: nothing varies within the groups", None
    return Measured(
        sides=described,
        interval=combined(aucs[0], ends[0], aucs[1], ends[1]),
        method="DeLong on the logit scale, combined",
        error=math.sqrt(sum(variances)) or None,
        cell=cell,
        least=LEAST_AUC_CELL,
        reason=reason,
        judged=judged,
    )


def _side(name: str, values: Float, counts: Int, *, rates: bool) -> Side:
    a, b = counts @ values
    return Side(
        name=name,
        rows=0,
        counted=round(b),
        hits=round(a) if rates else None,
        units=int(counts[values[:, 1] > 0].sum()),
        estimate=float(a / b) if b else None,
    )


def _auc_side(name: str, sides: RankedSides, place: int) -> tuple[Side, bool]:
    negatives, positives = (int(n) for n in sides.counts[place].sum(axis=1))
    enough = min(negatives, positives) >= 2
    auc = float(sides.moments(place).auc) if min(negatives, positives) else None
    units = negatives + positives
    if sides.units is not None:
        _, _, of_side, unit = sides.units
        units = len(np.unique(unit[of_side == place]))
    counted = negatives + positives
    return Side(
        name=name, rows=0, counted=counted, hits=positives, units=units, estimate=auc
    ), enough


def _refused(sides: tuple[Side, Side], least: float, reason: str) -> Measured:
    return Measured(
        sides=sides,
        interval=None,
        method="none",
        error=None,
        cell=0.0,
        least=least,
        reason=reason,
        judged=None,
    )


def _too_few(metric: Metric, cell: float, least: float) -> str:
    if metric.kind == "rate":
        return (
            f"not enough data: if the groups were alike, the smallest count of successes or "
            f"failures would be {cell:.1f}; {least} are needed"
        )
    return f"not enough data: a group has {cell:.0f} units; {least} are needed"


def _spread(values: Float, pair: tuple[Int, Int], *, rates: bool) -> float:
    """Standard deviation of what is compared, over both groups; 0 if nothing varies."""
    types = pair[0] + pair[1]
    a, b = types @ values
    if rates:
        return float(math.sqrt(max(a / b * (1 - a / b), 0)))
    residuals = values[:, 0] - a / b * values[:, 1]
    return float(np.sqrt(types @ residuals**2 / types.sum()))


def _of_rates(
    values: Float, pair: tuple[Int, Int], sides: tuple[Side, Side], confidence: float
) -> tuple[float, float, Interval, str]:
    """Smallest expected cell, standard error if alike, interval, and how it was made."""
    single = bool(np.all(values[:, 1] <= 1))
    added = powers(np.array([[1.0, 1.0], [0.0, 1.0]])).sum(axis=0)
    sizes, ends = [], []
    for counts, side in zip(pair, sides, strict=True):
        effect = 1.0 if single else _design_effect(counts @ powers(values) + added)
        sizes.append(side.counted / effect)
        assert side.estimate is not None
        ends.append(wilson(side.estimate, sizes[-1], confidence))
    one, two = sides
    assert one.estimate is not None
    assert two.estimate is not None
    assert one.hits is not None
    assert two.hits is not None
    pooled = (one.hits + two.hits) / (one.counted + two.counted)
    cell = min(sizes) * min(pooled, 1 - pooled)
    error = math.sqrt(pooled * (1 - pooled) * (1 / sizes[0] + 1 / sizes[1]))
    interval = combined(one.estimate, ends[0], two.estimate, ends[1])
    method = "Newcombe" if single else "Newcombe with the effective number of rows"
    return cell, error, interval, method


def _design_effect(sums: Float) -> float:
    """Variance of a rate between units over that of independent rows."""
    found = moments_of(sums, rates=True)
    r, rows = float(found.ratio), float(sums[1])
    return max(float(found.variance) / (r * (1 - r) / rows), 0.2)


def _of_means(
    values: Float, pair: tuple[Int, Int], confidence: float
) -> tuple[float, float, Interval | None, str]:
    """The same of means."""
    types = pair[0] + pair[1]
    total = types @ values
    centre = float(total[0] / total[1])
    centred = np.stack([values[:, 0] - centre * values[:, 1], values[:, 1]], axis=1)
    terms = powers(centred)
    used = [counts * (values[:, 1] > 0) for counts in pair]
    moments: list[GroupMoments] = [moments_of(counts @ terms, rates=False) for counts in used]
    units = [int(counts.sum()) for counts in used]
    method = "Welch, corrected for skewness"
    if min(units) < 2:
        return float(min(units)), 0.0, None, method
    one, two = (float(m.variance) for m in moments)
    variance = one + two
    if variance <= _NO_SPREAD**2:
        return float(min(units)), 0.0, None, method
    difference = float(moments[0].ratio - moments[1].ratio)
    skewness = float(moments[0].third - moments[1].third) / variance**1.5
    freedom = variance**2 / (one**2 / (units[0] - 1) + two**2 / (units[1] - 1))
    interval = skewed_t_interval(difference, variance, skewness, freedom, confidence)
    return float(min(units)), math.sqrt(variance), interval, method
