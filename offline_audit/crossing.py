"""Which group each row belongs to, by one protected attribute or by several crossed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError, UnknownColumnError
from offline_audit.groups import UNKNOWN, crossed_name

__all__ = ["By", "Crossing", "crossed", "requested_attributes", "requested_crossings"]

Int = NDArray[np.int64]
# Attributes to audit; a tuple stands for the crossing of its attributes, "pairs" for every
# attribute and every pair of them.
By = str | tuple[str, ...] | Sequence[str | tuple[str, ...]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Groups of one attribute, or of several together.

    Attributes:
        attribute: Name of the attribute; of several, their names joined by ×.
        names: Names of the groups.
        codes: Index of each row's group in `names`, `[n]`; -1 if unknown.
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


def requested_crossings(attributes: Mapping[str, Crossing], by: By) -> list[Crossing]:
    """Attributes and crossings that `by` requests, in its order.

    Raises:
        UnknownColumnError: `by` names an attribute that does not exist.
    """
    requested = requested_attributes(by, list(attributes))
    return [
        attributes[names[0]] if len(names) == 1 else crossed([attributes[n] for n in names])
        for names in requested
    ]


def requested_attributes(by: By, attributes: Sequence[str]) -> list[tuple[str, ...]]:
    """Attributes of each requested crossing; a single attribute is a tuple of one.

    Raises:
        AuditInputError: `by` is not a name, a tuple or a list of these.
        UnknownColumnError: `by` names an attribute that does not exist.
    """
    single = [(name,) for name in attributes]
    if by is None:
        return list(single)
    if by == "pairs" and "pairs" not in attributes:
        return [*single, *itertools.combinations(attributes, 2)]
    entries: Any = [by] if isinstance(by, str | tuple) else by
    if not isinstance(entries, Iterable):
        raise AuditInputError(
            "by: an attribute, a tuple of attributes or a list of these is needed"
        )
    requested = [(entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]
    if not requested or not all(requested):
        raise AuditInputError("by: at least one attribute is needed")
    for name in itertools.chain.from_iterable(requested):
        if name not in attributes:
            raise UnknownColumnError(
                f"by: no protected attribute {name!r}; there is: {', '.join(attributes) or 'none'}"
            )
    return requested
