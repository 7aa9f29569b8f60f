"""The projection test: arrays in, result out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from offline_audit.plain_words import are, count
from offline_audit.projection.boundary import BoundaryDistances, number
from offline_audit.projection.caveats import (
    contradictions,
    distance_warnings,
    label_warnings,
    selective_labels,
    unproven_warnings,
)
from offline_audit.projection.cells import Stratum
from offline_audit.projection.common_rate import Turns, common_rate
from offline_audit.projection.criteria import Criterion, Partition, partition
from offline_audit.projection.effects import pair_effects, smallest_detectable
from offline_audit.projection.explanation import explain, moved_rows
from offline_audit.projection.gaps import gaps
from offline_audit.projection.judged_gaps import judge
from offline_audit.projection.limiting_law import Law, stiffness
from offline_audit.projection.options import Options, favoured_groups, refuse_odd
from offline_audit.projection.overlapping import overlapping_rates
from offline_audit.projection.result import ProjectionResult
from offline_audit.projection.sample import Groups, Sample

__all__ = ["projection_test"]

_REFINEMENTS = 8


def projection_test(
    decisions: ArrayLike,
    distances: ArrayLike | BoundaryDistances,
    groups: Groups,
    *,
    criterion: Criterion = "statistical_parity",
    labels: ArrayLike | None = None,
    units: ArrayLike | None = None,
    tolerance: float = 0.0,
    favoured: str | Mapping[str, str] | None = None,
    law: Law = "standardized",
    bandwidth: float | None = None,
    alpha: float = 0.05,
    smallest_expected: float = 5,
    smallest_cell: int = 10,
    expected_groups: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
) -> ProjectionResult:
    """Is the classifier fair, and if not, what is the least that would have to change?

    H0: the rate of decision 1 is the same in all groups of every attribute, within the outcomes
    that the criterion names, up to the tolerance. The statistic is the summed distance to the
    decision boundary of the rows whose decisions must turn, at least, until the rates agree
    (Proposition 1); p is the chance that a fair classifier's gaps cost as much (Theorem 1; see
    `limiting_law`). Rows of one person are dependent: name the person in `units`, or p is too
    small. Where labels depend on decisions, rates within labels are not what they seem: see the
    warnings.

    Args:
        decisions: 0 or 1, `[n]`.
        distances: To the decision boundary, 0 or more, `[n]`: as an array, or from `distances`. 0
            costs nothing to turn; infinite never turns.
        groups: One a row, `[n]`, or several attributes by name. None, NaN and "" are unknown.
        criterion: What must agree.
        labels: Outcomes, 0 or 1, and None or NaN where not known; criteria but statistical
            parity need them.
        units: The person of each row.
        tolerance: Gaps up to this count as fair (ε of section 4).
        favoured: The group that may be ahead of others by the tolerance at most (one-sided, as in
            section 4), of each attribute; None: no two groups may differ by more.
        law: In which unit gaps are weighed for p: by their scatter, by what they cost in the given
            distances, or by the paper's kernel estimate of that. The same but for `kernel` where
            there is one gap.
        bandwidth: Of the kernel; Silverman's if None.
        alpha: Level of `rejected`, and 1 less that of the intervals.
        smallest_expected: A group takes part if it has so many people for each decision, were
            rates equal.
        smallest_cell: Figures of fewer rows that turn are withheld, and others rounded that would
            tell them; the statistic too, where fewer turn in all.
        expected_groups: Names that groups may have; another one is an error that lists it.

    Raises:
        AuditInputError: What was given cannot be used; the message says what and where.
    """
    boundary = distances
    if not isinstance(boundary, BoundaryDistances):
        boundary = BoundaryDistances.given(boundary)
    sample = Sample.read(
        decisions,
        boundary.distances,
        groups,
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
        alpha=number("alpha", alpha),
        smallest_expected=number("smallest_expected", smallest_expected),
        smallest_cell=math.ceil(number("smallest_cell", smallest_cell)),
    )
    refuse_odd(options, sample)
    warnings = [
        *sample.warnings,
        *contradictions(sample, boundary),
        *label_warnings(sample, options.criterion),
    ]
    blank = _blank(sample, boundary, options)
    selective = selective_labels(sample, options.criterion)
    parts = _cut(sample, options)
    warnings += parts.left_out
    if selective or parts.impossible:
        reason = selective or " ".join(parts.impossible)
        return dataclasses.replace(
            blank, reason=reason, counts=parts.counts, warnings=tuple(warnings)
        )
    sample, parts, turns, boundary, told = _project(sample, parts, boundary, options)
    return _judge(
        dataclasses.replace(
            blank,
            counts=parts.counts,
            warnings=(*warnings, *distance_warnings(parts.strata), *told),
        ),
        sample,
        parts.strata,
        turns,
        boundary,
        options,
    )


def _project(
    sample: Sample, parts: Partition, boundary: BoundaryDistances, options: Options
) -> tuple[Sample, Partition, list[Turns], BoundaryDistances, list[str]]:
    """The smallest fair change; rows that it moves are refined until it moves no others."""
    turns = [_turns(stratum, options) for stratum in parts.strata]
    if boundary.refine is None:
        return sample, parts, turns, boundary, []
    refined = np.zeros(len(sample.decisions), dtype=bool)
    changes: dict[int, NDArray[np.float64]] = {}
    missed = 0
    for _ in range(_REFINEMENTS):
        rows = moved_rows(sample, parts.strata, turns)
        rows = rows[~refined[rows]]
        if len(rows) == 0:
            break
        found = boundary.refine(rows)
        missed += int(np.count_nonzero(~found.converged))
        distances = sample.distances.copy()
        distances[rows] = found.distances
        refined[rows] = True
        changes.update(zip(rows.tolist(), found.changes, strict=True))
        sample = dataclasses.replace(sample, distances=distances)
        parts = _cut(sample, options)
        turns = [_turns(stratum, options) for stratum in parts.strata]
    left = moved_rows(sample, parts.strata, turns)
    left = left[~refined[left]]
    if len(left) and boundary.changes is not None:
        changes.update(zip(left.tolist(), boundary.changes(left), strict=True))
    told = [f"Distances of {count(int(refined.sum()), 'row')} were refined by search."]
    if missed:
        told.append(f"{count(missed, 'search', 'searches')} did not reach the boundary.")
    if len(left):
        told.append(f"{count(len(left), 'row')} that turn {are(len(left))} not refined.")
    known = dataclasses.replace(
        boundary, changes=lambda rows: np.array([changes[row] for row in rows.tolist()])
    )
    return sample, parts, turns, known, told


def _judge(
    blank: ProjectionResult,
    sample: Sample,
    strata: Sequence[Stratum],
    turns: Sequence[Turns],
    boundary: BoundaryDistances,
    options: Options,
) -> ProjectionResult:
    """From the smallest fair change to p-value, effects and explanation."""
    statistic = float(sum(turn.cost for turn in turns))
    unproven = max(turn.certified_gap for turn in turns)
    found = gaps(sample, strata, tolerance=options.tolerance, favoured=options.favoured)
    result = dataclasses.replace(
        blank,
        statistic=statistic,
        effects=pair_effects(sample, strata, found, level=1 - options.alpha),
        certified_gap=unproven,
        warnings=(*blank.warnings, *unproven_warnings(unproven)),
    )
    if math.isinf(statistic):
        reason = "too few rows have a finite distance, so no change of decisions is fair."
        if math.isinf(result.certified_gap):
            reason = "the solver failed, so the smallest fair change is not known."
        return dataclasses.replace(result, reason=reason)
    explained = explain(sample, strata, turns, boundary, smallest_cell=options.smallest_cell)
    result = dataclasses.replace(
        result,
        statistic=None if explained.rows_moved is None else statistic,
        explanation=explained,
    )
    judged = judge(sample, strata, found, statistic, options)
    if judged.p_value is None:
        return dataclasses.replace(result, reason=judged.reason)
    detectable = smallest_detectable(found, stiffness(found, judged.softness), alpha=options.alpha)
    return dataclasses.replace(
        result,
        p_value=judged.p_value,
        monte_carlo_error=judged.error,
        smallest_detectable_effect=options.tolerance + detectable,
    )


def _cut(sample: Sample, options: Options) -> Partition:
    return partition(
        sample,
        options.criterion,
        smallest_expected=options.smallest_expected,
        all_distances=len(sample.attributes) > 1,
    )


def _turns(stratum: Stratum, options: Options) -> Turns:
    ahead = {
        k.attribute: place
        for place, k in enumerate(stratum.constraints)
        if options.favoured[k.attribute] == k.group
    }
    if len(stratum.attributes) == 1:
        return common_rate(
            stratum.cells, tolerance=options.tolerance, favoured=ahead.get(stratum.attributes[0])
        )
    return overlapping_rates(stratum, tolerance=options.tolerance, favoured=ahead)


def _blank(sample: Sample, boundary: BoundaryDistances, options: Options) -> ProjectionResult:
    """A result before anything was found."""
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
    )
