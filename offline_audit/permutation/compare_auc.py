"""One comparison of AUCs: whether it can be made, what it estimates, what the test says."""

from __future__ import annotations

import math

import numpy as np

from offline_audit.permutation.auc_test import RankedSides, auc_test
from offline_audit.permutation.intervals import auc_interval, combined
from offline_audit.permutation.measured import Measured, refused
from offline_audit.permutation.outcome import Side
from offline_audit.permutation.rearranged_sums import Rearranging
from offline_audit.permutation.tally import Exchange

__all__ = ["LEAST_AUC_CELL", "measured_auc"]

# Expected positives, and negatives, that rank on the wrong side (docs/decisions/0009).
LEAST_AUC_CELL = 5


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
            return refused(described, LEAST_AUC_CELL, text)
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
