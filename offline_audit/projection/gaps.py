"""Gaps between the rates of groups: covariance under a fair classifier, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from offline_audit.intervals import combined, wilson
from offline_audit.power import Detectable
from offline_audit.projection.cells import Stratum
from offline_audit.projection.pair_power import detectable_gap
from offline_audit.projection.sample import Sample

__all__ = [
    "Effect",
    "Gaps",
    "effective_rows",
    "gaps",
    "pair_effects",
    "pooled_rate",
    "restricted_rates",
    "square_root",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The vector V of differences between rates that a criterion requires to be 0, over all strata.

    Attributes:
        values: V, the rate of each group minus that of the first group of its attribute, `[m]`.
        covariance: Σ, the covariance of the values under a fair classifier, `[m, m]`.
        contrasts: Matrix from rates to values, `[m, constraints]`.
        rate_covariance: Covariance of the rates, `[constraints, constraints]`.
        effects: Change of each value if one more row of a cell gets decision 1, `[m, cells]`.
    """

    values: NDArray[np.float64]
    covariance: NDArray[np.float64]
    contrasts: NDArray[np.float64]
    rate_covariance: NDArray[np.float64]
    effects: NDArray[np.float64]


def gaps(
    sample: Sample,
    strata: Sequence[Stratum],
    *,
    tolerance: float = 0.0,
    favoured: Sequence[int | None] = (),
) -> Gaps:
    """Gaps and their covariance Σ (Theorem 1) at the fair rates nearest to the observed ones.

    If each row is a different person, the rate of a group of n rows has the permutation variance
    r (1 - r)/n · N/(N - 1), with r the fair rate and N the rows of all groups. Otherwise the
    residuals of a person are summed before they are squared, which multiplies the variance by the
    design effect. Rates of overlapping attributes covary through their shared rows.
    """
    contrasts = block_diag(*(_contrasts(stratum) for stratum in strata))
    effects = block_diag(*(_contrasts(s) @ (s.membership / s.group_sizes[:, None]) for s in strata))
    fair = [restricted_rates(s, tolerance=tolerance, favoured=favoured) for s in strata]
    if sample.units is None:
        spread = block_diag(*(_rows_covariance(s, r) for s, r in zip(strata, fair, strict=True)))
    else:
        spread = _units_covariance(sample, strata, fair)
    rates = np.concatenate([stratum.rates for stratum in strata])
    return Gaps(
        values=contrasts @ rates,
        covariance=contrasts @ spread @ contrasts.T,
        contrasts=contrasts,
        rate_covariance=spread,
        effects=effects,
    )


def restricted_rates(
    stratum: Stratum, *, tolerance: float = 0.0, favoured: Sequence[int | None] = ()
) -> NDArray[np.float64]:
    """The fair rates nearest to the observed ones, `[constraints]`: least squares weighted by rows.

    Without a tolerance they are the pooled rate of each attribute.
    """
    rates, sizes = stratum.rates, stratum.group_sizes
    fair = np.empty_like(rates)
    for attribute in stratum.attributes:
        indices = list(stratum.of(attribute))
        group = favoured[attribute] if attribute < len(favoured) else None
        is_favoured = np.array([stratum.constraints[i].group == group for i in indices])
        fair[indices] = _nearest_fair(rates[indices], sizes[indices], tolerance, is_favoured)
    return fair


