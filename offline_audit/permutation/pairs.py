"""Who is compared with whom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.group_names import word_of
from offline_audit.permutation.sources import GroupSet

__all__ = ["Pair", "Reference", "pairs_of"]

Int = NDArray[np.int64]
# Names of the two sides, and places of their groups.
Pair = tuple[tuple[str, str], tuple[Int, Int]]
# The group that others are compared with; by attribute, if there are several.
Reference = str | int | Mapping[str, str | int] | None


def pairs_of(group_sets: Sequence[GroupSet], reference: Reference) -> list[list[Pair]]:
    """Pairs of each attribute or crossing.

    Raises:
        AuditInputError: An attribute has fewer than two groups, or no such reference.
    """
    for found in group_sets:
        if len(found.names) < 2:
            only = f"only {found.names[0]!r}" if found.names else "none"
            raise AuditInputError(
                f"groups of {found.attribute}: two are needed, there is {only} with known rows"
            )
    if isinstance(reference, Mapping):
        known = [found.attribute for found in group_sets]
        for attribute in reference:
            if attribute not in known:
                raise AuditInputError(
                    f"reference: there is no attribute {attribute!r}; there are {', '.join(known)}"
                )
        named = [reference.get(found.attribute) for found in group_sets]
        chosen = [None if name is None else word_of(name) for name in named]
    else:
        reference = None if reference is None else word_of(reference)
        # One name refers to the attribute that has such a group.
        chosen = [reference if reference in found.names else None for found in group_sets]
        if reference is not None and not any(chosen):
            names = [name for found in group_sets for name in found.names]
            raise AuditInputError(f"reference: no group {reference!r} among {', '.join(names)}")
    return [list(_pairs(f, c)) for f, c in zip(group_sets, chosen, strict=True)]


def _pairs(found: GroupSet, reference: str | None) -> Iterator[Pair]:
    names, everyone = found.names, np.arange(len(found.names))
    if reference is not None:
        if reference not in names:
            raise AuditInputError(
                f"reference: {found.attribute} has no group {reference!r}; "
                f"there are {', '.join(names)}"
            )
        base = np.array([names.index(reference)])
        for place in everyone[everyone != base[0]]:
            yield (names[place], reference), (np.array([place]), base)
    elif len(names) == 2:
        yield (names[0], names[1]), (everyone[:1], everyone[1:])
    else:
        for place in everyone:
            pair = (names[place], f"not {names[place]}")
            yield pair, (np.array([place]), everyone[everyone != place])
