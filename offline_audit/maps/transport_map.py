"""What every transport map can do, and what every way to fit one can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from offline_audit.maps.columns import Columns
from offline_audit.maps.costs import Cost

__all__ = ["Features", "MapMethod", "Progress", "SparseMethod", "TransportMap"]

Features = NDArray[np.float32]
# Called as work goes on: steps done, steps in all.
Progress = Callable[[int, int], None]


class TransportMap(Protocol):
    """A fitted map from one group to another, for people it has not seen too."""

    @property
    def splits(self) -> bool:
        """Whether a person may have several counterparts, of which draws are taken."""
        ...

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """Counterparts of members of the source group, `[n, d]` to `[e, n, d]`.

        The same row gets the same counterparts, alone or in any batch. Every column keeps its
        kind: integers stay integers, binaries binary, one-hot columns one-hot.

        Args:
            features: The people; left as they are.
            n_counterparts: Counterparts per row; e is 1 where the map does not split.
        """
        ...


class MapMethod(Protocol):
    """A way to fit transport maps, with its options."""

    @property
    def name(self) -> str:
        """As users call it."""
        ...

    @property
    def cost(self) -> Cost:
        """What it keeps small."""
        ...

    @property
    def quick(self) -> bool:
        """Whether refitting it hundreds of times is cheap."""
        ...

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """Fit the map that transports the source group onto the target group.

        Args:
            source: People of the one group, `[n, d]`.
            target: People of the other, `[m, d]`.
            columns: What the columns are.
            seed: Of whatever is random.
            progress: Told of steps on long work.
        """
        ...


@runtime_checkable
class SparseMethod(Protocol):
    """A method whose maps leave alone what does not differ between the groups."""

    def still(self, people: Features, columns: Columns) -> Callable[[NDArray[np.bool_]], bool]:
        """Tells of splits of these people, bool `[n]`, whether the map of one moves nobody."""
        ...

    def refit(
        self, fitted: Any, source: Features, target: Features, columns: Columns, *, seed: int = 0
    ) -> TransportMap:
        """Fit again to other people, where the same things move as in a fitted map."""
        ...
