"""One repair of dependence, with the indices that apply it to transported rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from monitor.scoring.counterfactual.lookup import GRID, CategoryLookup, OrderedLookup
from monitor.scoring.counterfactual.repair import Repair

__all__ = ["RepairStep", "Rows"]


class Rows(NamedTuple):
    """What all repairs of the same rows read.

    Attributes:
        features: The rows, `[n, d]`.
        values: Their ordered features that may move, `[n, o]`.
        current: Codes of their categories, int64 `[n, g]`.
        drawn: Codes of their categories in the other group, int64 `[e, n, g]`.
    """

    features: Tensor
    values: Tensor
    current: Tensor
    drawn: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """A repair, and where its variables and predictors are among the features that may move.

    Compiled code computes nothing once, so indices are computed here.

    Attributes:
        repair: The repair, of m variables with b ramps.
        position: Index of each of its variables among the ordered features, int64 `[m]`.
        slot: Index of each ordered feature among its variables, −1 if it is not there, `[o]`.
        predictor: Index of the column of each ramp among the ordered features, −1 if it is not
            there, int64 `[b]`; None if there is none.
        category: One-hot group of that column, int64 `[b]`; None if no category is read.
        code: Its code within the group, −1 if it has none, int64 `[b]`.
        moves: Whether any predictor moves.
    """

    repair: Repair
    position: Tensor
    slot: Tensor
    predictor: Tensor | None
    category: Tensor | None
    code: Tensor
    moves: bool

    @classmethod
    def of(
        cls, repair: Repair, ordered: OrderedLookup, categories: CategoryLookup, moving: Tensor
    ) -> Self:
        """The step of a repair; columns that may move are given."""
        position = ordered.position[repair.free]
        slot = torch.full((ordered.size,), -1)
        slot[position] = torch.arange(repair.size)
        predictor, code = ordered.position[repair.columns], categories.code[repair.columns]
        return cls(
            repair=repair,
            position=position,
            slot=slot,
            predictor=predictor if (predictor >= 0).any() else None,
            category=categories.group[repair.columns] if (code >= 0).any() else None,
            code=code,
            moves=bool(torch.isin(repair.columns, moving).any()),
        )

    def apply(
        self,
        rows: Rows,
        transported: Tensor,
        ranks: Tensor,
        ordered: OrderedLookup,
        sources: Tensor,
        targets: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Transported ordered features and their ranks after the repair, `[e, n, o]` each."""
        repair = self.repair
        before = rows.features[:, repair.columns]
        after = self._after(before, rows, transported) if self.moves else None
        own = ranks[:, :, self.position] / (GRID - 1)
        given = repair.ranks(own, before, after, sources, targets) * (GRID - 1)
        values = rows.values[:, self.position]
        moved = ordered.values_at(given, values, sources, targets, self.position)
        # Pairs of groups that are not repaired keep what single features get.
        here = repair.repaired[sources, targets]
        pick = self.slot.clamp_min(0)
        changes = (self.slot >= 0) & here[:, :, pick]
        return (
            torch.where(changes, moved[:, :, pick], transported),
            torch.where(changes, given[:, :, pick], ranks),
        )

    def _after(self, before: Tensor, rows: Rows, transported: Tensor) -> Tensor:
        """Values `[n, b]` that the ramps read, after transport, `[e, n, b]`."""
        after = before.expand(len(transported), *before.shape)
        if self.predictor is not None:
            read = transported[:, :, self.predictor.clamp_min(0)]
            after = torch.where(self.predictor >= 0, read, after)
        if self.category is not None:
            new, old = rows.drawn[:, :, self.category], rows.current[:, self.category]
            change = (new == self.code).to(after.dtype) - (old == self.code).to(after.dtype)
            after = after + torch.where(self.code >= 0, change, 0.0)
        return after
