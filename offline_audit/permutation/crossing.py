"""Which group each row belongs to, by one protected attribute or by several crossed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.group_names import UNKNOWN, crossed_name

__all__ = ["Crossing", "Intersections", "crossed", "wanted_crossings"]

Int = NDArray[np.int64]
# None of them, every pair of attributes, or those named.
Intersections = bool | Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Groups of one attribute, or of several together.

    Attributes:
        attribute: Its name, or the names joined.
        names: Of the groups.
        codes: Place of each row's group among the names, `[n]`; −1 where it is not known.
    """

    attribute: str
    names: tuple[str, ...]
    codes: Int


def crossed(parts: Sequence[Crossing]) -> Crossing:
    """Groups that several attributes define together; only those that occur."""
    known = np.all([part.codes != UNKNOWN for part in parts], axis=0)
    sizes = tuple(len(part.names) for part in parts)
    flat = np.ravel_multi_index([np.where(known, part.codes, 0) for part in parts], sizes)
    found = np.unique(flat[known])
    codes = np.where(known, np.searchsorted(found, flat), UNKNOWN)
    places = zip(*(axis.tolist() for axis in np.unravel_index(found, sizes)), strict=True)
    names = tuple(
        crossed_name(part.names[place] for part, place in zip(parts, each, strict=True))
        for each in places
    )
    return Crossing(
        attribute=crossed_name(part.attribute for part in parts), names=names, codes=codes
    )


def wanted_crossings(
    attributes: Mapping[str, Crossing], intersections: Intersections
) -> list[Crossing]:
    """Each attribute by itself, then the intersections.

    Raises:
        AuditInputError: An intersection names an attribute that is not there.
    """
    pairs: list[tuple[str, ...]]
    if isinstance(intersections, bool):
        pairs = list(itertools.combinations(attributes, 2)) if intersections else []
    else:
        pairs = [tuple(each) for each in intersections]
    for name in {name for pair in pairs for name in pair} - set(attributes):
        raise AuditInputError(
            f"intersections: there is no attribute {name!r}; there are {', '.join(attributes)}"
        )
    return [*attributes.values(), *(crossed([attributes[n] for n in pair]) for pair in pairs)]
