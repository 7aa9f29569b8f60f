"""The flipset: rows, their counterparts, and the model's decisions on both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.draws import draws_per_row, duplicate_codes
from offline_audit.maps.transport_map import Features, TransportMap

__all__ = ["DecidedRows", "Decides", "Flipset", "Side", "counterparts_of", "gross_share"]

Side = Literal["advantaged", "disadvantaged"]
Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flipset:
    """Members of one group beside their counterparts in another (Definition 1 of the paper).

    Where the map splits, a person has several equally likely counterparts. Shares count each of
    them for its part; a person is a *member* of a flipset if most of her counterparts are decided
    otherwise.

    Attributes:
        features: The people, `[n, d]`.
        counterparts: Theirs, `[e, n, d]`.
        decisions: Whether each has the favourable decision, bool `[n]`.
        counterpart_decisions: The same of their counterparts, bool `[e, n]`.
    """

    features: Features
    counterparts: Features
    decisions: NDArray[np.bool_]
    counterpart_decisions: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.features)

    def flips(self, side: Side) -> NDArray[np.bool_]:
        """Which counterparts are decided otherwise, to the person's advantage or not, `[e, n]`."""
        if side == "advantaged":
            return self.decisions & ~self.counterpart_decisions
        return ~self.decisions & self.counterpart_decisions

    def parts(self, side: Side) -> Float:
        """Share of each person's counterparts that are decided otherwise, `[n]`."""
        return np.asarray(self.flips(side).mean(0))

    def members(self, side: Side) -> NDArray[np.bool_]:
        """Whose counterparts are mostly decided otherwise, bool `[n]`."""
        return self.parts(side) >= 0.5

    def share(self, side: Side) -> float:
        """Of the group, that is decided otherwise."""
        return float(self.parts(side).mean())

    @property
    def gross(self) -> float:
        """Share of the group that is decided otherwise, either way."""
        return self.share("advantaged") + self.share("disadvantaged")

    @property
    def net(self) -> float:
        """Share advantaged less share disadvantaged; the groups' rates fix that of an exact map."""
        return self.share("advantaged") - self.share("disadvantaged")


# Numbers in all counterparts of a flipset, before more of them are drawn for people who are alike.
_MOST_KEPT = 10_000_000


class Decides(Protocol):
    """Whatever tells favourable from not: 1, 0, and -1 where there is no answer, int8 `[n]`."""

    def decide(self, features: Features) -> NDArray[np.int8]:
        """Of encoded rows `[n, d]`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedRows:
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
    def of(cls, features: Features, decisions: NDArray[np.bool_]) -> DecidedRows:
        """With those found who are alike."""
        return cls(features=features, decisions=decisions, alike=duplicate_codes(features))

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: NDArray[np.intp]) -> DecidedRows:
        """Some of them, perhaps more than once."""
        return DecidedRows(
            features=self.features[rows],
            decisions=self.decisions[rows],
            alike=None if self.alike is None else self.alike[rows],
        )


def counterparts_of(
    people: DecidedRows, fitted: TransportMap, model: Decides, n_counterparts: int
) -> tuple[Flipset, int]:
    """People beside their counterparts, and how many are left out.

    Someone is left out if the model gives no answer for one of her counterparts. Whoever is not
    moved is not asked about again. Where many people are alike, more counterparts are drawn.
    """
    rows, places, wanted = _distinct(people, n_counterparts)
    n_counterparts = min(wanted, max(n_counterparts, _MOST_KEPT // people.features.size))
    transported = fitted.transport(rows.features, n_counterparts)
    answers, transported = _answers(rows, transported, model)[:, places], transported[:, places]
    told = (answers >= 0).all(0)
    if not told.all():
        transported, answers = transported[:, told], answers[:, told]
        people = people.take(np.flatnonzero(told))
    flipset = Flipset(
        features=people.features,
        counterparts=transported,
        decisions=people.decisions,
        counterpart_decisions=answers == 1,
    )
    return flipset, int(np.count_nonzero(~told))


def gross_share(
    people: DecidedRows, fitted: TransportMap, model: Decides, n_counterparts: int
) -> float:
    """Share of people whose decision is another for a counterpart, without keeping anything."""
    rows, places, n_counterparts = _distinct(people, n_counterparts)
    answers = _answers(rows, fitted.transport(rows.features, n_counterparts), model)
    flips = (answers != rows.decisions).mean(0)
    told = np.asarray((answers >= 0).all(0))[places]
    return float(flips[places][told].mean()) if told.any() else 0.0


def _distinct(
    people: DecidedRows, n_counterparts: int
) -> tuple[DecidedRows, NDArray[np.intp] | slice, int]:
    """People who differ, everyone's place among them, and how many counterparts these need."""
    if people.alike is None:
        return people, slice(None), n_counterparts
    _, first, places, counts = np.unique(
        people.alike, return_index=True, return_inverse=True, return_counts=True
    )
    return people.take(first), places, draws_per_row(counts, n_counterparts)


def _answers(people: DecidedRows, transported: Features, model: Decides) -> NDArray[np.int8]:
    """Of every counterpart, int8 `[e, n]`."""
    answers = np.broadcast_to(people.decisions.astype(np.int8), transported.shape[:2]).copy()
    moved = (transported != people.features).any(2)
    if moved.any():
        answers[moved] = model.decide(transported[moved])
    return answers
