"""Random permutations of units between two groups, and the p-value that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.intervals import Interval
from offline_audit.validation import (
    is_whole,
    require_alpha,
    require_confidence_level,
    require_whole,
)

__all__ = [
    "Alternative",
    "Exchange",
    "PermutationOptions",
    "PermutationResult",
    "by_origin",
    "chunks",
    "draw_counts",
    "draw_subsets",
    "p_value_from_resamples",
    "permuted_sums",
    "require_options",
]

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Alternative = Literal["two-sided", "greater", "less"]
# Which units are permuted: those that the metric counts, all within each label, or all.
Exchange = Literal["counted", "within outcome", "all"]

_ALTERNATIVES = ("two-sided", "greater", "less")
_SMALLEST_N_RESAMPLES = 99
# Fewer bins would distort the permutation distribution.
_SMALLEST_BINS = 32
# Units times resamples above which distinct scores are binned, unless the caller chose.
_BINNING_THRESHOLD = 500_000_000
_DEFAULT_BINS = 256
# Numbers held in memory at once.
_CHUNK_SIZE = 4_000_000
# numpy's hypergeometric generator accepts fewer than this of either kind.
_HYPERGEOMETRIC_LIMIT = 1_000_000_000
# Units above which the random memory access of a shuffle costs more than drawing twice.
_SHUFFLE_LIMIT = 20_000
# Drawing the count of one type costs about as much as shuffling this many units.
_TYPE_COST = 20
# Types per bin above which the types of large data are merged into bins.
_MOST_TYPES = 4
# Statistics that are this close, relative to their size, are ties that were rounded differently.
_TIE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationOptions:
    """How permutations are drawn and compared.

    Attributes:
        alternative: Which differences count as extreme.
        n_resamples: Number of random permutations, where they are not enumerated.
        seed: Seed of the random generator.
        alpha: Significance level, on which the smallest detectable effects depend.
        studentized: False for the plain difference, which is not valid for unequal groups.
        bins: Number of bins for distinct scores, 0 for none; None for bins in large data only.
        step: Called with the number of permutations done since the last call.
    """

    alternative: Alternative
    n_resamples: int
    seed: int
    alpha: float = 0.05
    studentized: bool = True
    bins: int | None = None
    step: Callable[[int], None] | None = None

    def bins_for(self, units: int) -> int:
        """Number of bins for this many units; 0 for none."""
        if self.bins is not None:
            return self.bins
        return _DEFAULT_BINS if units * self.n_resamples > _BINNING_THRESHOLD else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationResult:
    """Statistic and p-value of one permutation test.

    Attributes:
        statistic: The studentized difference; None where it is undefined.
        p_value: None where the statistic is undefined.
        n_resamples: Number of random permutations; None if all were enumerated.
        degenerate: Permutations without a statistic, counted as at least as extreme.
        interval: Effects that the test does not reject; None if it was not inverted.
    """

    statistic: float | None
    p_value: float | None
    n_resamples: int | None
    degenerate: int
    interval: Interval | None = None


def require_options(
    *,
    alternative: Any,
    alpha: Any,
    confidence_level: Any,
    n_resamples: Any,
    seed: Any,
    bins: Any = None,
) -> None:
    """Validate the options of a permutation test.

    Raises:
        AuditInputError: An option has the wrong type or is out of range.
    """
    if not isinstance(alternative, str) or alternative not in _ALTERNATIVES:
        raise AuditInputError(f"alternative: must be one of {', '.join(_ALTERNATIVES)}")
    if is_whole(n_resamples) and n_resamples < _SMALLEST_N_RESAMPLES:
        raise AuditInputError(
            f"n_resamples: must be at least {_SMALLEST_N_RESAMPLES}; with fewer, no p-value can be "
            "below 1%"
        )
    require_whole("n_resamples", n_resamples, _SMALLEST_N_RESAMPLES)
    require_whole("seed", seed, 0)
    if bins is not None and (not is_whole(bins) or 0 < bins < _SMALLEST_BINS or bins < 0):
        raise AuditInputError(
            f"bins: must be None, 0 for no bins, or a whole number of at least {_SMALLEST_BINS}"
        )
    require_alpha(alpha)
    require_confidence_level(confidence_level)


def chunks(options: PermutationOptions, width: int) -> Iterator[int]:
    """Yield numbers of resamples that fit into memory together, and report them as progress.

    Args:
        options: Number of resamples and progress.
        width: Numbers held for one resample.
    """
    size, done = max(1, _CHUNK_SIZE // max(width, 1)), 0
    while done < options.n_resamples:
        part = min(size, options.n_resamples - done)
        yield part
        done += part
        if options.step is not None:
            options.step(part)


def draw_counts(rng: np.random.Generator, types: Int, size: int, draws: int) -> Int:
    """Units of each type among `size` units drawn without replacement; multivariate hypergeometric.

    A chain of hypergeometric draws, one for each type, so that the cost does not depend on the
    number of units. The largest type is last: it gets the remainder.

    Args:
        rng: Random generator.
        types: Number of units of each type, `[k]`.
        size: Number of units drawn.
        draws: Number of repetitions.

    Returns:
        Counts `[draws, k]`.
    """
    counts = np.zeros((draws, len(types)), dtype=np.int64)
    order = np.argsort(types, kind="stable")
    remaining = np.full(draws, size, dtype=np.int64)
    others = int(types.sum())
    for index in order[:-1]:
        available = int(types[index])
        others -= available
        if available == 0:
            continue
        counts[:, index] = _hypergeometric(rng, available, others, remaining)
        remaining -= counts[:, index]
    if len(order):
        counts[:, order[-1]] = remaining
    return counts


def _hypergeometric(rng: np.random.Generator, available: int, others: int, remaining: Int) -> Int:
    if available < _HYPERGEOMETRIC_LIMIT and others < _HYPERGEOMETRIC_LIMIT:
        return rng.hypergeometric(available, others, remaining)
    # Above numpy's limit: the normal approximation, where the standard deviation is many units;
    # else the binomial, since a rare type among so many is drawn as if with replacement.
    total = available + others
    share = remaining / total
    spread = np.sqrt(available * share * (1 - share) * (others / max(total - 1, 1)))
    normal = np.rint(available * share + spread * rng.standard_normal(len(remaining)))
    low, high = np.maximum(remaining - others, 0), np.minimum(remaining, available)
    if available < 1_000_000:
        return np.clip(rng.binomial(available, share), low, high)
    return np.clip(normal, low, high).astype(np.int64)


def draw_subsets(rng: np.random.Generator, n: int, size: int, draws: int) -> Bool:
    """Which of n units are among `size` drawn without replacement, `[draws, n]`."""
    if n > _SHUFFLE_LIMIT:
        return np.stack([_draw_large_subset(rng, n, size) for _ in range(draws)])
    rows = np.zeros((draws, n), dtype=np.int8)
    rows[:, :size] = 1
    return rng.permuted(rows, axis=1, out=rows).astype(bool)


def _draw_large_subset(rng: np.random.Generator, n: int, size: int) -> Bool:
    """One subset of many units, `[n]`.

    Each unit is taken with the same probability; then the surplus or shortage is corrected by
    random units. Given the size, neither step prefers any subset, and both read memory in order,
    which a shuffle does not.
    """
    taken = rng.random(n, dtype=np.float32) < size / n
    excess = int(np.count_nonzero(taken)) - size
    while excess:
        candidates = rng.integers(n, size=2 * abs(excess) + 16)
        fit = candidates[taken[candidates] == (excess > 0)]
        # In the order in which they were drawn, without repetition.
        first = np.sort(np.unique(fit, return_index=True)[1])[: abs(excess)]
        taken[fit[first]] = excess < 0
        excess -= len(first) if excess > 0 else -len(first)
    return taken


def permuted_sums(
    terms: Float, strata: Int, group: Int, other: Int, options: PermutationOptions
) -> Iterator[Float]:
    """Sums of `terms` over the units of the group in random permutations, in chunks.

    Types that only the group has and all other types are summed separately, `[d, 2, p]`, so that
    the units that came from the group can be shifted; see `by_origin`.

    Args:
        terms: Terms of each type, `[k, p]`; the second and third are b and a.
        strata: Stratum of each type, `[k]`; units are permuted within strata.
        group: Units of each type in the group, `[k]`.
        other: Units of each type in the other group, `[k]`.
        options: Number of permutations, seed, bins.
    """
    rng = np.random.default_rng(options.seed)
    types, units = group + other, int((group + other).sum())
    bins = options.bins_for(units)
    if bins and (len(types) * _TYPE_COST > units or len(types) > _MOST_TYPES * bins):
        terms, strata, group, other = _binned(terms, strata, group, other, bins)
        types = group + other
    p = terms.shape[1]
    own = (other == 0)[:, None]
    terms = np.concatenate([terms * own, terms * ~own], axis=1)
    by_type = len(types) * _TYPE_COST <= units
    within = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    sizes = [int(group[indices].sum()) for indices in within]
    if by_type:
        for part in chunks(options, len(types)):
            sums = np.zeros((part, 2 * p))
            for indices, size in zip(within, sizes, strict=True):
                sums += draw_counts(rng, types[indices], size, part) @ terms[indices]
            yield sums.reshape(part, 2, p)
        return
    expanded = [np.repeat(terms[indices], types[indices], axis=0) for indices in within]
    for part in chunks(options, sum(map(len, expanded))):
        sums = np.zeros((part, 2 * p))
        for rows, size in zip(expanded, sizes, strict=True):
            sums += draw_subsets(rng, len(rows), size, part) @ rows
        yield sums.reshape(part, 2, p)


def by_origin(terms: Float, strata: Int, group: Int, other: Int) -> tuple[Float, Int, Int, Int]:
    """Types of which every unit came from the same group; types of both groups become two."""
    none = np.zeros_like(group)
    group, other = (np.stack(p, axis=1).ravel() for p in ((group, none), (none, other)))
    present = group + other > 0
    terms, strata = np.repeat(terms, 2, axis=0), np.repeat(strata, 2)
    return terms[present], strata[present], group[present], other[present]


def _binned(
    terms: Float, strata: Int, group: Int, other: Int, bins: int
) -> tuple[Float, Int, Int, Int]:
    """Neighbouring types of a stratum, merged into one type with their mean terms.

    Types of the group alone are not merged with others, since a shift moves one group only.
    The totals of the terms are unchanged, so the sums of a permutation differ from the exact ones
    only by exchanges within a bin. Each bin holds about the same share of units, squares
    and cubes: few units that make up most of the variance get bins of their own, otherwise the
    permutation distribution would miss them.
    """
    types = group + other
    b, a = terms[:, 1], terms[:, 2]
    own = other == 0
    order = np.lexsort((a, own, b, strata))
    key = np.stack([strata[order], b[order], own[order]])
    new = np.concatenate([[True], np.any(key[:, 1:] != key[:, :-1], axis=0)])
    filled = np.cumsum(_share_of_moments(a, types)[order]) * bins
    new[1:] |= np.diff(np.floor(filled)) > 0
    bin_of = np.cumsum(new) - 1
    k = int(bin_of[-1]) + 1
    mass = np.bincount(bin_of, weights=types[order], minlength=k)
    weighted = (types[order] * column for column in terms[order].T)
    summed = np.stack([np.bincount(bin_of, weights=w, minlength=k) for w in weighted], axis=1)
    merged = [np.bincount(bin_of, weights=units[order], minlength=k) for units in (group, other)]
    return (
        summed / mass[:, None],
        strata[order][new],
        merged[0].astype(np.int64),
        merged[1].astype(np.int64),
    )


def _share_of_moments(a: Float, types: Int) -> Float:
    """Mean of each type's shares of units, squares and cubes, `[k]`; sums to 1."""
    shares = np.zeros(len(a))
    for power in (0, 2, 3):
        part = types * np.abs(a) ** power
        shares += part / (part.sum() or 1.0) / 3
    return shares


