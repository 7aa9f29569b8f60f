"""Selective labels: labels that exist, or are more often known, for one decision only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.sample import Attribute, Sample

__all__ = ["selective_groups", "uneven_groups", "unidentified_rows"]

# Number of standard errors above which shares of labelled rows differ by more than chance.
_STANDARD_ERRORS = 3


def unidentified_rows(
    sample: Sample, label: int | None, *, but: Attribute | None = None
) -> NDArray[np.bool_]:
    """Rows of groups with selective labels, of any attribute but one, `[n]`."""
    rows = np.zeros(len(sample.decisions), dtype=bool)
    for attribute in sample.attributes:
        if label is None or attribute is but:
            continue
        if groups := selective_groups(sample, attribute):
            rows |= np.isin(attribute.codes, groups)
    return rows


def selective_groups(sample: Sample, attribute: Attribute) -> tuple[int, ...]:
    """Groups with both decisions but labels for only one: their rates would be 0 or 1."""
    rows, known = _labelled(sample, attribute)
    selective = (known[:, 0] > 0) != (known[:, 1] > 0)
    return tuple(np.flatnonzero((rows > 0).all(axis=1) & selective).tolist())


def uneven_groups(sample: Sample, attribute: Attribute, *, most: float) -> tuple[int, ...]:
    """Groups whose shares of known labels differ between decisions by more than `most` and chance.

    Groups with labels for one decision only are not among them.
    """
    rows, known = _labelled(sample, attribute)
    both = np.flatnonzero((rows > 0).all(axis=1) & (known > 0).all(axis=1))
    shares = known[both] / rows[both]
    pooled = known[both].sum(axis=1) / rows[both].sum(axis=1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / rows[both]).sum(axis=1))
    apart = np.abs(shares[:, 0] - shares[:, 1])
    return tuple(both[(apart > most) & (apart > _STANDARD_ERRORS * error)].tolist())


def _labelled(sample: Sample, attribute: Attribute) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Numbers of rows, and of labelled rows, of each group by decision, `[groups, 2]` each."""
    size = len(attribute.groups)
    if sample.labels is None or sample.labels.min() >= 0:
        none = np.zeros((size, 2), dtype=np.intp)
        return none, none
    member = attribute.codes >= 0
    codes = 2 * attribute.codes[member] + sample.decisions[member]
    labelled = codes[sample.labels[member] >= 0]
    rows, known = (np.bincount(part, minlength=2 * size) for part in (codes, labelled))
    return rows.reshape(size, 2), known.reshape(size, 2)
