"""Marginals of a flipset: variables that differ between its members and the rest of the group.

Small cells are merged first; shares, differences, intervals and p-values are computed from what is
shown. Where merging leaves nothing to compare, a variable has a reason instead of figures.
"""

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
from offline_audit.fliptest.marginals_text import marginals_text
from offline_audit.intervals import Interval, skewed_t_interval
from offline_audit.maps.columns import Columns, Variable, category_codes
from offline_audit.maps.transport_map import Features
from offline_audit.rendering import json_ready, to_html, to_text

__all__ = ["Marginal", "Marginals", "flipset_marginals"]

Float = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
        test: Name of the test for equal distributions; None if there is a `reason`.
        p_value: P-value of the test; None if the variable is constant in the group.
        adjusted_p_value: P-value adjusted over all variables (Benjamini and Hochberg), those with
            a `reason` counted as 1.
        bins: Counts for a histogram, from low to high or by category; merged categories last.
        coarse: Whether small cells were merged.
        reason: Why there are no figures; None if there are.
    """

    name: str
    kind: Literal["numeric", "integer", "binary", "category"]
    members: float | None
    others: float | None
    difference: float | None
    interval: Interval | None
    test: str | None
    p_value: float | None
    adjusted_p_value: float | None
    bins: tuple[Bin, ...]
    coarse: bool
    reason: str | None = None


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
        return to_text(*marginals_text(self))

    def _repr_html_(self) -> str:
        return to_html(*marginals_text(self))


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
    random tables with the same margins. Shares are those of the merged categories, and so is
    their test.

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
        marginals = _adjusted(marginals)
        marginals.sort(key=lambda m: (m.reason is not None, -abs(m.difference or 0.0)))
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


def _adjusted(marginals: Sequence[Marginal]) -> list[Marginal]:
    """Marginals with adjusted p-values.

    Variables without figures count as tests with p = 1: which variables are shown depends on their
    counts, and without them the others would be corrected too little.
    """
    p_values = [1.0 if marginal.reason else marginal.p_value for marginal in marginals]
    return [
        marginal if marginal.reason else replace(marginal, adjusted_p_value=p)
        for marginal, p in zip(marginals, adjusted_p_values(p_values, "bh"), strict=True)
    ]


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
    if any(_is_nearly_constant(rows, options.smallest) for rows in (members, others)):
        why = f"fewer than {options.smallest} members or others differ from the most frequent value"
        return _not_shown(variable, why)
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


def _is_nearly_constant(values: Float, smallest: int) -> bool:
    """Whether the mean of these people describes the few who differ from the most frequent value.

    With two values, the mean is a share, and reveals a small cell.
    """
    commonest = int(np.unique(values, return_counts=True)[1].max())
    different = len(values) - commonest
    return 0 < different < smallest and different <= commonest


def _not_shown(variable: Variable, reason: str) -> Marginal:
    return Marginal(
        name=variable.name,
        kind=variable.kind,
        members=None,
        others=None,
        difference=None,
        interval=None,
        test=None,
        p_value=None,
        adjusted_p_value=None,
        bins=(),
        coarse=False,
        reason=reason,
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
    merged = merged_categories(table, names, options.smallest)
    if merged is None:
        why = f"fewer than {options.smallest} members or others have one of its values"
        return _not_shown(variable, why)
    published, categories = merged
    test, p_value = equal_shares_test(published, options.rng)
    binary = variable.kind == "binary"
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
        coarse=len(categories) < len(names),
    )
