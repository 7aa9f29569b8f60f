"""Any function of a group's rows as a metric: bootstrap standard error, permutation p-value."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.intervals import inverted_interval
from offline_audit.permutation.estimates import (
    INVERTED,
    SMALLEST_UNITS,
    ComparisonEstimate,
    GroupEstimate,
)
from offline_audit.permutation.metrics import CustomMetric, GroupRows
from offline_audit.permutation.permutations import PermutationOptions, p_value_from_resamples
from offline_audit.permutation.power import detectable_shifts
from offline_audit.permutation.rows import Rows
from offline_audit.validation import UNKNOWN

__all__ = ["compare_custom"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]

# Bootstrap samples behind a standard error, which is then accurate to 3%.
_BOOTSTRAP_SAMPLES = 500


def compare_custom(
    metric: CustomMetric,
    rows: Rows,
    codes: Int,
    names: tuple[str, str],
    members: tuple[Int, Int],
    confidence_level: float,
    options: PermutationOptions,
) -> ComparisonEstimate:
    """Estimate and test a difference of a function of the rows.

    T is the difference over its bootstrap standard error. The permuted differences are divided by
    their own standard deviation (DiCiccio et al., KDD 2020, section 5), so that the function runs
    2 (n_resamples + bootstrap samples) times and not their product. Units are resampled and
    permuted as a whole.
    """
    run = _CustomRun(metric, rows, codes)
    indices = [np.flatnonzero(np.isin(codes, groups)) for groups in members]
    units = [run.units_of(part) for part in indices]
    estimates = [run.value(part) for part in indices]
    one, two = (
        GroupEstimate(
            name=name,
            rows=0,
            counted=len(part),
            hits=None,
            units=len(own),
            estimate=value if math.isfinite(value) else None,
        )
        for name, part, own, value in zip(names, indices, units, estimates, strict=True)
    )
    smallest = float(min(one.units, two.units))
    reason, error, interval, test = None, None, None, None
    rng = np.random.default_rng(options.seed)
    if one.estimate is None or two.estimate is None:
        reason = f"{metric.name} has no finite value for a group"
    elif smallest < SMALLEST_UNITS:
        reason = f"the smaller group has {smallest:.0f} units; at least {SMALLEST_UNITS} are needed"
    else:
        error = math.hypot(*(run.bootstrap_error(own, rng) for own in units))
        if not error > 0 or not math.isfinite(error):
            reason, error = f"{metric.name} does not vary between bootstrap samples", None
    if error is not None and one.estimate is not None and two.estimate is not None:
        difference = one.estimate - two.estimate
        permuted = run.permuted_differences(units, rng, options)
        scale = float(np.nanstd(permuted)) if options.studentized else 1.0
        null_distribution = permuted / (scale or 1.0)
        unit = error if options.studentized else 1.0
        test = p_value_from_resamples(difference / unit, null_distribution, options.alternative)
        interval = inverted_interval(
            lambda effect: (
                p_value_from_resamples(
                    (difference - effect) / unit, null_distribution, "two-sided"
                ).p_value
                or 0.0
            ),
            difference,
            error,
            confidence_level,
        )
    return ComparisonEstimate(
        groups=(one, two),
        interval=interval,
        method=f"{INVERTED}; standard error of {_BOOTSTRAP_SAMPLES} bootstrap samples",
        detectable=None if error is None else detectable_shifts(error, 0.0, options),
        smallest_count=smallest,
        required_count=SMALLEST_UNITS,
        reason=reason,
        test=test,
    )


class _CustomRun:
    """The function, applied to rows of chosen units."""

    def __init__(self, metric: CustomMetric, rows: Rows, codes: Int) -> None:
        self.metric, self.rows = metric, rows
        if rows.units is not None:
            known = np.flatnonzero(codes != UNKNOWN)
            self.order = known[np.argsort(rows.units[known], kind="stable")]
            sizes = np.bincount(rows.units[known], minlength=int(rows.units.max()) + 1)
            self.starts = np.concatenate([[0], np.cumsum(sizes)])

    def units_of(self, indices: Int) -> Int:
        """Units of some rows; the rows themselves if every row is its own unit."""
        return indices if self.rows.units is None else np.unique(self.rows.units[indices])

    def value(self, indices: Int) -> float:
        """Value of the function for some rows."""
        rows = self.rows
        group = GroupRows(
            index=indices,
            decisions=None if rows.decisions is None else rows.decisions[indices],
            labels=None if rows.labels is None else rows.labels[indices],
            scores=None if rows.scores is None else rows.scores[indices],
        )
        value = self.metric.function(group)
        try:
            return float(value)
        except (TypeError, ValueError) as error:
            raise AuditInputError(
                f"metrics: {self.metric.name} must return a number for every group"
            ) from error

    def value_of_units(self, units: Int) -> float:
        """Value of the function for some units; a unit may be listed repeatedly."""
        if self.rows.units is None:
            return self.value(units)
        parts = [self.order[self.starts[unit] : self.starts[unit + 1]] for unit in units]
        return self.value(np.concatenate(parts))

    def bootstrap_error(self, units: Int, rng: np.random.Generator) -> float:
        """Standard deviation of the function over bootstrap samples of the units."""
        values = [
            self.value_of_units(rng.choice(units, len(units))) for _ in range(_BOOTSTRAP_SAMPLES)
        ]
        return float(np.nanstd(values, ddof=1))

    def permuted_differences(
        self, units: list[Int], rng: np.random.Generator, options: PermutationOptions
    ) -> Float:
        """Differences between permuted groups, `[n_resamples]`."""
        pool, size = np.concatenate(units), len(units[0])
        differences = np.empty(options.n_resamples)
        for number in range(options.n_resamples):
            shuffled = rng.permutation(pool)
            one, two = (self.value_of_units(part) for part in (shuffled[:size], shuffled[size:]))
            differences[number] = one - two
            if options.step is not None and (number + 1) % 100 == 0:
                options.step(100)
        return differences
