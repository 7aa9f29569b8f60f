"""Warnings about labels, distances and decisions that limit what a projection test can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from offline_audit.criteria import Criterion
from offline_audit.errors import AuditInputError
from offline_audit.projection.boundary import BoundaryDistances
from offline_audit.projection.cells import Stratum
from offline_audit.projection.sample import Sample
from offline_audit.projection.selective_labels import uneven_groups
from offline_audit.rendering import are, count, percent, some

__all__ = [
    "certificate_warnings",
    "decision_warnings",
    "distance_warnings",
    "label_warnings",
    "selective_labels_reason",
]

# Difference of the shares of labelled rows between decisions above which there is a warning.
_UNEVEN_LABELS = 0.1
# Share of decisions that contradict the classifier above which the distances are refused.
_MOST_CONTRADICTIONS = 0.1
# Share of the median distance below which rounding can put a row on either side.
_ROUNDING = 1e-5
# Relative gap of the cost to its lower bound above which there is a warning.
_PROVEN = 1e-6


def selective_labels_reason(sample: Sample, criterion: Criterion) -> str | None:
    """Why rates within labels are not identified, if labels exist for one decision only."""
    if criterion == "statistical_parity" or sample.labels is None:
        return None
    known = [sample.labels[sample.decisions == decision] >= 0 for decision in (0, 1)]
    if all(len(part) for part in known) and known[0].any() != known[1].any():
        labelled = int(known[1].any())
        return (
            f"Labels exist for decision {labelled} only, so rates within labels are not "
            "identified. Statistical parity needs no labels."
        )
    return None


def label_warnings(sample: Sample, criterion: Criterion) -> list[str]:
    """Rows without a label, and whether missing labels depend on the decision."""
    if criterion == "statistical_parity" or sample.labels is None:
        return []
    missing = int(np.count_nonzero(sample.labels < 0))
    if not missing:
        return []
    warnings = [f"{count(missing, 'row')} without a label {are(missing)} excluded."]
    parts = [sample.labels[sample.decisions == decision] >= 0 for decision in (0, 1)]
    shares = [float(part.mean()) if len(part) else 0.0 for part in parts]
    if all(len(part) for part in parts) and abs(shares[0] - shares[1]) > _UNEVEN_LABELS:
        warnings.append(
            f"Labels are known for {percent(shares[0])} of decisions 0 and {percent(shares[1])} of "
            "decisions 1: rates within labels are biased unless labels are missing at random."
        )
    for attribute in sample.attributes:
        uneven = uneven_groups(sample, attribute, most=_UNEVEN_LABELS)
        if uneven:
            names = some([attribute.groups[g] for g in uneven])
            warnings.append(
                f"Whether a label is known depends on the decision in groups of {attribute.name}: "
                f"{names}. Their rates within labels are biased."
            )
    return warnings


def decision_warnings(sample: Sample, boundary: BoundaryDistances) -> list[str]:
    """Decisions that differ from those of the classifier whose boundary it is.

    Raises:
        AuditInputError: Too many differ for the distances to belong to these decisions.
    """
    if boundary.decided is None:
        return []
    finite = sample.distances[np.isfinite(sample.distances)]
    # On the boundary itself the decision is a matter of rounding.
    clear = sample.distances > _ROUNDING * (float(np.median(finite)) if len(finite) else 0.0)
    different = int(np.count_nonzero(clear & (boundary.decided != (sample.decisions == 1))))
    if different > _MOST_CONTRADICTIONS * len(sample.decisions):
        raise AuditInputError(
            f"decisions: {different:,} of {len(sample.decisions):,} differ from those of the "
            "classifier that the distances were computed for; pass its own decisions, 1 where the "
            "score is 0 or more"
        )
    if not different:
        return []
    verb = "differs" if different == 1 else "differ"
    return [
        f"{count(different, 'decision')} {verb} from the classifier's: those distances are invalid."
    ]


def distance_warnings(strata: Sequence[Stratum]) -> list[str]:
    """Rows that change at no cost, and rows that never change."""
    curves = [curve for s in strata for cell in s.cells for curve in (cell.rise, cell.fall)]
    on_boundary = sum(curve.on_boundary for curve in curves)
    infinite = sum(curve.rows - curve.movable for curve in curves)
    warnings = []
    if on_boundary:
        warnings.append(
            f"{count(on_boundary, 'row')} {are(on_boundary)} on the boundary (distance 0): their "
            "decisions change at no cost."
        )
    if infinite:
        warnings.append(
            f"{count(infinite, 'row')} {are(infinite)} at an infinite distance: their decisions "
            "never change."
        )
    return warnings


def certificate_warnings(gap: float) -> list[str]:
    """A fair change that may not be the smallest."""
    if gap <= _PROVEN or math.isinf(gap):
        return []
    return [
        f"The smallest fair change is not certified: it may cost up to {100 * gap:.2g}% too much."
    ]
