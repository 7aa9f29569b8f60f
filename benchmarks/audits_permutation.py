"""How fast permutation tests are, beside scipy's on the same rows.

scipy would take ten minutes, so some of its resamples are timed and the rest is extrapolated; such
claims say so. It gets the rows that a metric counts and nothing else, as 0 and 1.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from benchmarks.claims import Claim, PairedRatio, Say, Scale
from offline_audit import METRICS, TableCounts, permutation_test

__all__ = ["SIX", "Rows", "made_up_rows", "measure_permutation", "scipy_auc", "scipy_rates"]

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

SIX = ("selection_rate", "tpr", "fpr", "ppv", "npv", "accuracy")
_DRAWS, _AUC_DRAWS = 10_000, 1_000
_COUNTED = 10**9


@dataclass(frozen=True, slots=True)
class Rows:
    """People with a decision, `[n]` each."""

    second: Bool
    labels: Bool
    scores: Float

    @property
    def decisions(self) -> Bool:
        """At a threshold of one half."""
        return self.scores >= 0.5


class Taken(NamedTuple):
    """Seconds of the clock, and of the processor, which other work does not add to."""

    clock: float
    processor: float


def made_up_rows(n: int) -> Rows:
    """30% in the second group, with other base rates; scores that tell something."""
    rng = np.random.default_rng(n)
    second = rng.random(n) < 0.3
    labels = rng.random(n) < np.where(second, 0.3, 0.4)
    return Rows(second, labels, rng.beta(2 + labels, 3, n))


def measure_permutation(scale: Scale, say: Say) -> list[Claim]:
    """Rates on rows, rates on counts, AUC."""
    n, rounds = scale.pick(full=(1_000_000, 3), quick=(100_000, 2), smoke=(1_000, 1))
    rows = made_up_rows(n)
    return [
        *_rates(rows, rounds, 30, say),
        *_counts(scale.pick(full=25, quick=9, smoke=1), say),
        *_aucs(rows, scale.pick(full=2, quick=1, smoke=1), 4, say),
    ]


def _rates(rows: Rows, rounds: int, resamples: int, say: Say) -> list[Claim]:
    """Six metrics from arrays; scipy's time a resample times the draws."""
    arrays: dict[str, Any] = {
        "groups": rows.second.astype(int),
        "decisions": rows.decisions,
        "labels": rows.labels,
    }
    ours: dict[str, Callable[[], object]] = {
        "as it comes": lambda: permutation_test(metrics=SIX, n_resamples=_DRAWS, **arrays),
        "all rows exchanged": lambda: permutation_test(
            metrics=SIX, n_resamples=_DRAWS, exchange="all", **arrays
        ),
    }
    ways = {**ours, **_peer(scipy_rates, rows, resamples)}
    times = _interleaved(ways, rounds, say, "six metrics")
    words = f"six metrics, {len(rows.labels):,} rows, B = {_DRAWS:,}"
    return [_faster(words, way, times, 1_000, resamples=resamples, draws=_DRAWS) for way in ours]


def scipy_rates(rows: Rows, resamples: int) -> dict[str, float]:
    """p-values of the six metrics by scipy, studentized, two-sided."""
    labels, decisions = rows.labels.astype(int), rows.decisions.astype(int)
    found = {}
    for name in SIX:
        metric = METRICS[name]
        counted = metric.counted[labels, decisions]
        hits = metric.hit[labels, decisions][counted].astype(float)
        second = rows.second[counted]
        found[name] = float(
            stats.permutation_test(
                (hits[~second], hits[second]),
                _studentized,
                n_resamples=resamples,
                batch=1,
                vectorized=True,
                rng=np.random.default_rng(0),
            ).pvalue
        )
    return found


def _studentized(one: Float, two: Float, axis: int = -1) -> Float:
    """Difference of rates by its standard error, one success and one failure added."""
    rates, variances = [], []
    for part in (one, two):
        n = part.shape[axis] + 2
        rate = (part.sum(axis=axis) + 1) / n
        rates.append(rate)
        variances.append(rate * (1 - rate) / n)
    found: Float = (rates[0] - rates[1]) / np.sqrt(variances[0] + variances[1])
    return found


