"""The projection test: arrays in, result out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.criteria import Criterion
from offline_audit.projection.boundary import BoundaryDistances, number
from offline_audit.projection.cells import Stratum
from offline_audit.projection.common_rate import FairChange, common_rate
from offline_audit.projection.data_warnings import (
    certificate_warnings,
    decision_warnings,
    distance_warnings,
    label_warnings,
    selective_labels_reason,
)
from offline_audit.projection.effects import pair_effects, smallest_detectable_effect
from offline_audit.projection.explanation import explain, moved_rows
from offline_audit.projection.gaps import gaps
from offline_audit.projection.limiting_law import Law, s_inverse
from offline_audit.projection.options import Options, favoured_groups, validate_options
from offline_audit.projection.overlapping import overlapping_rates
from offline_audit.projection.p_value import p_value_of
from offline_audit.projection.partition import Partition, partition
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.sample import Groups, Sample
from offline_audit.rendering import are, count
from offline_audit.validation import require_alpha, require_whole

__all__ = ["projection_test"]

# Rounds of refined distances; each round can change which rows change.
_REFINEMENTS = 8


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
    decision boundary over rows whose change of decision makes the rates agree (Proposition 1); p is
    the probability that the gaps of a fair classifier cost at least as much (Theorem 1; see
    `limiting_law`). Rows of one person are dependent: without `units` p is then too small. If
    labels are missing depending on the decision, rates within labels are biased: see `warnings`.

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
        expected_groups: Allowed group names, for all attributes or by attribute; any other name is
            an error.
        tolerance: Largest gap that counts as fair (ε of section 4).
        favoured: Group that may be ahead of the others by at most the tolerance (one-sided, as in
            section 4), or a mapping from attribute to group. None: no two groups may differ by more
            than the tolerance.
        law: Weights of the gaps in the p-value: their variance under the null (`standardized`),
            their cost in the given distances (`curve`), or the paper's kernel estimate of that cost
            (`kernel`). With a single gap, `standardized` and `curve` coincide.
        bandwidth: Bandwidth of the kernel; Silverman's rule if None.
        alpha: Significance level of `rejected`; the intervals have confidence 1 - alpha.
        smallest_cell: Smallest number of changed rows whose figures are shown. Figures that would
            reveal a smaller number are rounded, and the statistic is withheld if fewer rows change
            in total.
        smallest_expected: Smallest expected number of people for each decision, at equal rates,
            with which a group is tested.
        seed: Seed of the random generator behind p-values with a tolerance and several gaps, and
            behind the smallest detectable effect of several gaps.

    Raises:
        AuditInputError: An argument is invalid; the message names it.
    """
    boundary = distances
    if not isinstance(boundary, BoundaryDistances):
        boundary = BoundaryDistances.given(boundary)
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
        smallest_cell=math.ceil(number("smallest_cell", smallest_cell)),
        seed=require_whole("seed", seed, 0),
    )
    validate_options(options, sample)
    warnings = [
        *sample.warnings,
        *decision_warnings(sample, boundary),
        *label_warnings(sample, options.criterion),
    ]
    blank = _blank(sample, boundary, options)
    selective = selective_labels_reason(sample, options.criterion)
    parts = _partition(sample, options)
    warnings += parts.excluded
    if selective or parts.untestable:
        reason = selective or " ".join(parts.untestable)
        return dataclasses.replace(
            blank, reason=reason, counts=parts.counts, warnings=tuple(warnings)
        )
    sample, parts, changes, boundary, refinement = _project(sample, parts, boundary, options)
    return _test(
        dataclasses.replace(
            blank,
            counts=parts.counts,
            warnings=(*warnings, *distance_warnings(parts.strata), *refinement),
        ),
        sample,
        parts.strata,
        changes,
        boundary,
        options,
    )


