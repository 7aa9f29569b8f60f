"""Options of a projection test, validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offline_audit.criteria import CRITERIA, Criterion, check_criterion, needs_labels
from offline_audit.errors import AuditInputError
from offline_audit.projection.limiting_law import Law
from offline_audit.projection.sample import Sample
from offline_audit.rendering import some

__all__ = ["Options", "favoured_groups", "validate_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a test; see `projection_test`."""

    criterion: Criterion
    tolerance: float
    favoured: tuple[int | None, ...]
    law: Law
    bandwidth: float | None
    alpha: float
    smallest_cell: int
    smallest_expected: float
    seed: int

    @property
    def one_sided(self) -> bool:
        """Whether an attribute has a favoured group."""
        return any(group is not None for group in self.favoured)


def favoured_groups(
    sample: Sample, favoured: str | Mapping[str, str] | None
) -> tuple[int | None, ...]:
    """Index of the favoured group of each attribute; None if it has none."""
    by_attribute = favoured or {}
    if not isinstance(by_attribute, Mapping):
        if len(sample.attributes) > 1:
            raise AuditInputError(
                "favoured: there are several attributes; pass {attribute: group} instead of a name"
            )
        by_attribute = {sample.attributes[0].name: by_attribute}
    unknown = set(by_attribute) - {attribute.name for attribute in sample.attributes}
    if unknown:
        raise AuditInputError(f"favoured: there is no attribute {some(sorted(unknown))}")
    indices: list[int | None] = []
    for attribute in sample.attributes:
        group = by_attribute.get(attribute.name)
        if group is not None and str(group) not in attribute.groups:
            raise AuditInputError(
                f"favoured: {attribute.name} has no group {group!r}; "
                f"there are {some(attribute.groups, 9)}"
            )
        indices.append(None if group is None else attribute.groups.index(str(group)))
    return tuple(indices)


def validate_options(options: Options, sample: Sample) -> None:
    """Check the options against each other and against the sample.

    Raises:
        AuditInputError: An option is out of range, or does not fit the others.
    """
    check_criterion(options.criterion)
    if options.law not in {"standardized", "curve", "kernel"}:
        raise AuditInputError(
            f"law: unknown law {options.law!r}; use one of standardized, curve, kernel"
        )
    if not 0 <= options.tolerance < 1:
        raise AuditInputError(
            f"tolerance: must be at least 0 and below 1, not {options.tolerance:g}"
        )
    if options.bandwidth is not None and not options.bandwidth > 0:
        raise AuditInputError(f"bandwidth: must be positive, not {options.bandwidth:g}")
    for name in ("smallest_cell", "smallest_expected"):
        if getattr(options, name) < 1:
            raise AuditInputError(f"{name}: must be at least 1, not {getattr(options, name):g}")
    if needs_labels(options.criterion) and sample.labels is None:
        raise AuditInputError(f"labels: required by the criterion {options.criterion}")
    if options.law == "kernel" and (options.tolerance > 0 or options.one_sided):
        pairs = len(sample.attributes) == 1 and len(sample.attributes[0].groups) == 2
        if not (pairs and options.one_sided and len(CRITERIA[options.criterion]) == 1):
            raise AuditInputError(
                'law: with a tolerance, "kernel" needs two groups, one of them favoured, and a '
                'criterion with a single label; use law="standardized"'
            )
