"""What is watched: the signals of a batch of predictions, and which detector reads which column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Layout", "Predictions", "Signals", "Watcher"]

Float = NDArray[np.float64]
Kind = Literal["share", "change", "margin", "status"]


class Watcher(NamedTuple):
    """Who raises an alarm.

    `share`: the flip share against its baseline. `change`: the expected change has risen. `margin`:
    the signed margin has moved either way. `status`: the status posterior has moved either way. The
    margin belongs to no protected attribute.
    """

    kind: Kind
    attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What is known of n predictions as to one protected attribute.

    Attributes:
        hard_flips: In [0, 1]; their mean is the flip share, `[n]`.
        expected_change: `[n]`.
        posterior: P(group | x), `[n, k]`.
    """

    hard_flips: Float
    expected_change: Float
    posterior: Float


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """A batch of predictions, in the order in which they were made.

    Attributes:
        margin: f(x) − logit(τ), signed, `[n]`.
        attributes: The signals of each protected attribute by name.
    """

    margin: Float
    attributes: Mapping[str, Signals]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns and detectors of a set of protected attributes.

    Columns: the expected change of each attribute (watched upwards only), the margin, then the
    posterior of each attribute (these watched both ways): one column for two groups, as the other
    is its mirror image, one for each group otherwise.

    Attributes:
        groups: How many groups each attribute has, by its name.
    """

    groups: Mapping[str, int]

    @cached_property
    def detectors(self) -> tuple[Watcher, ...]:
        """The change detectors, in order: change of each, margin, status of each."""
        return (
            *(Watcher("change", name) for name in self.groups),
            Watcher("margin"),
            *(Watcher("status", name) for name in self.groups),
        )

    @cached_property
    def watchers(self) -> frozenset[Watcher]:
        """All that can raise an alarm."""
        return frozenset([*self.detectors, *(Watcher("share", name) for name in self.groups)])

    @cached_property
    def owners(self) -> NDArray[np.intp]:
        """The place of the detector that reads each column, `[c]`."""
        owners = list(range(len(self.groups) + 1))
        for place, k in enumerate(self.groups.values(), start=len(owners)):
            owners += [place] * _width(k)
        return np.array(owners)

    @property
    def one_sided(self) -> int:
        """How many columns, from the first on, are watched upwards only."""
        return len(self.groups)

    def columns(self, batch: Predictions) -> Float:
        """The scores that the detectors read, `[c, n]`.

        Raises:
            ValueError: An attribute is missing, or lengths or numbers of groups do not agree.
        """
        n = len(batch.margin)
        if batch.attributes.keys() != self.groups.keys():
            watched, given = ", ".join(self.groups), ", ".join(batch.attributes)
            raise ValueError(f"{watched or 'no attribute'} watched, {given or 'none'} given")
        columns = np.empty((len(self.owners), n))
        columns[len(self.groups)] = batch.margin
        row = len(self.groups) + 1
        for place, (name, k) in enumerate(self.groups.items()):
            signals = batch.attributes[name]
            lengths = (len(signals.hard_flips), len(signals.expected_change))
            if lengths != (n, n) or signals.posterior.shape != (n, k):
                raise ValueError(f"signals of {name!r} do not fit {n} predictions of {k} groups")
            columns[place] = signals.expected_change
            width = _width(k)
            columns[row : row + width] = signals.posterior.T[-width:]
            row += width
        return columns


def _width(groups: int) -> int:
    return 1 if groups == 2 else groups
