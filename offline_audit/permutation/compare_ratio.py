"""One comparison of rates or means: whether it can be made, and what estimate and test say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.permutation.intervals import (
    Interval,
    combined,
    quantile,
    skewed_t_interval,
    wilson,
)
from offline_audit.permutation.measured import LEAST_UNITS, Measured, refused
from offline_audit.permutation.metrics import Metric
from offline_audit.permutation.outcome import Side
from offline_audit.permutation.ratio import GroupMoments, moments_of, powers
from offline_audit.permutation.ratio_test import ratio_test
from offline_audit.permutation.rearranged_sums import Rearranging
from offline_audit.permutation.tally import Tally

__all__ = ["LEAST_LABELS", "LEAST_RARE", "LEAST_RATE_CELL", "LEAST_REPEATED", "measured_ratio"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Expected successes and failures that either group needs. With fewer, two groups of the same size
# could not reach a p-value of 5% whatever they show.
LEAST_RATE_CELL = 2
# Effective units of either group, where rows come in units.
LEAST_REPEATED = 20
# Expected rows with label 1, and with label 0, that either group needs for a calibration gap.
LEAST_LABELS = 8
# Rare values that either group would be expected to hold, for a mean: with 3 expected, one group
# in twenty holds none.
LEAST_RARE = 3
# Of a score; less than this is rounding.
_NO_SPREAD = 1e-12


def measured_ratio(
    metric: Metric,
    tally: Tally,
    names: tuple[str, str],
    members: tuple[Int, Int],
    positives: tuple[int, int] | None,
    confidence: float,
    how: Rearranging,
) -> Measured:
    """Compare a rate or a mean.

    Args:
        metric: Which.
        tally: Units by type.
        names: Of the two sides.
        members: Places of their groups.
        positives: Counted rows with label 1 of either side, for a mean that involves the label.
        confidence: Level of the interval.
        how: Draws, seed, direction.
    """
    pair = tally.between(*members)
    rates = metric.kind == "rate"
    sides = tuple(
        _side(name, tally.values, counts, rates=rates)
        for name, counts in zip(names, pair, strict=True)
    )
    one, two = sides
    least: float = LEAST_RATE_CELL if rates else LEAST_UNITS
    for side in sides:
        if side.counted == 0:
            return refused((one, two), least, f"no row of {side.name} counts: {metric.words}")
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
    else:
        for bar in _bars(tally.values, pair, (one, two), cell, positives, rates=rates):
            if bar.count < bar.least:
                cell, least, reason = bar.count, bar.least, bar.reason
                break
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


@dataclass(frozen=True, slots=True)
class _Bar:
    """A count, and what it must be at least."""

    count: float
    least: float
    words: str

    @property
    def reason(self) -> str:
        """In words, if it is below."""
        return f"not enough data: {self.words}; {self.least} are needed"


def _bars(
    values: Float,
    pair: tuple[Int, Int],
    sides: tuple[Side, Side],
    cell: float,
    positives: tuple[int, int] | None,
    *,
    rates: bool,
) -> Iterator[_Bar]:
    """What there must be enough of, in the order in which it is asked for."""
    if rates:
        words = "if the groups were alike, the smallest count of successes or failures would be"
        yield _Bar(cell, LEAST_RATE_CELL, f"{words} {cell:.1f}")
    else:
        yield _Bar(cell, LEAST_UNITS, f"a group has {cell:.0f} units")
    if values[:, 1].max() > 1:
        few = min(_effective_units(values, counts) for counts in pair)
        words = f"the rows of a group are worth {few:.1f} units of equal size"
        yield _Bar(few, LEAST_REPEATED, words)
    if not rates:
        few = _effective_by_shape(values, pair)
        words = (
            "values are so skewed that the smaller group would be expected to hold "
            f"{few:.1f} of the rare ones that decide its mean"
        )
        yield _Bar(few, LEAST_RARE, words)
    if positives is not None:
        few = _expected_labels(values, pair, sides, positives)
        words = (
            "if the groups were alike, the smallest count of rows with label 1, or with label 0, "
            f"would be {few:.1f}"
        )
        yield _Bar(few, LEAST_LABELS, words)


def _effective_units(values: Float, counts: Int) -> float:
    """(Σb)²/Σb²: how many units with as many rows each would tell as much."""
    b = values[:, 1]
    squares = float(counts @ b**2)
    return float(counts @ b) ** 2 / squares if squares else 0.0


def _effective_by_shape(values: Float, pair: tuple[Int, Int]) -> float:
    """Units of the smaller group over the squared skewness of both groups' values.

    For a value that is taken rarely, with chance p, it is about n p. Values are centred and scaled
    within their group: spreads may differ. Skewness is that of both, since a small group that
    happens to hold no rare value looks calm by itself.
    """
    cubes, units = 0.0, []
    for counts in pair:
        a, b = counts @ values
        residuals = values[:, 0] - a / b * values[:, 1]
        used = counts * (values[:, 1] > 0)
        n = float(used.sum())
        spread = float(np.sqrt(used @ residuals**2 / n))
        units.append(n)
        cubes += float(used @ (residuals / spread) ** 3) if spread > _NO_SPREAD else 0.0
    skewness = cubes / sum(units)
    return min(min(units), min(units) / skewness**2) if skewness else min(units)


def _expected_labels(
    values: Float, pair: tuple[Int, Int], sides: tuple[Side, Side], positives: tuple[int, int]
) -> float:
    """Smallest count of a label in a group if labels lay above scores by the same in both."""
    a, b = (pair[0] + pair[1]) @ values
    found = []
    for side, counts, ones in zip(sides, pair, positives, strict=True):
        assert side.estimate is not None
        # Rows of one unit tell no more than one.
        worth = _effective_units(values, counts) / side.counted
        expected = ones - side.counted * (side.estimate - a / b)
        found.append(worth * min(expected, side.counted - expected))
    return max(float(min(found)), 0.0)


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
        effect = 1.0
        if not single:
            effect = _design_effect(counts @ powers(values) + added, side.units, confidence)
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


def _design_effect(sums: Float, units: int, confidence: float) -> float:
    """Variance of a rate between units over that of independent rows.

    Widened as Student's t is beside the normal, since few units tell little of their variance.
    """
    found = moments_of(sums, rates=False)
    r, rows = float(found.ratio), float(sums[1])
    t = float(stats.t.ppf((1 + confidence) / 2, max(units - 1, 1)))
    widened = (t / quantile(confidence)) ** 2
    return max(float(found.variance) / (r * (1 - r) / rows), 0.2) * widened


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