def _counts(rounds: int, say: Say) -> list[Claim]:
    """A billion people as eight numbers; with the processor's time."""
    shares = {
        "a": {(1, 1): 20, (1, 0): 10, (0, 1): 10, (0, 0): 30},
        "b": {(1, 1): 6, (1, 0): 4, (0, 1): 5, (0, 0): 15},
    }
    counts = TableCounts.from_mapping(
        {
            group: {cell: share * _COUNTED // 100 for cell, share in cells.items()}
            for group, cells in shares.items()
        }
    )
    ways: dict[str, Callable[[], object]] = {
        "as it comes": lambda: permutation_test(metrics=SIX, counts=counts, n_resamples=_DRAWS),
        "all rows exchanged": lambda: permutation_test(
            metrics=SIX, counts=counts, n_resamples=_DRAWS, exchange="all"
        ),
    }
    times = _interleaved(ways, rounds, say, "counts")
    return [
        Claim(
            claim=f"six metrics, {_COUNTED:,} rows as counts, B = {_DRAWS:,}, {way}",
            figure=1_000 * statistics.median(one.clock for one in taken),
            unit="ms",
            side="at most",
            bar=100,
            rounds=rounds,
            details={
                "lowest": 1_000 * min(one.clock for one in taken),
                "highest": 1_000 * max(one.clock for one in taken),
                "ms of the processor": 1_000 * statistics.median(one.processor for one in taken),
            },
        )
        for way, taken in times.items()
    ]


def _aucs(rows: Rows, rounds: int, resamples: int, say: Say) -> list[Claim]:
    """Exact and binned; scipy's time a resample times the draws."""
    arrays: dict[str, Any] = {
        "groups": rows.second.astype(int),
        "labels": rows.labels,
        "scores": rows.scores,
    }
    times = _interleaved(
        {
            "exact": lambda: permutation_test(
                metrics="auc", n_resamples=_AUC_DRAWS, bins=0, **arrays
            ),
            "binned": lambda: permutation_test(
                metrics="auc", n_resamples=_AUC_DRAWS, bins=256, **arrays
            ),
            **_peer(scipy_auc, rows, resamples),
        },
        rounds,
        say,
        "AUC",
    )
    words = f"AUC, {len(rows.labels):,} rows, B = {_AUC_DRAWS:,}"
    return [
        _faster(words, way, times, bar, resamples=resamples, draws=_AUC_DRAWS)
        for way, bar in (("exact", 10), ("binned", 50))
    ]


def scipy_auc(rows: Rows, resamples: int) -> float:
    """p-value by scipy with sklearn's AUC; not studentized, since sklearn has no variance."""

    def difference(one: NDArray[np.intp], two: NDArray[np.intp]) -> float:
        aucs = [roc_auc_score(rows.labels[part], rows.scores[part]) for part in (one, two)]
        return float(aucs[0] - aucs[1])

    places = np.arange(len(rows.labels))
    return float(
        stats.permutation_test(
            (places[~rows.second], places[rows.second]),
            difference,
            n_resamples=resamples,
            batch=1,
            vectorized=False,
            rng=np.random.default_rng(0),
        ).pvalue
    )


def _peer(
    run: Callable[[Rows, int], object], rows: Rows, resamples: int
) -> dict[str, Callable[[], object]]:
    """Once with one resample, once with so many more: what they add is their cost."""
    return {"scipy, 1": lambda: run(rows, 1), "scipy": lambda: run(rows, 1 + resamples)}


def _interleaved(
    ways: dict[str, Callable[[], object]], rounds: int, say: Say, what: str
) -> dict[str, list[Taken]]:
    """Times of each, in turns, in reverse every other round."""
    times: dict[str, list[Taken]] = {way: [] for way in ways}
    for number in range(rounds):
        order = list(ways) if number % 2 == 0 else list(ways)[::-1]
        for way in order:
            say(f"{what}, {way}, round {number + 1} of {rounds}")
            clock, processor = time.perf_counter(), time.process_time()
            ways[way]()
            taken = Taken(time.perf_counter() - clock, time.process_time() - processor)
            times[way].append(taken)
    return times


def _faster(
    words: str, way: str, times: dict[str, list[Taken]], bar: float, *, resamples: int, draws: int
) -> Claim:
    """Ratio of processor times, since a slope between two of scipy's must not hang on other work.

    scipy sets up for seconds, since it counts the permutations that there are; that is taken once.
    """
    ours = [taken.processor for taken in times[way]]
    pairs = zip(times["scipy, 1"], times["scipy"], strict=True)
    each = [(many.processor - one.processor) / resamples for one, many in pairs]
    whole = [
        one.processor + a_resample * (draws - 1)
        for one, a_resample in zip(times["scipy, 1"], each, strict=True)
    ]
    ratio = PairedRatio(ratios=tuple(w / o for w, o in zip(whole, ours, strict=True)))
    return Claim(
        claim=f"{words}, {way}",
        figure=ratio.median,
        unit="× scipy.stats.permutation_test",
        side="at least",
        bar=bar,
        rounds=len(ours),
        details=ratio.details
        | {
            "seconds by the clock": statistics.median(taken.clock for taken in times[way]),
            "of the processor": statistics.median(ours),
            "scipy's of the processor": statistics.median(whole),
            "scipy's for a resample": statistics.median(each),
            "extrapolated": f"scipy, from {resamples} resamples a round",
        },
    )
