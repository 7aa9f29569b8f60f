"""What a projection test found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_audit.presentation import json_ready, to_html, to_text
from offline_audit.projection.criteria import Criterion, GroupCount
from offline_audit.projection.effects import Effect
from offline_audit.projection.explanation import Explanation
from offline_audit.projection.limiting_law import Law
from offline_audit.projection.result_text import drawn, notes_of, table_of, title_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ProjectionResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionResult:
    """The least change of decisions that makes a sample fair, and whether chance explains it.

    Attributes:
        criterion: What must agree between groups.
        attributes: The protected attributes, all tested at once.
        tolerance: Gaps up to this count as fair.
        favoured: The group of each attribute that may not be ahead; empty: gaps in any direction.
        rows: Rows given.
        statistic: Summed distance that the smallest fair change moves rows (N times the projection
            distance); infinite if no change is fair; None if it was not computed, or is withheld
            since it is the distance of fewer rows than the smallest cell.
        p_value: None if it would mean nothing.
        reason: Why there is no p-value; None if there is one.
        monte_carlo_error: Standard error of the p-value; 0 where it is computed, not simulated.
        alpha: Level at which `rejected` answers.
        law: How the p-value was found.
        effects: Gaps between pairs of groups, with intervals at level 1 - alpha.
        smallest_detectable_effect: Gap between any one group and the others that this sample would
            show with 80% power; None without a p-value.
        counts: Rows and rates of every group.
        explanation: What the smallest fair change does; None if it was not computed.
        distances: How the distances were found.
        certified_gap: How far the cost may be from the least, as a share of it.
        warnings: What a reader should know.
    """

    criterion: Criterion
    attributes: tuple[str, ...]
    tolerance: float
    favoured: tuple[tuple[str, str], ...]
    rows: int
    statistic: float | None
    p_value: float | None
    reason: str | None
    monte_carlo_error: float
    alpha: float
    law: Law
    effects: tuple[Effect, ...]
    smallest_detectable_effect: float | None
    counts: tuple[GroupCount, ...]
    explanation: Explanation | None
    distances: str
    certified_gap: float
    warnings: tuple[str, ...]

    @property
    def rejected(self) -> bool | None:
        """Whether fairness is rejected at level alpha; None without a p-value."""
        return None if self.p_value is None else self.p_value <= self.alpha

    @property
    def cost_per_row(self) -> float | None:
        """The projection distance: the mean distance that rows move."""
        return None if self.statistic is None else self.statistic / self.rows

    def __str__(self) -> str:
        return to_text(title_of(self), table_of(self), notes_of(self))

    def _repr_html_(self) -> str:
        return to_html(title_of(self), table_of(self), notes_of(self))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, with what follows from the rest."""
        found: dict[str, Any] = json_ready(self)
        return {**found, "rejected": self.rejected, "cost_per_row": json_ready(self.cost_per_row)}

    def plot(self) -> Figure:
        """Gaps with their intervals; the tolerance is shaded."""
        return drawn(self)
