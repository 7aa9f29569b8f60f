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
from offline_audit.fliptest.counts import (
    Bin,
    bins_of,
    equal_shares_test,
    member_counts,
    merged_categories,
    range_bins,
    standardised_shares,
)
from offline_audit.fliptest.flipset import Flipset, Side
from offline_audit.intervals import Interval, skewed_t_interval
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import (
    TextTable,
    count,
    format_p_value,
    json_ready,
    percent,
    to_html,
    to_text,
)

__all__ = ["Marginal", "Marginals", "flipset_marginals"]

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MAX_VARIABLES = 12
_NAME_WIDTH = 24
_HEADER = ("variable", "members", "others", "SD diff", "interval", "p", "adjusted p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """One variable among the members of a flipset and in the rest of the group.

    Attributes:
        name: Name of the feature, or of the group of one-hot columns.
        kind: Kind of the variable; `category` for one-hot columns.
        members: Mean among the members, for a binary the share of 1; None for a category.
        others: Mean in the rest of the group.
        difference: Members minus others, in standard deviations of the group. For a category, the
            length of the differences of its shares over √Σ p (1 − p), without sign; for two
            categories it equals that of a binary. None if only one value or range is published.
        interval: Interval of the difference; conservative for a category.
        test: Name of the test for equal distributions.
        p_value: P-value of the test; None if the variable is constant in the group.
        adjusted_p_value: P-value adjusted over all variables (Benjamini and Hochberg).
        bins: Counts for a histogram, from low to high or by category.
        coarse: Whether small cells were merged or suppressed.
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
    """Members of a flipset described variable by variable (section 4.1 of the paper).

    Attributes:
        side: Side of the flipset.
        members: Number of members; None if suppressed.
        others: Number of other people of the group; None if suppressed.
        variables: Variables, the largest difference first; empty if suppressed.
        reason: Why there are no figures; None if there are.
        confidence_level: Confidence level of the intervals.
        smallest_cell: Figures of fewer people are suppressed.
        seed: Seed of simulated p-values.
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
        """Marginal of one variable.

        Raises:
            KeyError: No such variable.
        """
        return {marginal.name: marginal for marginal in self.variables}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = json_ready(self)
        return data

    def __str__(self) -> str:
        return to_text(_title(self), _table(self), _notes(self))

    def _repr_html_(self) -> str:
        return to_html(_title(self), _table(self), _notes(self))


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

    H0, for each variable: members and others have the same distribution. Numbers are compared
    with the Kolmogorov-Smirnov test, since members near a decision boundary may differ in spread
    alone; it is conservative for values with ties. Shares are compared with the chi-square test.
    If an expected count is below 5, Fisher's exact test is used or, for more than two categories,
    random tables with the same margins.

    Args:
        flipset: Rows and their counterparts.
        side: Side of the flipset.
        columns: Description of the columns.
        smallest_cell: Smallest number of members and others for which figures are reported, and
            smallest count of a bin.
        confidence_level: Confidence level of the intervals.
        seed: Seed of simulated p-values.

    Raises:
        AuditInputError: Shapes do not match.
    """
    if flipset.features.shape[1] != len(columns):
        raise AuditInputError(
            f"columns: {len(columns)} columns are described, but features have "
            f"{flipset.features.shape[1]}"
        )
    inside = flipset.members(side)
    sizes = int(inside.sum()), int((~inside).sum())
    reason = next(
        (
            f"there are {'no' if not size else f'fewer than {smallest_cell}'} {role}"
            for size, role in zip(sizes, ("members", "others"), strict=True)
            if size < max(smallest_cell, 2)
        ),
        None,
    )
    marginals: list[Marginal] = []
    if reason is None:
        options = _Options(
            smallest=smallest_cell,
            confidence_level=confidence_level,
            rng=np.random.default_rng(seed),
        )
        marginals = [_marginal(flipset.features, inside, v, options) for v in columns.variables]
        adjusted = adjusted_p_values([marginal.p_value for marginal in marginals], "bh")
        marginals = [
            replace(marginal, adjusted_p_value=p)
            for marginal, p in zip(marginals, adjusted, strict=True)
        ]
        marginals.sort(key=lambda marginal: -abs(marginal.difference or 0.0))
    suppressed = any(0 < size < smallest_cell for size in sizes)
    return Marginals(
        side=side,
        members=None if suppressed else sizes[0],
        others=None if suppressed else sizes[1],
        variables=tuple(marginals),
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
    # The asymptotic distribution: scipy's exact method warns and falls back on large samples.
    p_value = None if constant else float(stats.ks_2samp(members, others, method="asymp").pvalue)
    low, high = _mean_difference_interval(members, others, options.confidence_level)
    bins, coarse = range_bins(values, inside, options.smallest, whole=variable.kind == "integer")
    return Marginal(
        name=variable.name,
        kind=variable.kind,
        members=means[0],
        others=means[1],
        difference=0.0 if constant else (means[0] - means[1]) / spread,
        interval=(0.0, 0.0) if constant else (low / spread, high / spread),
        test="Kolmogorov-Smirnov",
        p_value=p_value,
        adjusted_p_value=None,
        bins=bins,
        coarse=coarse,
    )


def _mean_difference_interval(first: Float, second: Float, confidence_level: float) -> Interval:
    """Welch's interval of a difference of means, `[n]` and `[m]`, corrected for skewness."""
    difference = float(first.mean() - second.mean())
    variances = [float(x.var(ddof=1)) / len(x) for x in (first, second)]
    variance = sum(variances)
    if variance <= 0:
        return difference, difference
    third_moments = [float(((x - x.mean()) ** 3).mean()) / len(x) ** 2 for x in (first, second)]
    # Welch-Satterthwaite degrees of freedom.
    freedom = variance**2 / sum(
        part**2 / (len(x) - 1) for part, x in zip(variances, (first, second), strict=True)
    )
    skewness = (third_moments[0] - third_moments[1]) / variance**1.5
    return skewed_t_interval(difference, variance, skewness, freedom, confidence_level)


def _of_shares(
    codes: NDArray[np.intp],
    names: Sequence[str],
    inside: Bools,
    variable: Variable,
    options: _Options,
) -> Marginal:
    table = member_counts(codes, len(names), inside)
    test, p_value = equal_shares_test(table, options.rng)
    published, categories = merged_categories(table, names, options.smallest)
    binary = variable.kind == "binary" and len(categories) == 2
    shares = published / published.sum(1, keepdims=True)
    difference, interval = standardised_shares(published, options.confidence_level, signed=binary)
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
        bins=bins_of(categories, published),
        coarse=published.shape != table.shape or bool((published != table).any()),
    )


def _title(marginals: Marginals) -> str:
    if marginals.members is None or marginals.others is None:
        return f"Members of the flipset ({marginals.side}) compared with the rest of their group"
    return (
        f"{marginals.members:,} members of the flipset ({marginals.side}) compared with the "
        f"{marginals.others:,} others of their group"
    )


def _table(marginals: Marginals) -> TextTable | None:
    rows = tuple(_cells(marginal) for marginal in marginals.variables[:_MAX_VARIABLES])
    return TextTable(header=_HEADER, rows=rows) if rows else None


def _cells(marginal: Marginal) -> tuple[str, ...]:
    name = marginal.name
    formatted = percent if marginal.kind == "binary" else _short
    number = "{:.2f}" if marginal.kind == "category" else "{:+.2f}"
    return (
        name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…",
        formatted(marginal.members),
        formatted(marginal.others),
        "–" if marginal.difference is None else number.format(marginal.difference),
        "–" if marginal.interval is None else f"{number} to {number}".format(*marginal.interval),
        format_p_value(marginal.p_value),
        format_p_value(marginal.adjusted_p_value),
    )


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def _notes(marginals: Marginals) -> list[str]:
    if marginals.reason is not None:
        return [f"No table: {marginals.reason}."]
    shown = marginals.variables[:_MAX_VARIABLES]
    categories = [marginal for marginal in shown if marginal.kind == "category"]
    notes = [
        (
            "SD diff: members minus others in standard deviations of the group, with "
            f"{100 * marginals.confidence_level:g}% intervals; p for H0: same distribution in "
            "both, adjusted over all variables (Benjamini-Hochberg)."
        ),
        *(_shares_note(m, marginals) for m in categories if len(m.bins) > 1),
    ]
    if any(marginal.coarse for marginal in marginals.variables):
        notes.append(f"Counts below {marginals.smallest_cell} are suppressed or merged.")
    hidden = len(marginals.variables) - _MAX_VARIABLES
    if hidden > 0:
        notes.append(f"Not listed: {count(hidden, 'more variable')}.")
    return notes


def _shares_note(marginal: Marginal, marginals: Marginals) -> str:
    members, others = marginals.members or 1, marginals.others or 1
    shares = ", ".join(
        f"{b.name} {percent(b.members / members)} ({percent(b.others / others)})"
        for b in marginal.bins
    )
    return f"{marginal.name}, members (others): {shares}."
