"""A warning about copies of rows that chance does not explain: probably repeated people.

Two people who agree in all columns but one agree in that one, too, with about the same odds as
people who differ elsewhere. So for every column j, chance explains about nⱼ · oⱼ identical pairs of
rows: the nⱼ pairs that differ in column j only, times the odds oⱼ of agreement in j among pairs
that differ elsewhere; or among those that differ in one other column k only, oⱼₖ = nₖ / nⱼₖ. The
largest of these products is used: a dependence between columns makes others too small.

Copies are then told from chance without a model of the data. In continuous columns nⱼ is 0, so any
copies are evidence. Rows of few categories differ in one column as often as in none, so that copies
among them are no evidence. A value that many rows of a continuous column share, such as a score
that was clipped to 0, is a category of its own: rows that have it are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNITS_REMEDY", "duplicate_warning", "joined_codes", "surplus_copies"]

# What to do about copies.
UNITS_REMEDY = "Pass `units`, the person of each row; in a log, record `evenhand_subject`."
# Pairs beyond chance per row from which copies change the variance of a share by 5%.
_SMALLEST_SURPLUS = 0.025
# Identical pairs up to this multiple of what chance explains are not evidence: in dependent columns
# the odds are larger among rows that agree elsewhere.
_TOLERANCE = 3.0
# Rows per distinct row from which rows are profiles, such as scores in bins, not people.
_MOST_COPIES = 20
# Pairs added to what chance explains, because few pairs do not measure it.
_FEW_PAIRS = 2.0
# Columns whose pairs are used; more change little.
_MOST_COLUMNS = 8
_FEWEST_ROWS = 100
# A column with at least this share of distinct values is continuous; a value in it that more rows
# than this number, and than this share, have is not one of its measured values.
_CONTINUOUS, _ATOM_ROWS, _ATOM_SHARE = 0.2, 20, 0.01


def duplicate_warning(
    columns: Sequence[NDArray[Any]], remedy: str, sampled: float = 1.0
) -> str | None:
    """Warning if more rows are exact copies of others than chance explains; None otherwise.

    Args:
        columns: Columns of the rows, `[n]` each: features, groups, labels, decisions, scores.
        remedy: What to do, as a sentence.
        sampled: Share of the rows that `columns` has; a sample has fewer of the copies.
    """
    surplus, copies = surplus_copies(columns)
    if surplus < _SMALLEST_SURPLUS * sampled:
        return None
    return (
        f"{copies:.0%} of the rows are exact copies of another row, more than chance explains. "
        f"If they are of the same people, p-values are too small. {remedy}"
    )


def joined_codes(columns: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """One column for several that belong together, such as crossed groups: `[n]` each to `[n]`."""
    return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].reshape(-1)


def surplus_copies(columns: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Identical pairs of rows beyond what chance explains, per row, and the share of copied rows.

    Args:
        columns: Columns of the rows, `[n]` each.
    """
    ordinary = _without_atoms(columns)
    codes = [np.unique(column[ordinary], return_inverse=True)[1].reshape(-1) for column in columns]
    # A constant column says nothing.
    codes = [code for code in codes if code.max(initial=0) > 0]
    if len(codes) < 2 or len(codes[0]) < _FEWEST_ROWS:
        return 0.0, 0.0
    n = len(codes[0])
    rng = np.random.default_rng(0)
    # Sums of random 64-bit words: a hash of any subset of columns by subtraction.
    words = [rng.integers(2**63, size=int(code.max()) + 1, dtype=np.uint64)[code] for code in codes]
    row: NDArray[np.uint64] = np.sum(words, axis=0, dtype=np.uint64)
    times = np.unique(row, return_counts=True)[1]
    identical, pairs = _pairs(row), n * (n - 1) / 2
    copies = float(times[times > 1].sum() / n)
    if len(times) * _MOST_COPIES < n or identical <= _TOLERANCE * _FEW_PAIRS:
        return 0.0, copies
    but_one = [_pairs(row - word) - identical for word in words]
    expected = 0.0
    for code, one in zip(codes, but_one, strict=True):
        agreeing = _pairs(code) - identical
        if (differing := pairs - one - identical - agreeing) > 0:
            expected = max(expected, one * agreeing / differing)
    # The odds among rows that differ in one more column only; of columns with enough such pairs.
    several = sorted(range(len(codes)), key=lambda j: -but_one[j])[:_MOST_COLUMNS]
    for j, k in combinations(several, 2):
        both = _pairs(row - words[j] - words[k]) - but_one[j] - but_one[k] - identical
        if both > 0:
            expected = max(expected, but_one[j] * but_one[k] / both)
    return max(identical - _TOLERANCE * (expected + _FEW_PAIRS), 0.0) / n, copies


def _without_atoms(columns: Sequence[NDArray[Any]]) -> NDArray[np.bool_]:
    """Rows without values that many rows of a continuous column share, bool `[n]`."""
    ordinary = np.ones(len(columns[0]) if columns else 0, bool)
    for column in columns:
        values, index, times = np.unique(column, return_inverse=True, return_counts=True)
        if len(values) >= _CONTINUOUS * len(column):
            most = max(_ATOM_ROWS, _ATOM_SHARE * len(column))
            ordinary &= (times <= most)[index.reshape(-1)]
    return ordinary


def _pairs(values: NDArray[Any]) -> float:
    """Number of pairs of equal values, `[n]`."""
    times = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float((times * (times - 1)).sum() / 2)
