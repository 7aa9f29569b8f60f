"""Any function of a group's rows as a metric: bootstrap for its spread, rearrangements for p."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.permutation.intervals import quantile
from offline_audit.permutation.measured import LEAST_UNITS, Measured
from offline_audit.permutation.outcome import Side
from offline_audit.permutation.ratio_test import judged_by_draws
from offline_audit.permutation.rearranged_sums import Rearranging
from offline_audit.permutation.rows import Rows

__all__ = ["CustomMetric", "GroupRows", "measured_custom"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Of the spread: its standard error is then 3%.
_RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRows:
    """Rows of one group, as a function gets them; arrays `[n]`.

    Attributes:
        index: Places of the rows in the arrays that were given, for whatever else belongs to them.
        decisions: 0, 1, or 2 where it is not known; None if none were given.
        labels: The same of labels.
        scores: None if none were given.
    """

    index: Int
    decisions: Int | None
    labels: Int | None
    scores: Float | None


@dataclass(frozen=True, slots=True)
class CustomMetric:
    """A function that a caller gave."""

    function: Callable[[GroupRows], float]

    @property
    def name(self) -> str:
        """Of the function."""
        return getattr(self.function, "__name__", "metric")

    @property
    def words(self) -> str:
        """Its name, since it says no more."""
        return self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Nothing that is known before it runs."""
        return ()


def measured_custom(
    metric: CustomMetric,
    rows: Rows,
    codes: Int,
    names: tuple[str, str],
    members: tuple[Int, Int],
    confidence: float,
    how: Rearranging,
) -> Measured:
    """Compare a function of the rows.

    T is the difference over its bootstrap standard error; the rearranged differences are divided by
    their own standard deviation, as section 5 of the paper does, so that the function runs
    2 (draws + resamples) times and not their product. Units are drawn, and change groups, whole.
    """
    run = _CustomRun(metric, rows)
    places = [np.flatnonzero(np.isin(codes, each)) for each in members]
    drawable = [run.drawable(each) for each in places]
    estimates = [run.value(each) for each in places]
    sides = tuple(
        Side(
            name=name,
            rows=0,
            counted=len(place),
            hits=None,
            units=len(units),
            estimate=value if math.isfinite(value) else None,
        )
        for name, place, units, value in zip(names, places, drawable, estimates, strict=True)
    )
    one, two = sides
    cell = float(min(one.units, two.units))
    reason, judged, error = None, None, None
    rng = np.random.default_rng(how.seed)
    if one.estimate is None or two.estimate is None:
        reason = f"{metric.name} has no value for a group"
    elif cell < LEAST_UNITS:
        reason = f"not enough data: a group has {cell:.0f} units; {LEAST_UNITS} are needed"
    else:
        spreads = [run.spread(units, rng) for units in drawable]
        error = math.hypot(*spreads)
        if not error > 0 or not math.isfinite(error):
            reason, error = f"{metric.name} does not vary when rows are drawn anew", None
    interval = None
    if error is not None and one.estimate is not None and two.estimate is not None:
        seen = one.estimate - two.estimate
        half = quantile(confidence) * error
        interval = (seen - half, seen + half)
        drawn = run.differences(drawable, rng, how)
        scale = float(np.nanstd(drawn)) if how.studentized else 1.0
        judged = judged_by_draws(
            seen / error if how.studentized else seen, drawn / (scale or 1.0), how.alternative
        )
    return Measured(
        sides=(one, two),
        interval=interval,
        method=f"normal, with the spread of {_RESAMPLES} bootstrap samples",
        error=error,
        cell=cell,
        least=LEAST_UNITS,
        reason=reason,
        judged=judged,
    )


class _CustomRun:
    """A function on the rows of some units."""

    def __init__(self, metric: CustomMetric, rows: Rows) -> None:
        self.metric, self.rows = metric, rows
        if rows.units is not None:
            self.order = np.argsort(rows.units, kind="stable")
            sizes = np.bincount(rows.units)
            self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def drawable(self, places: Int) -> Int:
        """Units of some rows; the rows themselves if each is one."""
        return places if self.rows.units is None else np.unique(self.rows.units[places])

    def value(self, places: Int) -> float:
        """Of the rows at some places."""
        rows = self.rows
        parts = {
            name: None if part is None else part[places]
            for name, part in (
                ("decisions", rows.decisions),
                ("labels", rows.labels),
                ("scores", rows.scores),
            )
        }
        found = self.metric.function(GroupRows(index=places, **parts))  # type: ignore[arg-type]
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise AuditInputError(f"{self.metric.name}: gave no number for a group") from error

    def of_units(self, units: Int) -> float:
        """Of some units, each as often as it is listed."""
        if self.rows.units is None:
            return self.value(units)
        pieces = [self.order[self.starts[unit] : self.starts[unit + 1]] for unit in units]
        return self.value(np.concatenate(pieces))

    def spread(self, units: Int, rng: np.random.Generator) -> float:
        """Standard deviation of the metric over bootstrap samples of the units."""
        drawn = [self.of_units(rng.choice(units, len(units))) for _ in range(_RESAMPLES)]
        return float(np.nanstd(drawn, ddof=1))

    def differences(self, drawable: list[Int], rng: np.random.Generator, how: Rearranging) -> Float:
        """Between rearranged groups, `[draws]`."""
        pool, size = np.concatenate(drawable), len(drawable[0])
        found = np.empty(how.draws)
        for number in range(how.draws):
            shuffled = rng.permutation(pool)
            found[number] = self.of_units(shuffled[:size]) - self.of_units(shuffled[size:])
            if how.progress is not None and (number + 1) % 100 == 0:
                how.progress(number + 1, how.draws)
        return found