def p_value_from_resamples(
    observed: float, null_distribution: Float, alternative: Alternative, *, centred: bool = True
) -> PermutationResult:
    """P = (1 + #{T_i > T} + ½ #{T_i = T}) / (B + 1), with |T| when two-sided.

    A null distribution that is not `centred` at 0 has a two-sided p of twice the smaller tail.
    """
    degenerate = ~np.isfinite(null_distribution)
    if alternative == "two-sided" and not centred:
        tails = (_tail_share(observed, null_distribution, side) for side in ("greater", "less"))
        p = 2 * min(tails)
    else:
        p = _tail_share(observed, null_distribution, alternative)
    return PermutationResult(
        statistic=observed,
        p_value=min(p, 1.0),
        n_resamples=len(null_distribution),
        degenerate=int(degenerate.sum()),
    )


def _tail_share(observed: float, null_distribution: Float, alternative: Any) -> float:
    degenerate = ~np.isfinite(null_distribution)
    above, tied = extremes(observed, null_distribution[~degenerate], alternative)
    beyond = 1 + above.sum() + degenerate.sum() + tied.sum() / 2
    return float(beyond / (len(null_distribution) + 1))


def extremes(observed: float, others: Float, alternative: Alternative) -> tuple[Bool, Bool]:
    """Which statistics are more extreme than the observed one, and which are tied with it."""
    own = float(_oriented(np.array(observed), alternative))
    oriented = _oriented(others, alternative)
    tied = np.abs(oriented - own) <= _TIE_TOLERANCE * (1 + abs(own))
    return (oriented > own) & ~tied, tied


def _oriented(statistic: Float, alternative: Alternative) -> Float:
    """The statistic with a sign such that large values are extreme."""
    if alternative == "two-sided":
        return np.abs(statistic)
    return statistic if alternative == "greater" else -statistic
