"""Labels that exist for one decision only: loans that were granted, say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.sample import Attribute, Sample

__all__ = ["selective_groups", "uneven_groups", "unheard"]

# Shares that differ by fewer may do so by chance.
_STANDARD_ERRORS = 3


def unheard(
    sample: Sample, label: int | None, *, but: Attribute | None = None
) -> NDArray[np.bool_]:
    """Rows of groups whose labels tell nothing, of any attribute but one."""
    found = np.zeros(len(sample.decisions), dtype=bool)
    for attribute in sample.attributes:
        if label is None or attribute is but:
            continue
        if groups := selective_groups(sample, attribute):
            found |= np.isin(attribute.codes, groups)
    return found


def selective_groups(sample: Sample, attribute: Attribute) -> tuple[int, ...]:
    """Groups with both decisions whose labels exist for one of them only: rates of 0 or 1."""
    rows, known = _labelled(sample, attribute)
    one = (known[:, 0] > 0) != (known[:, 1] > 0)
    return tuple(np.flatnonzero((rows > 0).all(axis=1) & one).tolist())


def uneven_groups(sample: Sample, attribute: Attribute, *, most: float) -> tuple[int, ...]:
    """Groups whose shares of known labels differ between decisions by more than that, and chance.

    Those with labels for one decision only are not among them.
    """
    rows, known = _labelled(sample, attribute)
    several = np.flatnonzero((rows > 0).all(axis=1) & (known > 0).all(axis=1))
    shares = known[several] / rows[several]
    pooled = known[several].sum(axis=1) / rows[several].sum(axis=1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / rows[several]).sum(axis=1))
    apart = np.abs(shares[:, 0] - shares[:, 1])
    return tuple(several[(apart > most) & (apart > _STANDARD_ERRORS * error)].tolist())


def _labelled(sample: Sample, attribute: Attribute) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of each group by decision, and how many have a label, `[groups, 2]` each."""
    size = len(attribute.groups)
    if sample.labels is None or sample.labels.min() >= 0:
        none = np.zeros((size, 2), dtype=np.intp)
        return none, none
    there = attribute.codes >= 0
    place = 2 * attribute.codes[there] + sample.decisions[there]
    told = place[sample.labels[there] >= 0]
    rows, known = (np.bincount(part, minlength=2 * size) for part in (place, told))
    return rows.reshape(size, 2), known.reshape(size, 2)
