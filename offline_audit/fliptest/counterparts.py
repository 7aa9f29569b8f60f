"""Ask the model about people and their counterparts, and of nobody twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.fliptest.flipset import Flipset
from offline_audit.maps.alike import alike, draws_among
from offline_audit.maps.transport_map import Features, TransportMap

__all__ = ["Asked", "Decides", "counterparts_of", "gross_share"]

# Numbers in all counterparts of a flipset, before more of them are drawn for people who are alike.
_MOST_KEPT = 10_000_000


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
        alike: A number for each, the same for those with the same features; None where few are.
    """

    features: Features
    decisions: NDArray[np.bool_]
    alike: NDArray[np.intp] | None = None

    @classmethod
    def of(cls, features: Features, decisions: NDArray[np.bool_]) -> Asked:
        """With those found who are alike."""
        return cls(features=features, decisions=decisions, alike=alike(features))

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.intp]) -> Asked:
        """Some of them, perhaps more than once."""
        return Asked(
            features=self.features[rows],
            decisions=self.decisions[rows],
            alike=None if self.alike is None else self.alike[rows],
        )


def counterparts_of(
    people: Asked, fitted: TransportMap, model: Decides, draws: int
) -> tuple[Flipset, int]:
    """People beside their counterparts, and how many are left out.

    Someone is left out if the model gives no answer for one of her counterparts. Whoever is not
    moved is not asked about again. Where many people are alike, more counterparts are drawn.
    """
    rows, places, wanted = _distinct(people, draws)
    draws = min(wanted, max(draws, _MOST_KEPT // people.features.size))
    carried = fitted.carry(rows.features, draws)
    answers, carried = _answers(rows, carried, model)[:, places], carried[:, places]
    told = (answers >= 0).all(0)
    if not told.all():
        carried, answers = carried[:, told], answers[:, told]
        people = people.take(np.flatnonzero(told))
    flipset = Flipset(
        features=people.features,
        counterparts=carried,
        decisions=people.decisions,
        counterpart_decisions=answers == 1,
    )
    return flipset, int(np.count_nonzero(~told))


def gross_share(people: Asked, fitted: TransportMap, model: Decides, draws: int) -> float:
    """Share of people whose decision is another for a counterpart, without keeping anything."""
    rows, places, draws = _distinct(people, draws)
    answers = _answers(rows, fitted.carry(rows.features, draws), model)
    flips = (answers != rows.decisions).mean(0)
    told = np.asarray((answers >= 0).all(0))[places]
    return float(flips[places][told].mean()) if told.any() else 0.0


def _distinct(people: Asked, draws: int) -> tuple[Asked, NDArray[np.intp] | slice, int]:
    """People who differ, everyone's place among them, and how many counterparts these need."""
    if people.alike is None:
        return people, slice(None), draws
    _, first, places, counts = np.unique(
        people.alike, return_index=True, return_inverse=True, return_counts=True
    )
    return people.take(first), places, draws_among(counts, draws)


def _answers(people: Asked, carried: Features, model: Decides) -> NDArray[np.int8]:
    """Of every counterpart, int8 `[e, n]`."""
    answers = np.broadcast_to(people.decisions.astype(np.int8), carried.shape[:2]).copy()
    moved = (carried != people.features).any(2)
    if moved.any():
        answers[moved] = model.decide(carried[moved])
    return answers