def _project(
    sample: Sample, parts: Partition, boundary: BoundaryDistances, options: Options
) -> tuple[Sample, Partition, list[FairChange], BoundaryDistances, list[str]]:
    """The smallest fair change; distances of its rows are refined until its rows stay the same."""
    fair = [_fair_change(stratum, options) for stratum in parts.strata]
    if boundary.refine is None:
        return sample, parts, fair, boundary, []
    refined = np.zeros(len(sample.decisions), dtype=bool)
    changes: dict[int, NDArray[np.float64]] = {}
    missed = 0
    for _ in range(_REFINEMENTS):
        rows = moved_rows(sample, parts.strata, fair)
        rows = rows[~refined[rows]]
        if len(rows) == 0:
            break
        search = boundary.refine(rows)
        missed += int(np.count_nonzero(~search.converged))
        distances = sample.distances.copy()
        distances[rows] = search.distances
        refined[rows] = True
        changes.update(zip(rows.tolist(), search.changes, strict=True))
        sample = dataclasses.replace(sample, distances=distances)
        parts = _partition(sample, options)
        fair = [_fair_change(stratum, options) for stratum in parts.strata]
    left = moved_rows(sample, parts.strata, fair)
    left = left[~refined[left]]
    if len(left) and boundary.changes is not None:
        changes.update(zip(left.tolist(), boundary.changes(left), strict=True))
    warnings = [f"Distances of {count(int(refined.sum()), 'row')} were refined by search."]
    if missed:
        warnings.append(f"{count(missed, 'search', 'searches')} did not reach the boundary.")
    if len(left):
        warnings.append(
            f"Distances of {count(len(left), 'row')} whose decision changes {are(len(left))} not "
            "refined."
        )
    known = dataclasses.replace(
        boundary, changes=lambda rows: np.array([changes[row] for row in rows.tolist()])
    )
    return sample, parts, fair, known, warnings


def _test(
    blank: ProjectionResult,
    sample: Sample,
    strata: Sequence[Stratum],
    changes: Sequence[FairChange],
    boundary: BoundaryDistances,
    options: Options,
) -> ProjectionResult:
    """From the smallest fair change to p-value, effects and explanation."""
    statistic = float(sum(change.cost for change in changes))
    certified_gap = max(change.certified_gap for change in changes)
    v = gaps(sample, strata, tolerance=options.tolerance, favoured=options.favoured)
    result = dataclasses.replace(
        blank,
        statistic=statistic,
        effects=pair_effects(sample, strata, v, confidence_level=1 - options.alpha),
        certified_gap=certified_gap,
        warnings=(*blank.warnings, *certificate_warnings(certified_gap)),
    )
    if math.isinf(statistic):
        reason = (
            "too few rows have a finite distance, so no change of decisions makes the rates agree."
        )
        if math.isinf(result.certified_gap):
            reason = "the solver failed, so the smallest fair change is unknown."
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
    detectable = smallest_detectable_effect(
        v, s_inverse(v, p.s), alpha=options.alpha, seed=options.seed
    )
    return dataclasses.replace(
        result,
        p_value=p.value,
        monte_carlo_error=p.error,
        smallest_detectable_effect=options.tolerance + detectable,
    )


def _partition(sample: Sample, options: Options) -> Partition:
    return partition(
        sample,
        options.criterion,
        smallest_expected=options.smallest_expected,
        all_distances=len(sample.attributes) > 1,
    )


def _fair_change(stratum: Stratum, options: Options) -> FairChange:
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


def _blank(sample: Sample, boundary: BoundaryDistances, options: Options) -> ProjectionResult:
    """A result without statistic and p-value."""
    named = zip(sample.attributes, options.favoured, strict=True)
    return ProjectionResult(
        criterion=options.criterion,
        attributes=tuple(attribute.name for attribute in sample.attributes),
        tolerance=options.tolerance,
        favoured=tuple((a.name, a.groups[g]) for a, g in named if g is not None),
        rows=len(sample.decisions),
        statistic=None,
        p_value=None,
        reason=None,
        monte_carlo_error=0.0,
        alpha=options.alpha,
        law=options.law,
        effects=(),
        smallest_detectable_effect=None,
        counts=(),
        explanation=None,
        distances=boundary.method,
        certified_gap=0.0,
        warnings=(),
        seed=options.seed,
    )
