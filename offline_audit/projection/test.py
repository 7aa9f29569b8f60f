"""The projection test of arrays: validate, find the smallest fair change, test, explain."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.criteria import Criterion
from offline_audit.projection.boundary import BoundaryDistances, number
from offline_audit.projection.cells import Stratum, distance_warnings
from offline_audit.projection.explanation import changed_rows, explain
from offline_audit.projection.fair_change import (
    FairChange,
    certificate_warnings,
    common_rate,
    overlapping_rates,
)
from offline_audit.projection.gaps import gaps, pair_effects
from offline_audit.projection.limiting_law import s_inverse
from offline_audit.projection.p_value import p_value_of
from offline_audit.projection.partition import Partition, partition
from offline_audit.projection.power import smallest_detectable_effect
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.sample import (
    Groups,
    Law,
    Options,
    Sample,
    favoured_groups,
    validate_options,
)
from offline_audit.projection.unknown import (
    gap_ranges,
    label_warnings,
    robust_p_value,
    selective_labels_reason,
    unknowns_of,
)
from offline_audit.rendering import are, count, p_equals
from offline_audit.validation import require_alpha, require_whole

__all__ = ["projection_test"]

# Largest number of rounds in which distances are refined. Refined distances can make other rows
# cheaper to change, whose distances are then refined in the next round.
_MAX_REFINEMENTS = 8


def projection_test(
    *,
    groups: Groups,
    decisions: ArrayLike,
    distances: ArrayLike | BoundaryDistances,
    labels: ArrayLike | None = None,
    units: ArrayLike | None = None,
    criterion: Criterion = "statistical_parity",
    expected_groups: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    tolerance: float = 0.0,
    favoured: str | Mapping[str, str] | None = None,
    law: Law = "standardized",
    bandwidth: float | None = None,
    alpha: float = 0.05,
    smallest_cell: int = 10,
    smallest_expected: float = 5,
    seed: int = 0,
) -> ProjectionResult:
    """Is the classifier fair, and if not, what is the smallest change that would make it fair?

    H0: the rate of decision 1 is the same in all groups of every attribute, within the labels of
    the criterion, up to the tolerance. The statistic is the smallest sum of distances to the
    decision boundary over rows whose change of decision makes the rates agree (Proposition 1). p is
    the probability that the gaps of a fair classifier cost at least as much (Theorem 1; see
    `limiting_law`). If people have several rows, p is too small unless `units` is passed. If the
    decision determines which labels are missing, rates within labels are biased; see `warnings`.

    Args:
        groups: Group of each row, `[n]`, or a mapping from attribute name to such an array. None,
            NaN and "" mean that the group is unknown.
        decisions: Decisions, 0 or 1, `[n]`.
        distances: Distances to the decision boundary, 0 or more, `[n]`, or the result of one of
            the `*_distances` functions. A row at distance 0 changes at no cost; a row at an
            infinite distance never changes.
        labels: Outcomes, 0 or 1, with None or NaN for unknown ones, `[n]`. Required by every
            criterion except statistical parity.
        units: Person of each row, `[n]`.
        criterion: Fairness criterion.
        expected_groups: Allowed group names, for all attributes or by attribute; other names raise
            an error.
        tolerance: Largest gap that counts as fair (ε of section 4).
        favoured: Group whose rate may exceed the others by at most the tolerance, while theirs may
            exceed its rate by any amount (one-sided, as in section 4); or a mapping from attribute
            to group. None: no two groups may differ by more than the tolerance.
        law: Weights of the gaps in the p-value: their variance under the null (`standardized`),
            their cost in the given distances (`curve`), or the paper's kernel estimate of that cost
            (`kernel`). With a single gap, `standardized` and `curve` coincide.
        bandwidth: Bandwidth of the kernel; Silverman's rule if None.
        alpha: Significance level of `rejected`; intervals have confidence 1 - alpha.
        smallest_cell: Smallest number of changed rows whose figures are disclosed. Figures that
            would reveal a smaller number are rounded. If fewer rows change in total, the statistic
            is withheld.
        smallest_expected: Smallest expected number of people for each decision, at equal rates,
            with which a group is tested.
        seed: Seed of the random generator. With several gaps, p-values with a tolerance and the
            smallest detectable effect are simulated.

    Raises:
        AuditInputError: An argument is invalid; the message names it.
    """
    boundary = distances
    if not isinstance(boundary, BoundaryDistances):
        boundary = BoundaryDistances.from_arrays(boundary)
    sample = Sample.read(
        groups=groups,
        decisions=decisions,
        distances=boundary.distances,
        labels=labels,
        units=units,
        expected_groups=expected_groups,
    )
    options = Options(
        criterion=criterion,
        tolerance=number("tolerance", tolerance),
        favoured=favoured_groups(sample, favoured),
        law=law,
        bandwidth=None if bandwidth is None else number("bandwidth", bandwidth),
        alpha=require_alpha(alpha),
        smallest_expected=number("smallest_expected", smallest_expected),
        smallest_cell=require_whole("smallest_cell", smallest_cell, 1),
        seed=require_whole("seed", seed, 0),
    )
    validate_options(options, sample)
    warnings = [
        *sample.warnings,
        *boundary.decision_warnings(sample.decisions, sample.distances),
        *label_warnings(sample, options.criterion),
    ]
    untested = _untested(sample, boundary, options)
    selective = selective_labels_reason(sample, options.criterion)
    parts = _partition(sample, options)
    warnings += parts.excluded
    if selective or parts.untestable:
        reason = selective or " ".join(parts.untestable)
        return dataclasses.replace(
            untested, reason=reason, counts=parts.counts, warnings=tuple(warnings)
        )
    ranges = gap_ranges(sample, parts.strata, parts.identified, options.tolerance)
    warnings += dict.fromkeys(warning for part in ranges for warning in part.warnings)
    sample, parts, changes, boundary, refinement = _smallest_fair_change(
        sample, parts, boundary, options
    )
    result = _tested(
        dataclasses.replace(
            untested,
            counts=parts.counts,
            warnings=(*warnings, *distance_warnings(parts.strata), *refinement),
            ranges=ranges,
        ),
        sample,
        parts.strata,
        changes,
        boundary,
        options,
    )
    if result.p_value is None:
        return result
    p_value, why = robust_p_value(result.p_value, ranges, options.alpha)
    detectable = result.smallest_detectable_effect if why is None else None
    stated = result.warnings
    if p_value is not None and p_value > options.alpha >= result.p_value:
        known = (
            f"Intervals and smallest detectable effects are those of the known rows, with p "
            f"{p_equals(result.p_value)}; the stated p allows for all that unknown labels and "
            "groups leave open. Where they disagree, believe the stated p."
        )
        stated = (*stated, known)
    return dataclasses.replace(
        result,
        p_value=p_value,
        reason=why,
        smallest_detectable_effect=detectable,
        warnings=stated,
    )


def _smallest_fair_change(
    sample: Sample, parts: Partition, boundary: BoundaryDistances, options: Options
) -> tuple[Sample, Partition, list[FairChange], BoundaryDistances, list[str]]:
    """The smallest fair change of each stratum, with refined distances if they can be refined.

    Returns:
        Sample and partition with the refined distances, the changes, the boundary distances with
        the feature changes of the changed rows, and warnings.
    """
    fair = [_fair_change(stratum, options) for stratum in parts.strata]
    if boundary.refine is None:
        return sample, parts, fair, boundary, []
    refined = np.zeros(len(sample.decisions), dtype=bool)
    changes: dict[int, NDArray[np.float64]] = {}
    not_converged = 0
    for _ in range(_MAX_REFINEMENTS):
        rows = changed_rows(sample, parts.strata, fair)
        rows = rows[~refined[rows]]
        if len(rows) == 0:
            break
        search = boundary.refine(rows)
        not_converged += int(np.count_nonzero(~search.converged))
        distances = sample.distances.copy()
        distances[rows] = search.distances
        refined[rows] = True
        changes.update(zip(rows.tolist(), search.changes, strict=True))
        sample = dataclasses.replace(sample, distances=distances)
        parts = _partition(sample, options)
        fair = [_fair_change(stratum, options) for stratum in parts.strata]
    unrefined = changed_rows(sample, parts.strata, fair)
    unrefined = unrefined[~refined[unrefined]]
    if len(unrefined) and boundary.changes is not None:
        changes.update(zip(unrefined.tolist(), boundary.changes(unrefined), strict=True))
    warnings = [f"Distances of {count(int(refined.sum()), 'row')} were refined by a search."]
    if not_converged:
        searches = count(not_converged, "search", "searches")
        warnings.append(f"{searches} did not reach the boundary: the first-order distance is used.")
    if len(unrefined):
        rows_not_refined = count(len(unrefined), "row")
        warnings.append(
            f"Distances of {rows_not_refined} whose decision changes {are(len(unrefined))} not "
            "refined."
        )
    boundary = dataclasses.replace(
        boundary, changes=lambda rows: np.array([changes[row] for row in rows.tolist()])
    )
    return sample, parts, fair, boundary, warnings


def _tested(
    untested: ProjectionResult,
    sample: Sample,
    strata: Sequence[Stratum],
    changes: Sequence[FairChange],
    boundary: BoundaryDistances,
    options: Options,
) -> ProjectionResult:
    """The result with effects, explanation and p-value."""
    statistic = float(sum(change.cost for change in changes))
    certified_gap = max(change.certified_gap for change in changes)
    v = gaps(sample, strata, tolerance=options.tolerance, favoured=options.favoured)
    result = dataclasses.replace(
        untested,
        statistic=statistic,
        effects=pair_effects(sample, strata, v, confidence_level=1 - options.alpha),
        certified_gap=certified_gap,
        warnings=(*untested.warnings, *certificate_warnings(certified_gap)),
    )
    if math.isinf(statistic):
        reason = (
            "Too few rows have a finite distance, so no change of decisions makes the rates agree."
        )
        if math.isinf(result.certified_gap):
            reason = "The solver failed, so the smallest fair change is unknown."
        return dataclasses.replace(result, reason=reason)
    explanation = explain(sample, strata, changes, boundary, smallest_cell=options.smallest_cell)
    result = dataclasses.replace(
        result,
        statistic=None if explanation.rows_moved is None else statistic,
        explanation=explanation,
    )
    p = p_value_of(sample, strata, v, statistic, options)
    if p.value is None:
        return dataclasses.replace(result, reason=p.reason)
    detectable = smallest_detectable_effect(sample, strata, v, s_inverse(v, p.s), options)
    return dataclasses.replace(
        result,
        p_value=p.value,
        monte_carlo_error=p.error,
        smallest_detectable_effect=detectable,
    )


def _partition(sample: Sample, options: Options) -> Partition:
    """The partition of a sample for the requested criterion."""
    return partition(
        sample,
        options.criterion,
        smallest_expected=options.smallest_expected,
        all_distances=len(sample.attributes) > 1,
    )


def _fair_change(stratum: Stratum, options: Options) -> FairChange:
    """The smallest fair change of one stratum."""
    favoured = {
        k.attribute: index
        for index, k in enumerate(stratum.constraints)
        if options.favoured[k.attribute] == k.group
    }
    if len(stratum.attributes) == 1:
        return common_rate(
            stratum.cells, tolerance=options.tolerance, favoured=favoured.get(stratum.attributes[0])
        )
    return overlapping_rates(stratum, tolerance=options.tolerance, favoured=favoured)


def _untested(sample: Sample, boundary: BoundaryDistances, options: Options) -> ProjectionResult:
    """A result without statistic and p-value."""
    favoured = zip(sample.attributes, options.favoured, strict=True)
    return ProjectionResult(
        criterion=options.criterion,
        attributes=tuple(attribute.name for attribute in sample.attributes),
        tolerance=options.tolerance,
        favoured=tuple((a.name, a.groups[g]) for a, g in favoured if g is not None),
        rows=len(sample.decisions),
        rows_compared=sample.rows_compared(options.criterion),
        statistic=None,
        p_value=None,
        reason=None,
        monte_carlo_error=0.0,
        alpha=options.alpha,
        law=options.law,
        effects=(),
        smallest_detectable_effect=None,
        counts=(),
        unknown=unknowns_of(sample, options.criterion),
        ranges=(),
        explanation=None,
        distances=boundary.method,
        certified_gap=0.0,
        warnings=(),
        seed=options.seed,
    )
