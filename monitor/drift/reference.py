"""The reference of the drift watch: the distribution of the signals on calibration rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.drift.effect import change_sums
from monitor.drift.share import ShareSums, usable_sums
from monitor.errors import BundleError, FitError
from monitor.npz import damaged_file, read_npz, write_npz
from monitor.scoring.scores import Predictions, Signals

__all__ = ["DetectorId", "DriftReference", "Layout"]

Float = NDArray[np.float64]
Kind = Literal["share", "change", "margin", "status"]

_VERSION = 1
_MIN_ROWS = 4
# Quantile levels at which bins begin: even steps, and ever finer ones in both tails.
_EVEN = np.arange(1, 32) / 32
_TAIL = 0.5 ** np.arange(6, 15)


class DetectorId(NamedTuple):
    """A test that can raise an alarm.

    `share`: the flip share is above its baseline. `change`: the expected change has risen.
    `margin`: the signed margin has risen or fallen; it has no protected attribute. `status`: the
    status posterior has changed.
    """

    kind: Kind
    attribute: str | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns and change detectors for a set of protected attributes.

    Columns: the expected change of every attribute (one-sided), the margin, then the posterior of
    every attribute (two-sided): one column for two groups, whose posteriors sum to 1, otherwise one
    column per group.

    Attributes:
        groups: Number of groups by attribute.
    """

    groups: Mapping[str, int]

    @cached_property
    def detectors(self) -> tuple[DetectorId, ...]:
        """Change detectors in order: `change` per attribute, `margin`, `status` per attribute."""
        return (
            *(DetectorId("change", name) for name in self.groups),
            DetectorId("margin"),
            *(DetectorId("status", name) for name in self.groups),
        )

    @cached_property
    def watchers(self) -> frozenset[DetectorId]:
        """All watchers: the change detectors and the flip shares."""
        return frozenset([*self.detectors, *(DetectorId("share", name) for name in self.groups)])

    @cached_property
    def owners(self) -> NDArray[np.intp]:
        """Index of the detector that reads a column, `[c]`."""
        owners = list(range(len(self.groups) + 1))
        for index, k in enumerate(self.groups.values(), start=len(owners)):
            owners += [index] * _width(k)
        return np.array(owners)

    @property
    def one_sided(self) -> int:
        """Number of one-sided columns, which come first."""
        return len(self.groups)

    def columns(self, batch: Predictions) -> Float:
        """Scores that the detectors read, `[c, n]`.

        Raises:
            ValueError: The attributes, their groups or the lengths do not match.
        """
        n = len(batch.margin)
        if batch.attributes.keys() != self.groups.keys():
            expected, actual = ", ".join(self.groups), ", ".join(batch.attributes)
            raise ValueError(
                f"the batch has the attributes {actual or 'none'}; the drift watch expects "
                f"{expected or 'none'}"
            )
        columns = np.empty((len(self.owners), n))
        columns[len(self.groups)] = batch.margin
        row = len(self.groups) + 1
        for index, (name, k) in enumerate(self.groups.items()):
            signals = batch.attributes[name]
            lengths = (len(signals.hard_flips), len(signals.expected_change))
            if lengths != (n, n) or signals.posterior.shape != (n, k):
                raise ValueError(
                    f"signals of {name!r} do not have the shapes of {n} predictions and {k} groups"
                )
            columns[index] = signals.expected_change
            width = _width(k)
            columns[row : row + width] = signals.posterior.T[-width:]
            row += width
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReference:
    """Bins and initial counts of every column, and the flip shares of the baseline.

    Attributes:
        layout: Columns and detectors.
        edges: Lower ends of the bins of every column, ascending, the first −inf.
        counts: Rows per bin, `[c, bins + 1]`; bin 0 counts NaN, bins past a column's last are
            empty.
        shares: Sums of the flip share, by attribute.
        changes: Sums of the expected change per likely group, by attribute, as `change_sums`
            returns them; empty if the bundle was fitted before these were stored.
    """

    layout: Layout
    edges: tuple[Float, ...]
    counts: Float
    shares: Mapping[str, ShareSums]
    changes: Mapping[str, Float] = field(default_factory=dict)

    @classmethod
    def from_rows(
        cls, margin: Float, attributes: Mapping[str, Signals], *, seed: int
    ) -> DriftReference:
        """Create a reference from calibration rows, which the classifier was not trained on.

        A random half of the rows defines the bins, the other half is counted: the rank of a new
        score among rows that also define the bins would not be exactly uniform.

        Args:
            margin: Signed margin, `[n]`.
            attributes: Signals by protected attribute.
            seed: Seed of the random generator.

        Raises:
            FitError: There are too few rows or no attributes, or a score is NaN.
        """
        layout = Layout(groups={name: s.posterior.shape[1] for name, s in attributes.items()})
        batch = Predictions(margin=margin, attributes=attributes)
        columns = layout.columns(batch)
        flips = [attributes[name].hard_flips for name in layout.groups]
        if not attributes:
            raise FitError("a drift reference needs at least one protected attribute")
        if len(margin) < _MIN_ROWS:
            raise FitError(f"a drift reference needs at least {_MIN_ROWS} rows, not {len(margin)}")
        if any(np.isnan(scores).any() for scores in (columns, *flips)):
            raise FitError("a signal of the drift watch is not a number on some rows")
        halves = np.array_split(np.random.default_rng(seed).permutation(len(margin)), 2)
        edges = tuple(_edges(np.sort(column)) for column in columns[:, halves[0]])
        counts = np.zeros((len(edges), 1 + max(map(len, edges))))
        for row, lower, column in zip(counts, edges, columns[:, halves[1]], strict=True):
            np.add.at(row, lower.searchsorted(column, side="right"), 1)
        shares = {name: ShareSums.of(signals.hard_flips) for name, signals in attributes.items()}
        changes = {
            name: change_sums(np.asarray(s.expected_change), np.asarray(s.posterior))
            for name, s in attributes.items()
        }
        return cls(layout=layout, edges=edges, counts=counts, shares=shares, changes=changes)

    def to_npz(self) -> bytes:
        """Contents of `drift.npz`."""
        header = {"version": _VERSION, "groups": list(self.layout.groups.items())}
        arrays = {
            "counts": self.counts,
            "shares": np.array([_row(s) for s in self.shares.values()]).reshape(-1, 3),
            **{f"edges{index}": edges for index, edges in enumerate(self.edges)},
        }
        if self.changes:
            arrays["changes"] = np.concatenate(list(self.changes.values()))
        return write_npz(header, arrays)

    @classmethod
    def from_npz(cls, data: bytes) -> DriftReference:
        """Read the contents of `drift.npz`.

        Raises:
            BundleError: They are damaged or inconsistent.
        """
        try:
            header, arrays = read_npz(data)
            layout = _layout(header, max_groups=2 * len(arrays))
            edges = tuple(arrays[f"edges{index}"] for index in range(len(layout.owners)))
            counts, sums = arrays["counts"], arrays["shares"]
            _check(layout, edges, counts, sums)
            changes = _changes(layout, arrays.get("changes"))
        except BundleError:
            raise
        except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
            raise BundleError(damaged_file("drift.npz", error)) from None
        shares = {
            name: ShareSums(count=n, total=total, variation=variation)
            for name, (n, total, variation) in zip(layout.groups, sums.tolist(), strict=True)
        }
        return cls(layout=layout, edges=edges, counts=counts, shares=shares, changes=changes)