def _nearest_fair(
    rates: NDArray[np.float64],
    sizes: NDArray[np.float64],
    tolerance: float,
    is_favoured: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Rates clipped to the interval [l, l + tolerance] with the smallest squared distance.

    With a favoured group only this group is clipped from above, and only the others from below.
    """
    pooled = float(rates @ sizes / sizes.sum())
    if tolerance == 0 and not is_favoured.any():
        return np.full_like(rates, pooled)

    def clipped(level: float) -> NDArray[np.float64]:
        if is_favoured.any():
            return np.where(
                is_favoured, np.minimum(rates, level + tolerance), np.maximum(rates, level)
            )
        return np.clip(rates, level, level + tolerance)

    low, high = float(rates.min()) - tolerance, float(rates.max())
    # The derivative of the sum of squares increases with the level: bisection finds its root.
    for _ in range(60):
        level = (low + high) / 2
        if float(sizes @ (clipped(level) - rates)) < 0:
            low = level
        else:
            high = level
    return np.clip(clipped((low + high) / 2), 0.0, 1.0)


def square_root(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """A matrix R with R Rᵀ = matrix, for a positive semidefinite matrix of any rank."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _contrasts(stratum: Stratum) -> NDArray[np.float64]:
    """Matrix that subtracts the first group's rate of each attribute, `[m, constraints]`."""
    rows = []
    for attribute in stratum.attributes:
        first, *others = stratum.of(attribute)
        for other in others:
            row = np.zeros(len(stratum.constraints))
            row[first], row[other] = -1.0, 1.0
            rows.append(row)
    return np.array(rows)


def _rows_covariance(stratum: Stratum, fair: NDArray[np.float64]) -> NDArray[np.float64]:
    """Covariance of the rates if each row is a different person, `[constraints, constraints]`."""
    member, sizes = stratum.membership, stratum.group_sizes
    # Sum over shared rows of (decision - fair_g)(decision - fair_h), from the counts of each cell.
    positives, negatives = stratum.positives, stratum.sizes - stratum.positives
    products = ((member * positives) @ member.T) * np.outer(1 - fair, 1 - fair)
    products += ((member * negatives) @ member.T) * np.outer(fair, fair)
    scale = _null_scale(stratum, fair)
    return np.asarray(products * np.outer(scale, scale) / np.outer(sizes, sizes), dtype=np.float64)


def _units_covariance(
    sample: Sample, strata: Sequence[Stratum], fair: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Covariance of the rates of all strata, from the sums of residuals of each person."""
    assert sample.units is not None
    people = int(sample.units.max()) + 1
    columns = []
    for stratum, rates in zip(strata, fair, strict=True):
        scale = _null_scale(stratum, rates) / stratum.group_sizes
        for index, constraint in enumerate(stratum.constraints):
            cells = [c for c in stratum.cells if c.groups[constraint.attribute] == constraint.group]
            positive = np.concatenate([cell.positive_rows for cell in cells])
            negative = np.concatenate([cell.negative_rows for cell in cells])
            # Sum of decision - fair rate over the rows of each person.
            residuals = np.bincount(sample.units[positive], minlength=people) * (1 - rates[index])
            residuals -= np.bincount(sample.units[negative], minlength=people) * rates[index]
            columns.append(residuals * scale[index])
    scores = np.array(columns)
    return np.asarray(scores @ scores.T, dtype=np.float64)


def _null_scale(stratum: Stratum, fair: NDArray[np.float64]) -> NDArray[np.float64]:
    """Null over observed standard deviation of a decision around the fair rate, `[constraints]`.

    The observed one depends on the group's rate, and so on the gap that is tested.
    """
    sizes, rates = stratum.group_sizes, stratum.rates
    observed = rates * (1 - fair) ** 2 + (1 - rates) * fair**2
    total = np.array([sizes[list(stratum.of(k.attribute))].sum() for k in stratum.constraints])
    null = fair * (1 - fair) * total / (total - 1)
    # An observed variance of 0 implies a null variance of 0, so any divisor will do.
    return np.asarray(np.sqrt(null / np.where(observed > 0, observed, 1.0)), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Difference between the rates of decision 1 of two groups.

    Attributes:
        attribute: Protected attribute.
        groups: The two groups; the gap is the first's rate minus the second's.
        label: Label within which they are compared; None for all rows.
        gap: Difference of the rates.
        interval: Confidence interval of the gap.
        smallest_detectable_effect: Gaps downwards and upwards that a test of this pair alone would
            detect with 80% power if the second group has the pooled rate; None for a direction
            where no gap is.
    """

    attribute: str
    groups: tuple[str, str]
    label: int | None
    gap: float
    interval: tuple[float, float]
    smallest_detectable_effect: Detectable


def pair_effects(
    sample: Sample, strata: Sequence[Stratum], gaps: Gaps, *, confidence_level: float
) -> tuple[Effect, ...]:
    """Gaps of all pairs of groups of each attribute in each stratum.

    Intervals are Newcombe's hybrid of two Wilson intervals. If people have several rows, the size
    of a group is the number of independent rows with the same variance.
    """
    effects = []
    first = 0
    for stratum in strata:
        spread = gaps.rate_covariance[first:, first:]
        rates, sizes = stratum.rates, stratum.group_sizes
        for attribute in stratum.attributes:
            names = sample.attributes[attribute].groups
            pooled = pooled_rate(stratum, attribute)
            for i, j in combinations(stratum.of(attribute), 2):
                effective = [
                    effective_rows(sample, float(sizes[g]), pooled, float(spread[g, g]))
                    for g in (i, j)
                ]
                effects.append(
                    Effect(
                        attribute=sample.attributes[attribute].name,
                        groups=(
                            names[stratum.constraints[i].group],
                            names[stratum.constraints[j].group],
                        ),
                        label=stratum.label,
                        gap=float(rates[i] - rates[j]),
                        interval=_newcombe(rates[[i, j]].tolist(), effective, confidence_level),
                        smallest_detectable_effect=detectable_gap(
                            (effective[0], effective[1]), pooled, alpha=1 - confidence_level
                        ),
                    )
                )
        first += len(stratum.constraints)
    return tuple(effects)


def effective_rows(sample: Sample, rows: float, rate: float, variance: float) -> float:
    """Independent rows with the same variance of their rate."""
    return rows if sample.units is None else min(rate * (1 - rate) / variance, rows)


def pooled_rate(stratum: Stratum, attribute: int) -> float:
    """The pooled rate of all groups of an attribute."""
    indices = list(stratum.of(attribute))
    sizes = stratum.group_sizes[indices]
    return float(stratum.rates[indices] @ sizes / sizes.sum())


def _newcombe(
    rates: Sequence[float], sizes: Sequence[float], confidence_level: float
) -> tuple[float, float]:
    """Newcombe's interval of a difference of two rates (1998, method 10)."""
    one, two = (wilson(r, n, confidence_level) for r, n in zip(rates, sizes, strict=True))
    low, high = combined(rates[0], one, rates[1], two)
    return float(low), float(high)
