"""What a projection test is asked to do, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offline_audit.errors import AuditInputError
from offline_audit.plain_words import some
from offline_audit.projection.criteria import CRITERIA, Criterion
from offline_audit.projection.limiting_law import Law
from offline_audit.projection.sample import Sample

__all__ = ["Options", "favoured_groups", "refuse_odd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test was asked to do; see `projection_test`."""

    criterion: Criterion
    tolerance: float
    favoured: tuple[int | None, ...]
    law: Law
    bandwidth: float | None
    alpha: float
    smallest_expected: float
    smallest_cell: int

    @property
    def one_sided(self) -> bool:
        """Whether a group is named that may not be ahead."""
        return any(group is not None for group in self.favoured)


def favoured_groups(
    sample: Sample, favoured: str | Mapping[str, str] | None
) -> tuple[int | None, ...]:
    """Place of the favoured group of each attribute."""
    named = favoured or {}
    if not isinstance(named, Mapping):
        if len(sample.attributes) > 1:
            raise AuditInputError("favoured: name the group of each attribute: {attribute: group}")
        named = {sample.attributes[0].name: named}
    unknown = set(named) - {attribute.name for attribute in sample.attributes}
    if unknown:
        raise AuditInputError(f"favoured: no attribute {some(sorted(unknown))}")
    places: list[int | None] = []
    for attribute in sample.attributes:
        group = named.get(attribute.name)
        if group is not None and str(group) not in attribute.groups:
            raise AuditInputError(f"favoured: {attribute.name} has no group {group!r}")
        places.append(None if group is None else attribute.groups.index(str(group)))
    return tuple(places)


def refuse_odd(options: Options, sample: Sample) -> None:
    """Refuse options that fit no test."""
    if options.criterion not in CRITERIA:
        raise AuditInputError(
            f"criterion: {options.criterion!r} is none of {some(list(CRITERIA), 9)}"
        )
    if options.law not in {"standardized", "curve", "kernel"}:
        raise AuditInputError(f"law: {options.law!r} is none of standardized, curve, kernel")
    if not 0 <= options.tolerance < 1:
        raise AuditInputError(f"tolerance: {options.tolerance:g} is not in [0, 1)")
    if not 0 < options.alpha < 1:
        raise AuditInputError(f"alpha: {options.alpha:g} is not between 0 and 1")
    if options.bandwidth is not None and not options.bandwidth > 0:
        raise AuditInputError("bandwidth: it must be above 0")
    if options.smallest_expected < 1 or options.smallest_cell < 1:
        raise AuditInputError("smallest_expected, smallest_cell: they must be 1 or more")
    if options.criterion != "statistical_parity" and sample.labels is None:
        raise AuditInputError(f"labels: {options.criterion} needs them")
    if options.law == "kernel" and (options.tolerance > 0 or options.one_sided):
        pairs = len(sample.attributes) == 1 and len(sample.attributes[0].groups) == 2
        if not (pairs and options.one_sided and len(CRITERIA[options.criterion]) == 1):
            raise AuditInputError(
                "law: with a tolerance, kernel takes two groups, one of them favoured, and a "
                "criterion of one outcome; use standardized"
            )
