"""Marginals of a flipset: how its members differ from the rest of their group, and by chance?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.correction import adjusted_p_values
from offline_audit.errors import AuditInputError
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features
from offline_audit.permutation.intervals import Interval, combined, skewed_t_interval, wilson
from offline_audit.plain_words import percent
from offline_audit.presentation import TextTable, json_ready, p_words, to_html, to_text

__all__ = [
    "Bin",
    "Marginal",
    "Marginals",
    "category_codes",
    "flipset_marginals",
    "round_to",
    "spread_of",
    "told_counts",
]

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Members and others of each bin, `[2, bins]`.
Counts = NDArray[np.int64]

_MOST_BINS = 8
_MOST_SHOWN = 12
_NAME_WIDTH = 24
# Below this expected count chi-square's law is not to be trusted (Cochran).
_FEWEST_EXPECTED = 5
_DRAWS = 9_999
_REST = "the rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """People with one value, or a range of values, of a variable.

    Attributes:
        name: The value or range, in words.
        members: Members of the flipset in it: none, or at least the smallest cell.
        others: The rest of the group in it, likewise.
    """

    name: str
    members: int
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """One variable among the members of a flipset and in the rest of the group.

    Attributes:
        name: Of the feature, or of the category.
        kind: `category` for one-hot columns.
        members: Mean among the members, for a binary the share of 1; None for a category.
        others: The same of the rest of the group.
        difference: Members less others, in standard deviations of the group. For a category the
            length of the differences of its shares over √Σ p (1 − p), without a sign: what a binary
            has, on two categories. None if only one value or range can be told.
        interval: Of the difference; for a category from those of its shares, on the safe side.
        test: Of whether both have the same distribution.
        p_value: Of the test; None if the variable is constant in the group.
        adjusted_p_value: Allows for all variables (Benjamini and Hochberg).
        bins: Counts for a histogram, from low to high or by category.
        coarse: Whether ranges or categories of few people were put together, or few of two told as
            none.
    """

    name: str
    kind: Literal["numeric", "integer", "binary", "category"]
    members: float | None
    others: float | None
    difference: float | None
    interval: Interval | None
    test: str
    p_value: float | None
    adjusted_p_value: float | None
    bins: tuple[Bin, ...]
    coarse: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginals:
    """Who the members of a flipset are, variable by variable (section 4.1 of the paper).

    Attributes:
        side: Which flipset.
        members: Its members, for most of whose counterparts the decision is another; None if
            withheld.
        others: The rest of the group; None if withheld.
        variables: The largest difference first; empty if withheld.
        reason: Why there are no figures; None if there are.
        level: Of the intervals.
        smallest_cell: Figures of fewer people are withheld.
        seed: Of p-values by simulation.
    """

    side: Side
    members: int | None
    others: int | None
    variables: tuple[Marginal, ...]
    reason: str | None
    level: float
    smallest_cell: int
    seed: int

    def of(self, name: str) -> Marginal:
        """One variable.

        Raises:
            KeyError: There is none of that name.
        """
        for each in self.variables:
            if each.name == name:
                return each
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        return found

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        if self.members is None or self.others is None:
            return f"Members of the flipset, {self.side}, against the rest of their group"
        return (
            f"{self.members:,} members of the flipset, {self.side}, against the {self.others:,} "
            "others of their group"
        )

    @property
    def _table(self) -> TextTable | None:
        if not self.variables:
            return None
        header = ("variable", "members", "others", "in sd", "interval", "p", "adjusted p")
        return TextTable(header=header, rows=tuple(map(_row, self.variables[:_MOST_SHOWN])))

    @property
    def _notes(self) -> list[str]:
        if self.reason is not None:
            return [f"No figures: {self.reason}."]
        meant = (
            f"In sd: members less others in standard deviations of the group, with "
            f"{100 * self.level:g}% intervals; p of the same distribution in both, adjusted for "
            "all variables (Benjamini and Hochberg)."
        )
        shown = self.variables[:_MOST_SHOWN]
        notes = [meant, *(self._shares(each) for each in shown if _listed(each))]
        if any(each.coarse for each in self.variables):
            notes.append(
                f"Fewer than {self.smallest_cell} people are told as none or put together."
            )
        hidden = len(self.variables) - _MOST_SHOWN
        return [*notes, f"{hidden} more variables are not shown."] if hidden > 0 else notes

    def _shares(self, each: Marginal) -> str:
        members, others = self.members or 1, self.others or 1
        told = (
            f"{b.name} {percent(b.members / members)} ({percent(b.others / others)})"
            for b in each.bins
        )
        return f"{each.name}, members (others): {', '.join(told)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    smallest: int
    level: float
    rng: np.random.Generator


def _listed(each: Marginal) -> bool:
    return each.kind == "category" and len(each.bins) > 1


def _row(each: Marginal) -> tuple[str, ...]:
    name = each.name
    shown = percent if each.kind == "binary" else _short
    signed = "{:.2f}" if each.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        shown(each.members),
        shown(each.others),
        "–" if each.difference is None else signed.format(each.difference),
        "–" if each.interval is None else f"{signed} to {signed}".format(*each.interval),
        p_words(each.p_value),
        p_words(each.adjusted_p_value),
    )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def category_codes(rows: Features, variable: Variable) -> NDArray[np.intp]:
    """Which of a variable's categories each row has, `[n, d]` to `[n]`; the dropped one is last."""
    values = rows[:, list(variable.columns)]
    found = values.argmax(1)
    return np.where(values.any(1), found, len(variable.columns)) if variable.dropped else found


