"""Marginals of a flipset: variables that differ between its members and the rest of the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit.errors import AuditInputError
from offline_audit.finding import adjusted_p_values
from offline_audit.fliptest.differences import (
    equal_shares_test,
    mean_difference_interval,
    standardised_shares,
)
from offline_audit.fliptest.disclosure import (
    Bin,
    bins_of,
    folded_categories,
    member_counts,
    range_bins,
)
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.intervals import Interval
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import TextTable, json_ready, p_words, percent, to_html, to_text

__all__ = ["Marginal", "Marginals", "flipset_marginals"]

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
        confidence_level: Of the intervals.
        smallest_cell: Figures of fewer people are withheld.
        seed: Of p-values by simulation.
    """

    side: Side
    members: int | None
    others: int | None
    variables: tuple[Marginal, ...]
    reason: str | None
    confidence_level: float
    smallest_cell: int
    seed: int

    def of(self, name: str) -> Marginal:
        """One variable.

        Raises:
            KeyError: There is none of that name.
        """
        return {each.name: each for each in self.variables}[name]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found: dict[str, Any] = json_ready(self)
        return found

    def __str__(self) -> str:
        return to_text(*marginals_words(self))

    def _repr_html_(self) -> str:
        return to_html(*marginals_words(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    smallest: int
    confidence_level: float
    rng: np.random.Generator


def flipset_marginals(
    flipset: Flipset,
    side: Side,
    columns: Columns,
    *,
    smallest_cell: int = 10,
    confidence_level: float = 0.95,
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
        confidence_level: Of the intervals.
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
        options = _Options(
            smallest=smallest_cell,
            confidence_level=confidence_level,
            rng=np.random.default_rng(seed),
        )
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
        confidence_level=confidence_level,
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
    low, high = mean_difference_interval(members, others, options.confidence_level)
    bins, coarse = range_bins(values, inside, options.smallest, whole=variable.kind == "integer")
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


def _of_shares(
    codes: NDArray[np.intp],
    names: Sequence[str],
    inside: Bools,
    variable: Variable,
    options: _Options,
) -> Marginal:
    table = member_counts(codes, len(names), inside)
    test, p_value = equal_shares_test(table, options.rng)
    told, kept = folded_categories(table, names, options.smallest)
    binary = variable.kind == "binary" and len(kept) == 2
    shares = told / told.sum(1, keepdims=True)
    difference, interval = standardised_shares(told, options.confidence_level, signed=binary)
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
        bins=bins_of(kept, told),
        coarse=told.shape != table.shape or bool((told != table).any()),
    )


_MOST_SHOWN = 12
_NAME_WIDTH = 24
_HEADER = ("variable", "members", "others", "in sd", "interval", "p", "adjusted p")


def marginals_words(found: Marginals) -> tuple[str, TextTable | None, list[str]]:
    """A title, a table of the variables that differ most, and notes."""
    shown = found.variables[:_MOST_SHOWN]
    table = TextTable(header=_HEADER, rows=tuple(map(_cells, shown))) if shown else None
    return _title(found), table, _notes(found)


def _title(found: Marginals) -> str:
    if found.members is None or found.others is None:
        return f"Members of the flipset, {found.side}, against the rest of their group"
    return (
        f"{found.members:,} members of the flipset, {found.side}, against the {found.others:,} "
        "others of their group"
    )


def _cells(each: Marginal) -> tuple[str, ...]:
    name = each.name
    shown = percent if each.kind == "binary" else _short
    figure = "{:.2f}" if each.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        shown(each.members),
        shown(each.others),
        "–" if each.difference is None else figure.format(each.difference),
        "–" if each.interval is None else f"{figure} to {figure}".format(*each.interval),
        p_words(each.p_value),
        p_words(each.adjusted_p_value),
    )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _notes(found: Marginals) -> list[str]:
    if found.reason is not None:
        return [f"No figures: {found.reason}."]
    meant = (
        "In sd: members less others in standard deviations of the group, with "
        f"{100 * found.confidence_level:g}% intervals; p for H0: same distribution in both, "
        "adjusted over all variables (Benjamini-Hochberg)."
    )
    categories = [each for each in found.variables[:_MOST_SHOWN] if each.kind == "category"]
    notes = [meant, *(_shares(each, found) for each in categories if len(each.bins) > 1)]
    if any(each.coarse for each in found.variables):
        notes.append(f"Fewer than {found.smallest_cell} people are told as none or put together.")
    hidden = len(found.variables) - _MOST_SHOWN
    return [*notes, f"{hidden} more variables are not shown."] if hidden > 0 else notes


def _shares(each: Marginal, found: Marginals) -> str:
    members, others = found.members or 1, found.others or 1
    told = (
        f"{b.name} {percent(b.members / members)} ({percent(b.others / others)})" for b in each.bins
    )
    return f"{each.name}, members (others): {', '.join(told)}."
