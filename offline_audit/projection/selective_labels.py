"""Labels that exist for one decision only: loans that were granted, say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offline_audit.projection.sample import Attribute, Sample

__all__ = ["selective_groups", "unheard"]


def unheard(
    sample: Sample, label: int | None, *, but: Attribute | None = None
) -> NDArray[np.bool_]:
    """Rows of groups whose labels tell nothing, of any attribute but one."""
    found = np.zeros(len(sample.decisions), dtype=bool)
    for attribute in sample.attributes:
        if label is not None and attribute is not but:
            found |= np.isin(attribute.codes, selective_groups(sample, attribute))
    return found


def selective_groups(sample: Sample, attribute: Attribute) -> tuple[int, ...]:
    """Groups with both decisions whose labels exist for one of them only: rates of 0 or 1."""
    if sample.labels is None:
        return ()
    size, known = len(attribute.groups), attribute.codes >= 0
    # Rows of each group by decision: all, and those with a label.
    place = 2 * attribute.codes[known] + sample.decisions[known]
    there = np.bincount(place, minlength=2 * size).reshape(size, 2) > 0
    labelled = place[sample.labels[known] >= 0]
    told = np.bincount(labelled, minlength=2 * size).reshape(size, 2) > 0
    return tuple(np.flatnonzero(there.all(axis=1) & (told[:, 0] != told[:, 1])).tolist())