def spread_of(values: NDArray[Any]) -> float:
    """The range of nine in ten, or the standard deviation where they are all the same."""
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low) or float(values.std())


def round_to(value: float, spread: float, *, whole: bool) -> float:
    """A value on a grid of 1, 2 or 5 times a power of ten, at most 1/25 of the spread apart.

    Whole numbers stay whole. So a threshold or an edge is no one's own value.
    """
    finest = max(spread / 25, 1e-30)
    power = 10.0 ** math.floor(math.log10(finest))
    step = power * max(each for each in (1, 2, 5) if each * power <= finest * (1 + 1e-9))
    step = max(step, 1.0) if whole else step
    return float(f"{round(value / step) * step:.12g}")


def told_counts(table: Counts, smallest: int) -> Counts:
    """Counts in two columns `[r, 2]`, where few people of a row are told with those beside them."""
    few = _few(table, smallest)
    alone = few & ~few[:, ::-1]
    return np.where(alone, 0, table + np.where(alone, table, 0)[:, ::-1])


def flipset_marginals(
    flipset: Flipset,
    side: Side,
    columns: Columns,
    *,
    smallest_cell: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> Marginals:
    """Compare the members of a flipset with the rest of their group.

    H0, of each variable: members and others have the same distribution of it. Numbers by
    Kolmogorov and Smirnov, since members near a boundary may differ in spread alone; on values
    with ties it is on the safe side. Shares by chi-square; where a cell expects fewer than 5,
    by Fisher's exact test or, for more than two categories, by tables drawn with the same margins.

    Args:
        flipset: The people and their counterparts.
        side: Which members.
        columns: What the columns are.
        smallest_cell: With fewer members, or others, figures are withheld; bins have none or as
            many.
        level: Of the intervals.
        seed: Of p-values by simulation.

    Raises:
        AuditInputError: Widths do not agree.
    """
    if flipset.features.shape[1] != len(columns):
        raise AuditInputError(
            f"columns: there are {len(columns)}, but features are {flipset.features.shape[1]} wide"
        )
    inside = flipset.members(side)
    sizes = int(inside.sum()), int((~inside).sum())
    reason = next(
        (
            f"there are {'no' if not size else f'fewer than {smallest_cell}'} {whom}"
            for size, whom in zip(sizes, ("members", "others"), strict=True)
            if size < max(smallest_cell, 2)
        ),
        None,
    )
    found: list[Marginal] = []
    if reason is None:
        options = _Options(smallest=smallest_cell, level=level, rng=np.random.default_rng(seed))
        found = [_marginal(flipset.features, inside, v, options) for v in columns.variables]
        adjusted = adjusted_p_values([each.p_value for each in found], "bh")
        found = [replace(x, adjusted_p_value=p) for x, p in zip(found, adjusted, strict=True)]
        found.sort(key=lambda each: -abs(each.difference or 0.0))
    few = any(0 < size < smallest_cell for size in sizes)
    return Marginals(
        side=side,
        members=None if few else sizes[0],
        others=None if few else sizes[1],
        variables=tuple(found),
        reason=reason,
        level=level,
        smallest_cell=smallest_cell,
        seed=seed,
    )


def _marginal(features: Features, inside: Bools, variable: Variable, options: _Options) -> Marginal:
    if variable.kind == "category":
        codes = category_codes(features, variable)
        return _of_shares(codes, variable.categories, inside, variable, options)
    values = features[:, variable.columns[0]].astype(np.float64)
    if variable.kind == "binary":
        return _of_shares((values == 1).astype(np.intp), ("0", "1"), inside, variable, options)
    return _of_numbers(values, inside, variable, options)


def _of_numbers(values: Float, inside: Bools, variable: Variable, options: _Options) -> Marginal:
    members, others = values[inside], values[~inside]
    spread = float(values.std())
    constant = bool(values.min() == values.max())
    means = float(members.mean()), float(others.mean())
    # The asymptotic law; the exact one warns and gives up on large samples.
    p_value = None if constant else float(stats.ks_2samp(members, others, method="asymp").pvalue)
    low, high = _welch(members, others, options.level)
    bins, coarse = _ranges(values, inside, options.smallest, whole=variable.kind == "integer")
    return Marginal(
        name=variable.name,
        kind=variable.kind,
        members=means[0],
        others=means[1],
        difference=0.0 if constant else (means[0] - means[1]) / spread,
        interval=(0.0, 0.0) if constant else (low / spread, high / spread),
        test="Kolmogorov and Smirnov",
        p_value=p_value,
        adjusted_p_value=None,
        bins=bins,
        coarse=coarse,
    )


def _welch(one: Float, other: Float, level: float) -> Interval:
    """Of the difference of two means, bent for skewness."""
    difference = float(one.mean() - other.mean())
    parts = [float(x.var(ddof=1)) / len(x) for x in (one, other)]
    if sum(parts) <= 0:
        return difference, difference
    thirds = [float(((x - x.mean()) ** 3).mean()) / len(x) ** 2 for x in (one, other)]
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(parts, (one, other), strict=True)
    )
    skewness = (thirds[0] - thirds[1]) / sum(parts) ** 1.5
    return skewed_t_interval(difference, sum(parts), skewness, freedom, level)


