"""Ask the model about people and their counterparts, and of nobody twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.fliptest.flipset import Flipset
from offline_audit.maps.transport_map import Features, TransportMap

__all__ = ["Asked", "Decides", "counterparts_of", "gross_share"]


class Decides(Protocol):
    """Whatever tells favourable from not: 1, 0, and -1 where there is no answer, int8 `[n]`."""

    def decide(self, features: Features) -> NDArray[np.int8]:
        """Of encoded rows `[n, d]`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Members of a group, and what the model decides of them.

    Attributes:
        features: `[n, d]`.
        decisions: Whether favourable, bool `[n]`.
    """

    features: Features
    decisions: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.intp]) -> Asked:
        """Some of them, perhaps more than once."""
        return Asked(features=self.features[rows], decisions=self.decisions[rows])


def counterparts_of(
    people: Asked, fitted: TransportMap, model: Decides, draws: int
) -> tuple[Flipset, int]:
    """People beside their counterparts, and how many are left out.

    Someone is left out if the model gives no answer for one of her counterparts. Whoever is not
    moved is not asked about again.
    """
    carried = fitted.carry(people.features, draws)
    answers = _answers(people, carried, model)
    told = (answers >= 0).all(0)
    if told.all():
        kept, rows = carried, people
    else:
        kept, rows, answers = carried[:, told], people.take(np.flatnonzero(told)), answers[:, told]
    flipset = Flipset(
        features=rows.features,
        counterparts=kept,
        decisions=rows.decisions,
        counterpart_decisions=answers == 1,
    )
    return flipset, int(np.count_nonzero(~told))


def gross_share(people: Asked, fitted: TransportMap, model: Decides, draws: int) -> float:
    """Share of people whose decision is another for a counterpart, without keeping anything."""
    answers = _answers(people, fitted.carry(people.features, draws), model)
    return float(((answers >= 0) & (answers != people.decisions)).mean())


def _answers(people: Asked, carried: Features, model: Decides) -> NDArray[np.int8]:
    """Of every counterpart, int8 `[e, n]`."""
    answers = np.broadcast_to(people.decisions.astype(np.int8), carried.shape[:2]).copy()
    moved = (carried != people.features).any(2)
    if moved.any():
        answers[moved] = model.decide(carried[moved])
    return answers
