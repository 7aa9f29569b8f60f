"""What a reader of a projection test must know about the rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offline_audit.plain_words import are, count, percent
from offline_audit.projection.cells import Stratum
from offline_audit.projection.criteria import Criterion
from offline_audit.projection.sample import Sample

__all__ = ["distance_warnings", "label_warnings", "selective_labels"]

# Shares of labelled rows that differ by more than this between decisions are warned of.
_UNEVEN_LABELS = 0.1


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
    return told


def distance_warnings(sample: Sample, strata: Sequence[Stratum]) -> list[str]:
    """Rows that cost nothing to turn, and rows that never turn."""
    rows = np.concatenate(
        [
            part
            for s in strata
            for cell in s.cells
            for part in (cell.positive_rows, cell.negative_rows)
        ]
    )
    near = sample.distances[rows]
    on, never = int(np.count_nonzero(near == 0)), int(np.count_nonzero(np.isinf(near)))
    told = []
    if on:
        told.append(
            f"{count(on, 'row')} {are(on)} on the boundary (distance 0): turning costs nothing."
        )
    if never:
        told.append(f"{count(never, 'row')} {are(never)} infinitely far: never turned.")
    return told