def _ranges(
    values: Float, inside: Bools, smallest: int, *, whole: bool
) -> tuple[tuple[Bin, ...], bool]:
    """Ranges that hold about as many of the group each, with round ends; whether put together."""
    spread = spread_of(values)
    cuts = np.quantile(values, np.linspace(0, 1, _MOST_BINS + 1)[1:-1])
    rounded = {round_to(float(cut), spread, whole=whole) for cut in cuts}
    edges = [edge for edge in sorted(rounded) if values.min() < edge <= values.max()]
    table = _counted(np.searchsorted(edges, values, side="right"), len(edges) + 1, inside)
    before = len(edges)
    while edges and (few := np.flatnonzero(_few(table, smallest).any(0))).size:
        place, totals = int(few[0]), table.sum(0)
        # With the smaller neighbour, so that large ranges stay apart.
        left = place > 0 and (place == len(edges) or totals[place - 1] <= totals[place + 1])
        place -= int(left)
        table[:, place] += table[:, place + 1]
        table = np.delete(table, place + 1, axis=1)
        del edges[place]
    return _bins(_range_names(edges, whole=whole), table), len(edges) < before


def _range_names(edges: Sequence[float], *, whole: bool) -> list[str]:
    if not edges:
        return ["any"]
    middle = [
        f"{low:,.6g}" + (f" to {high - whole:,.6g}" if high - whole > low else "")
        for low, high in pairwise(edges)
    ]
    return [f"< {edges[0]:,.6g}", *middle, f"≥ {edges[-1]:,.6g}"]


def _counted(codes: NDArray[np.intp], size: int, inside: Bools) -> Counts:
    """Members and others by code, `[2, size]`."""
    return np.stack([np.bincount(codes[who], minlength=size) for who in (inside, ~inside)])


