"""The reference of the drift watch: what the baseline's predictions looked like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.drift.share import ShareSums, usable_sums
from monitor.errors import BundleError, FitError
from monitor.npz import read_npz, write_npz
from monitor.scoring.scores import Predictions, Signals

__all__ = ["DriftReference", "Layout", "Watcher"]

Float = NDArray[np.float64]
Kind = Literal["share", "change", "margin", "status"]

_VERSION = 1
_FEWEST_ROWS = 4
# Shares of the rows beyond which a bin begins: even steps, and ever finer ones in both tails.
_EVEN = np.arange(1, 32) / 32
_TAIL = 0.5 ** np.arange(6, 15)


class Watcher(NamedTuple):
    """Who raises an alarm.

    `share`: the flip share against its baseline. `change`: the expected change has risen. `margin`:
    the signed margin has moved either way. `status`: the status posterior has moved either way. The
    margin belongs to no protected attribute.
    """

    kind: Kind
    attribute: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReference:
    """Bins and starting counts of every column, and the baseline's sums of every flip share.

    Attributes:
        layout: Which columns there are.
        edges: Lower ends of each column's bins, ascending, the first −inf.
        counts: Rows in each bin, `[c, bins + 1]`; bin 0 is for what is not a number, bins past a
            column's last stay empty.
        shares: Of each attribute by name.
    """

    layout: Layout
    edges: tuple[Float, ...]
    counts: Float
    shares: Mapping[str, ShareSums]

    @classmethod
    def take(cls, margin: Float, attributes: Mapping[str, Signals], *, seed: int) -> DriftReference:
        """From the scores of calibration rows, none of which the classifier was trained on.

        One random half of the rows places the bins and the other is counted: the rank of a new
        score among rows that also chose the bins would not be exactly uniform.

        Raises:
            FitError: Too few rows, no attribute, or a score is not a number.
        """
        layout = Layout(groups={name: s.posterior.shape[1] for name, s in attributes.items()})
        batch = Predictions(margin=margin, attributes=attributes)
        columns = layout.columns(batch)
        flips = [attributes[name].hard_flips for name in layout.groups]
        if not attributes:
            raise FitError("a drift reference needs a protected attribute")
        if len(margin) < _FEWEST_ROWS:
            raise FitError(f"a drift reference needs {_FEWEST_ROWS} rows, not {len(margin)}")
        if any(np.isnan(scores).any() for scores in (columns, *flips)):
            raise FitError("a score that drift is watched by is not a number on some rows")
        halves = np.array_split(np.random.default_rng(seed).permutation(len(margin)), 2)
        edges = tuple(_edges(np.sort(column)) for column in columns[:, halves[0]])
        counts = np.zeros((len(edges), 1 + max(map(len, edges))))
        for row, lower, column in zip(counts, edges, columns[:, halves[1]], strict=True):
            np.add.at(row, lower.searchsorted(column, side="right"), 1)
        shares = {name: ShareSums.of(signals.hard_flips) for name, signals in attributes.items()}
        return cls(layout=layout, edges=edges, counts=counts, shares=shares)

    def to_npz(self) -> bytes:
        """As the bytes of `drift.npz`."""
        head = {"version": _VERSION, "groups": list(self.layout.groups.items())}
        arrays = {
            "counts": self.counts,
            "shares": np.array([_row(s) for s in self.shares.values()]).reshape(-1, 3),
            **{f"edges{place}": edges for place, edges in enumerate(self.edges)},
        }
        return write_npz(head, arrays)

    @classmethod
    def from_npz(cls, data: bytes) -> DriftReference:
        """From the bytes of `drift.npz`; nothing in it is unpickled.

        Raises:
            BundleError: They cannot be read, or do not hang together.
        """
        try:
            head, arrays = read_npz(data)
            layout = _layout(head, most=2 * len(arrays))
            edges = tuple(arrays[f"edges{place}"] for place in range(len(layout.owners)))
            counts, sums = arrays["counts"], arrays["shares"]
            _check(layout, edges, counts, sums)
        except BundleError:
            raise
        except Exception as error:  # noqa: BLE001 - damaged bytes can make nearly anything be raised
            raise BundleError(f"drift.npz cannot be read: {error!r:.200}") from None
        shares = {
            name: ShareSums(count=n, total=total, variation=variation)
            for name, (n, total, variation) in zip(layout.groups, sums.tolist(), strict=True)
        }
        return cls(layout=layout, edges=edges, counts=counts, shares=shares)


def _edges(ordered: Float) -> Float:
    """Lower ends of bins for scores like these, ascending `[n]`.

    A value that takes up several steps is a point of mass and gets a bin of its own.
    """
    n = len(ordered)
    tail = _TAIL[_TAIL * n >= 1]
    levels = np.concatenate([_EVEN, tail, 1 - tail, [1 - 1 / n]])
    places = np.unique(np.ceil(levels * n).astype(int) - 1)
    values, times = np.unique(ordered[places], return_counts=True)
    masses = np.nextafter(values[times > 1], np.inf)
    return np.unique(np.concatenate([[-np.inf], values, masses]))


def _row(sums: ShareSums) -> tuple[float, float, float]:
    return sums.count, sums.total, sums.variation


def _layout(head: dict[str, Any], *, most: int) -> Layout:
    """As the head says, of so many groups at most: a larger number would only take room."""
    version, groups = head["version"], {str(name): k for name, k in head["groups"]}
    if type(version) is not int or version != _VERSION:
        raise BundleError(f"drift.npz has version {version!r:.40}, not {_VERSION}")
    sizes = list(groups.values())
    if not sizes or any(type(k) is not int or k < 1 for k in sizes) or sum(sizes) > most:
        raise ValueError("its attributes have no usable numbers of groups")
    return Layout(groups=groups)


def _check(layout: Layout, edges: tuple[Float, ...], counts: Float, sums: Float) -> None:
    if not all(
        e.ndim == 1
        and e.dtype == np.float64
        and len(e)
        and e[0] == -np.inf
        and (e[1:] > e[:-1]).all()
        for e in edges
    ):
        raise BundleError("drift.npz has bins that are not in order")
    bins = np.array([[len(e)] for e in edges])
    if counts.shape != (len(edges), 1 + bins.max()) or not _plain(counts):
        raise BundleError("drift.npz has counts that do not fit its bins")
    places = np.arange(counts.shape[1])
    if counts[(places == 0) | (places > bins)].any():
        raise BundleError("drift.npz has counts outside of its bins")
    if sums.shape != (len(layout.groups), 3) or not _plain(sums) or not usable_sums(sums).all():
        raise BundleError("drift.npz has no usable flip shares")


def _plain(values: Float) -> bool:
    """Whether these are finite, not negative, and few enough to be counted exactly."""
    return values.dtype == np.float64 and bool(((values >= 0) & (values <= 2.0**53)).all())


def _width(groups: int) -> int:
    return 1 if groups == 2 else groups
