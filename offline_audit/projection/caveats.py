"""What a reader of a projection test must know about the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from offline_audit.errors import AuditInputError
from offline_audit.plain_words import are, count, percent, some
from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.cells import Stratum
from offline_audit.projection.criteria import Criterion
from offline_audit.projection.sample import Sample
from offline_audit.projection.selective_labels import uneven_groups

__all__ = [
    "contradictions",
    "distance_warnings",
    "label_warnings",
    "selective_labels",
    "unproven_warnings",
]

# Shares of labelled rows that differ by more than this between decisions are warned of.
_UNEVEN_LABELS = 0.1
# Beyond this share of decisions that are not the classifier's, distances cannot be theirs.
_MOST_CONTRADICTIONS = 0.1
# Of a typical distance: nearer rows may be on either side.
_ROUNDING = 1e-5
# A cost proven to within this share of the least is not worth a word.
_PROVEN = 1e-6


def selective_labels(sample: Sample, criterion: Criterion) -> str | None:
    """Why criteria on labels say nothing, if labels exist for one decision only."""
    if criterion == "statistical_parity" or sample.labels is None:
        return None
    known = [sample.labels[sample.decisions == decision] >= 0 for decision in (0, 1)]
    if all(len(part) for part in known) and known[0].any() != known[1].any():
        there = int(known[1].any())
        return (
            f"Labels exist for decision {there} only, so rates within labels are not identified. "
            "Statistical parity needs no labels."
        )
    return None


def label_warnings(sample: Sample, criterion: Criterion) -> list[str]:
    """Rows without a label, and whether they hang on the decision."""
    if criterion == "statistical_parity" or sample.labels is None:
        return []
    missing = int(np.count_nonzero(sample.labels < 0))
    if not missing:
        return []
    told = [f"{count(missing, 'row')} without a label {are(missing)} left out."]
    parts = [sample.labels[sample.decisions == decision] >= 0 for decision in (0, 1)]
    shares = [float(part.mean()) if len(part) else 0.0 for part in parts]
    if all(len(part) for part in parts) and abs(shares[0] - shares[1]) > _UNEVEN_LABELS:
        told.append(
            f"Labels are known for {percent(shares[0])} of decisions 0 and {percent(shares[1])} of "
            "decisions 1: rates within labels are biased unless that is by chance."
        )
    for attribute in sample.attributes:
        uneven = uneven_groups(sample, attribute, most=_UNEVEN_LABELS)
        if uneven:
            named = some([attribute.groups[g] for g in uneven])
            told.append(
                f"Labels hang on the decision in groups of {attribute.name}: {named}. Their rates "
                "within labels are biased."
            )
    return told


def contradictions(sample: Sample, boundary: BoundaryDistances) -> list[str]:
    """Decisions that are not those of the classifier whose boundary it is.

    Raises:
        AuditInputError: There are too many for the distances to be theirs.
    """
    if boundary.decided is None:
        return []
    finite = sample.distances[np.isfinite(sample.distances)]
    # On the boundary itself a rounding decides.
    clear = sample.distances > _ROUNDING * (float(np.median(finite)) if len(finite) else 0.0)
    odd = int(np.count_nonzero(clear & (boundary.decided != (sample.decisions == 1))))
    if odd > _MOST_CONTRADICTIONS * len(sample.decisions):
        raise AuditInputError(
            f"decisions: {odd:,} of {len(sample.decisions):,} are not those of the classifier that "
            "the distances are of; give its own decisions, 1 where the score is 0 or more"
        )
    if not odd:
        return []
    few = count(odd, "decision")
    return [f"{few} {are(odd)} not the classifier's: those rows' distances are of the wrong way."]


def distance_warnings(strata: Sequence[Stratum]) -> list[str]:
    """Rows that cost nothing to turn, and rows that never turn."""
    curves = [curve for s in strata for cell in s.cells for curve in (cell.rise, cell.fall)]
    on = sum(curve.on_boundary for curve in curves)
    never = sum(curve.rows - curve.movable for curve in curves)
    told = []
    if on:
        told.append(
            f"{count(on, 'row')} {are(on)} on the boundary (distance 0): turning costs nothing."
        )
    if never:
        told.append(f"{count(never, 'row')} {are(never)} infinitely far: never turned.")
    return told


def unproven_warnings(gap: float) -> list[str]:
    """A smallest change that may not be the smallest."""
    if gap <= _PROVEN or math.isinf(gap):
        return []
    return [f"The smallest fair change is not proven: it costs up to {100 * gap:.2g}% too much."]