def _few(table: Counts, smallest: int) -> Bools:
    """Which counts are of some people, but too few."""
    few: Bools = (table > 0) & (table < smallest)
    return few


def _bins(names: Sequence[str], table: Counts) -> tuple[Bin, ...]:
    counts = zip(names, *table.tolist(), strict=True)
    return tuple(Bin(name=name, members=a, others=b) for name, a, b in counts)


def _of_shares(
    codes: NDArray[np.intp],
    names: Sequence[str],
    inside: Bools,
    variable: Variable,
    options: _Options,
) -> Marginal:
    table = _counted(codes, len(names), inside)
    test, p_value = _table_test(table, options.rng)
    told, kept = _folded(table, names, options.smallest)
    binary = variable.kind == "binary" and len(kept) == 2
    shares = told / told.sum(1, keepdims=True)
    difference, interval = _share_difference(told, options.level, signed=binary)
    return Marginal(
        name=variable.name,
        kind=variable.kind,
        members=float(shares[0, 1]) if binary else None,
        others=float(shares[1, 1]) if binary else None,
        difference=difference if p_value is not None else 0.0,
        interval=interval if p_value is not None else (0.0, 0.0),
        test=test,
        p_value=p_value,
        adjusted_p_value=None,
        bins=_bins(kept, told),
        coarse=told.shape != table.shape or bool((told != table).any()),
    )


def _table_test(table: Counts, rng: np.random.Generator) -> tuple[str, float | None]:
    """Whether the two rows have the same shares; no p-value where all are in one category."""
    table = table[:, table.any(0)]
    if table.shape[1] < 2:
        return "chi-square", None
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    if expected.min() >= _FEWEST_EXPECTED:
        return "chi-square", float(stats.chi2_contingency(table, correction=False).pvalue)
    if table.shape[1] == 2:
        return "Fisher", float(stats.fisher_exact(table).pvalue)
    drawn = stats.random_table(table.sum(1), table.sum(0)).rvs(_DRAWS, random_state=rng)
    statistics = ((drawn - expected) ** 2 / expected).sum((1, 2))
    own = ((table - expected) ** 2 / expected).sum()
    # Tables as extreme up to rounding count as such.
    as_extreme = int((statistics >= own * (1 - 1e-9)).sum())
    return "chi-square, tables drawn", (1 + as_extreme) / (1 + _DRAWS)


def _folded(table: Counts, names: Sequence[str], smallest: int) -> tuple[Counts, list[str]]:
    """Counts and names without cells of few people: the smallest categories are put together."""
    table, names = table.copy(), list(names)
    while len(names) > 2 and _few(table, smallest).any():
        keep, gone = sorted(np.argsort(table.sum(0), kind="stable")[:2].tolist())
        table[:, keep] += table[:, gone]
        table = np.delete(table, gone, axis=1)
        names[keep] = _REST
        del names[gone]
    if _few(table, smallest).all(1).any():
        return table.sum(1, keepdims=True), ["any"]
    return told_counts(table, smallest), names


def _share_difference(
    told: Counts, level: float, *, signed: bool
) -> tuple[float | None, Interval | None]:
    """Members less others in standard deviations, with its interval."""
    (members, others), pooled = told.sum(1), told.sum(0) / told.sum()
    spread = math.sqrt(float((pooled * (1 - pooled)).sum()))
    if spread == 0:
        return None, None
    pairs = [(a / members, b / others) for a, b in told.T.tolist()]
    ends = [combined(p, wilson(p, members, level), q, wilson(q, others, level)) for p, q in pairs]
    if signed:
        # Two columns tell the same twice.
        spread /= math.sqrt(2)
        return (pairs[1][0] - pairs[1][1]) / spread, (ends[1][0] / spread, ends[1][1] / spread)
    near = [0.0 if low <= 0 <= high else min(abs(low), abs(high)) for low, high in ends]
    far = [max(abs(low), abs(high)) for low, high in ends]
    length = math.hypot(*(p - q for p, q in pairs))
    return length / spread, (math.hypot(*near) / spread, math.hypot(*far) / spread)
