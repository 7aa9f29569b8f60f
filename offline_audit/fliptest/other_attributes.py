"""Other protected attributes that a map changes: decisions that change by way of them.

If race is a feature, the map from women to men may also transport rows to another race, where the
groups' shares of races differ. A decision may then change through race, and not through sex.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monitor.bundle import BundleSpec
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.flipset import SIDES, Flipset, Side
from offline_audit.fliptest.transparency import TransparencyReport
from offline_audit.maps.columns import Columns
from offline_audit.rendering import percent, some

__all__ = ["AttributeChange", "attribute_changes", "other_attributes", "with_undone_flips"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeChange:
    """Change of another protected attribute by the map.

    Attributes:
        attribute: Name of the other protected attribute.
        feature: Its feature, or group of one-hot columns.
        moved: Share of the rows that are transported to another value; None if these are fewer
            people than the smallest cell.
        undone: Share of the changed decisions that are undone if this feature alone is set back;
            None if it is not known.
        smallest_cell: Smallest number of people whose figures are shown.
    """

    attribute: str
    feature: str
    moved: float | None
    undone: float | None = None
    smallest_cell: int

    def sentence(self, source: str, caveat: str) -> str:
        """The change in words.

        Args:
            source: Group whose members are transported.
            caveat: What to say where the map is not shown to be good.
        """
        many = (
            f"Fewer than {self.smallest_cell} people of {source}"
            if self.moved is None
            else f"{percent(self.moved)} of {source}"
        )
        start = f"{many} are transported to another {self.attribute}"
        if self.undone is None:
            return (
                f"{start}; changed decisions may go through {self.attribute} instead of the group."
            )
        if not self.undone:
            return f"{start}; no changed decision goes through {self.attribute} alone{caveat}."
        return (
            f"{start}; part of the changed decisions go through {self.attribute}: "
            f"{percent(self.undone)} are undone if {self.attribute} alone is set back{caveat}."
        )


def other_attributes(
    manifest: BundleSpec | None,
    protected: Collection[str] | None,
    columns: Columns,
    attribute: str,
) -> dict[str, str]:
    """Protected attributes other than the tested one, by the variable that holds them.

    Args:
        manifest: Manifest with the protected attributes; None if there is none.
        protected: Names of such variables; None to take those of the manifest.
        columns: Description of the columns.
        attribute: The tested attribute.

    Raises:
        AuditInputError: A name is not one of the variables.
    """
    variables = {variable.name for variable in columns.variables}
    if protected is not None:
        names = [protected] if isinstance(protected, str) else list(protected)
        if unknown := [str(name) for name in names if name not in variables]:
            raise AuditInputError(
                f"protected: no feature {unknown[0]!r}; choose from {some(sorted(variables), 9)}"
            )
        return {name: name for name in names}
    known = () if manifest is None else manifest.protected_attributes
    return {a.feature: a.name for a in known if a.feature in variables and a.name != attribute}


def attribute_changes(
    flipset: Flipset, columns: Columns, others: Mapping[str, str], smallest: int
) -> tuple[AttributeChange, ...]:
    """The other protected attributes that differ between rows and counterparts."""
    changes = []
    for variable in columns.variables:
        if variable.name not in others:
            continue
        at = list(variable.columns)
        moved = (flipset.counterparts[:, :, at] != flipset.features[:, at]).any(2)
        people = int(moved.any(0).sum())
        if people:
            change = AttributeChange(
                attribute=others[variable.name],
                feature=variable.name,
                moved=float(moved.mean()) if people >= smallest else None,
                smallest_cell=smallest,
            )
            changes.append(change)
    return tuple(changes)


def with_undone_flips(
    changes: Sequence[AttributeChange],
    flipset: Flipset,
    reports: Mapping[Side, TransparencyReport],
) -> tuple[AttributeChange, ...]:
    """Add the share of changed decisions that each attribute undoes, over both sides.

    It stays unknown if the figures of a side with flips are suppressed.
    """
    sides = [side for side in SIDES if flipset.share(side) > 0]
    if not sides or any(not reports[side].features for side in sides):
        return tuple(changes)
    weights = [flipset.share(side) for side in sides]
    result = []
    for change in changes:
        undone = [reports[side].of(change.feature).undone for side in sides]
        known = [share for share in undone if share is not None]
        total = float(np.average(known, weights=weights)) if len(known) == len(sides) else None
        result.append(replace(change, undone=total))
    return tuple(result)
