"""The flipset: members of a group whose decision is another for their counterparts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.transport_map import Features

__all__ = ["Flipset", "Side"]

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