def _edges(ordered: Float) -> Float:
    """Lower ends of bins for a distribution, from its ascending scores `[n]`.

    A value at several quantile levels has probability mass, and gets a bin of its own.
    """
    n = len(ordered)
    tail = _TAIL[_TAIL * n >= 1]
    levels = np.concatenate([_EVEN, tail, 1 - tail, [1 - 1 / n]])
    indices = np.unique(np.ceil(levels * n).astype(int) - 1)
    values, times = np.unique(ordered[indices], return_counts=True)
    masses = np.nextafter(values[times > 1], np.inf)
    return np.unique(np.concatenate([[-np.inf], values, masses]))


def _row(sums: ShareSums) -> tuple[float, float, float]:
    return sums.count, sums.total, sums.variation


def _layout(header: dict[str, Any], *, max_groups: int) -> Layout:
    """Layout of a header; the limit on groups prevents an excessive allocation."""
    version, groups = header["version"], {str(name): k for name, k in header["groups"]}
    if type(version) is not int or version != _VERSION:
        raise BundleError(f"drift.npz has version {version!r:.40}, not {_VERSION}")
    sizes = list(groups.values())
    if not sizes or any(type(k) is not int or k < 1 for k in sizes) or sum(sizes) > max_groups:
        raise ValueError("the header has invalid numbers of groups")
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
        raise BundleError("drift.npz has bins that are not in ascending order")
    bins = np.array([[len(e)] for e in edges])
    if counts.shape != (len(edges), 1 + bins.max()) or not _plain(counts):
        raise BundleError("drift.npz has counts that do not match its bins")
    indices = np.arange(counts.shape[1])
    if counts[(indices == 0) | (indices > bins)].any():
        raise BundleError("drift.npz has counts outside of its bins")
    if sums.shape != (len(layout.groups), 3) or not _plain(sums) or not usable_sums(sums).all():
        raise BundleError("drift.npz has invalid flip shares")


def _changes(layout: Layout, saved: Float | None) -> dict[str, Float]:
    """Sums of the expected change by attribute; none if the file has none."""
    if saved is None:
        return {}
    sizes = list(layout.groups.values())
    usable = saved.shape == (sum(sizes), 2) and saved.dtype == np.float64
    if not usable or not (np.isfinite(saved) & (saved >= 0)).all():
        raise BundleError("drift.npz has invalid expected changes")
    return dict(zip(layout.groups, np.split(saved, np.cumsum(sizes)[:-1]), strict=True))


def _plain(values: Float) -> bool:
    """Whether values are non-negative, and small enough for exact counts in float64."""
    return values.dtype == np.float64 and bool(((values >= 0) & (values <= 2.0**53)).all())


def _width(groups: int) -> int:
    return 1 if groups == 2 else groups
