"""Speed of permutation tests, compared with scipy's on the same rows.

scipy would take ten minutes, so some of its resamples are timed and the rest is extrapolated; such
claims are marked. scipy receives only the rows that a metric counts, as 0 and 1.
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

__all__ = ["SIX", "Rows", "measure_permutation", "scipy_auc", "scipy_rates", "synthetic_rows"]

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]

SIX = ("selection_rate", "tpr", "fpr", "ppv", "npv", "accuracy")
_DRAWS, _AUC_DRAWS = 10_000, 1_000
_COUNTED = 10**9


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with a group, a label and a score, `[n]` each."""

    second: Bool
    labels: Bool
    scores: Float

    @property
    def decisions(self) -> Bool:
        """Decisions at the threshold 0.5."""
        return self.scores >= 0.5


class Seconds(NamedTuple):
    """Wall-clock time, and CPU time, which other processes do not affect."""

    clock: float
    cpu: float


def synthetic_rows(n: int) -> Rows:
    """30% of the rows are in the second group; base rates differ; scores are informative."""
    rng = np.random.default_rng(n)
    second = rng.random(n) < 0.3
    labels = rng.random(n) < np.where(second, 0.3, 0.4)
    return Rows(second, labels, rng.beta(2 + labels, 3, n))


def measure_permutation(scale: Scale, say: Say) -> list[Claim]:
    """Rates on rows, rates on counts, AUC."""
    n, rounds = scale.pick(full=(1_000_000, 3), quick=(100_000, 2), smoke=(1_000, 1))
    rows = synthetic_rows(n)
    return [
        *_rates(rows, rounds, 30, say),
        *_counts(scale.pick(full=25, quick=9, smoke=1), say),
        *_aucs(rows, scale.pick(full=2, quick=1, smoke=1), 4, say),
    ]


def _rates(rows: Rows, rounds: int, resamples: int, say: Say) -> list[Claim]:
    """Six metrics from arrays; scipy's time is extrapolated per resample."""
    arrays: dict[str, Any] = {
        "groups": rows.second.astype(int),
        "decisions": rows.decisions,
        "labels": rows.labels,
    }
    ours: dict[str, Callable[[], object]] = {
        "default": lambda: permutation_test(metrics=SIX, n_resamples=_DRAWS, **arrays),
        "all rows exchanged": lambda: permutation_test(
            metrics=SIX, n_resamples=_DRAWS, exchange="all", **arrays
        ),
    }
    tests = {**ours, **_peer(scipy_rates, rows, resamples)}
    times = _interleaved(tests, rounds, say, "six metrics")
    data = f"six metrics, {len(rows.labels):,} rows, B = {_DRAWS:,}"
    return [_faster(data, test, times, 1_000, resamples=resamples, draws=_DRAWS) for test in ours]


def scipy_rates(rows: Rows, resamples: int) -> dict[str, float]:
    """p-values of the six metrics by scipy, studentized, two-sided."""
    labels, decisions = rows.labels.astype(int), rows.decisions.astype(int)
    p_values = {}
    for name in SIX:
        metric = METRICS[name]
        counted = metric.counted[labels, decisions]
        hits = metric.hit[labels, decisions][counted].astype(float)
        second = rows.second[counted]
        p_values[name] = float(
            stats.permutation_test(
                (hits[~second], hits[second]),
                _studentized,
                n_resamples=resamples,
                batch=1,
                vectorized=True,
                rng=np.random.default_rng(0),
            ).pvalue
        )
    return p_values


def _studentized(one: Float, two: Float, axis: int = -1) -> Float:
    """Difference of rates divided by its standard error; one success and one failure are added."""
    rates, variances = [], []
    for part in (one, two):
        n = part.shape[axis] + 2
        rate = (part.sum(axis=axis) + 1) / n
        rates.append(rate)
        variances.append(rate * (1 - rate) / n)
    statistic: Float = (rates[0] - rates[1]) / np.sqrt(variances[0] + variances[1])
    return statistic


def _counts(rounds: int, say: Say) -> list[Claim]:
    """A billion rows as eight counts."""
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
    tests: dict[str, Callable[[], object]] = {
        "default": lambda: permutation_test(metrics=SIX, counts=counts, n_resamples=_DRAWS),
        "all rows exchanged": lambda: permutation_test(
            metrics=SIX, counts=counts, n_resamples=_DRAWS, exchange="all"
        ),
    }
    times = _interleaved(tests, rounds, say, "counts")
    return [
        Claim(
            claim=f"six metrics, {_COUNTED:,} rows as counts, B = {_DRAWS:,}, {test}",
            figure=1_000 * statistics.median(one.clock for one in seconds),
            unit="ms",
            side="at most",
            bar=100,
            rounds=rounds,
            details={
                "lowest": 1_000 * min(one.clock for one in seconds),
                "highest": 1_000 * max(one.clock for one in seconds),
                "CPU ms": 1_000 * statistics.median(one.cpu for one in seconds),
            },
        )
        for test, seconds in times.items()
    ]


def _aucs(rows: Rows, rounds: int, resamples: int, say: Say) -> list[Claim]:
    """Exact and binned AUC; scipy's time is extrapolated per resample."""
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
    data = f"AUC, {len(rows.labels):,} rows, B = {_AUC_DRAWS:,}"
    return [
        _faster(data, test, times, bar, resamples=resamples, draws=_AUC_DRAWS)
        for test, bar in (("exact", 10), ("binned", 50))
    ]


def scipy_auc(rows: Rows, resamples: int) -> float:
    """p-value by scipy with sklearn's AUC; not studentized, since sklearn has no variance."""

    def difference(one: NDArray[np.intp], two: NDArray[np.intp]) -> float:
        aucs = [roc_auc_score(rows.labels[part], rows.scores[part]) for part in (one, two)]
        return float(aucs[0] - aucs[1])

    indices = np.arange(len(rows.labels))
    return float(
        stats.permutation_test(
            (indices[~rows.second], indices[rows.second]),
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
    """Run scipy with one resample and with more; the difference is the cost of the resamples."""
    return {"scipy, 1": lambda: run(rows, 1), "scipy": lambda: run(rows, 1 + resamples)}


def _interleaved(
    tests: dict[str, Callable[[], object]], rounds: int, say: Say, title: str
) -> dict[str, list[Seconds]]:
    """Times of every test; the order is reversed in every other round."""
    times: dict[str, list[Seconds]] = {test: [] for test in tests}
    for number in range(rounds):
        order = list(tests) if number % 2 == 0 else list(tests)[::-1]
        for test in order:
            say(f"{title}, {test}, round {number + 1} of {rounds}")
            clock, cpu = time.perf_counter(), time.process_time()
            tests[test]()
            times[test].append(Seconds(time.perf_counter() - clock, time.process_time() - cpu))
    return times


def _faster(
    data: str,
    test: str,
    times: dict[str, list[Seconds]],
    bar: float,
    *,
    resamples: int,
    draws: int,
) -> Claim:
    """Ratio of CPU times, because extrapolation must not depend on other processes.

    scipy takes seconds to count the possible permutations; this set-up is included once.
    """
    ours = [seconds.cpu for seconds in times[test]]
    pairs = zip(times["scipy, 1"], times["scipy"], strict=True)
    per_resample = [(many.cpu - one.cpu) / resamples for one, many in pairs]
    total = [
        one.cpu + slope * (draws - 1)
        for one, slope in zip(times["scipy, 1"], per_resample, strict=True)
    ]
    ratio = PairedRatio(ratios=tuple(peer / own for peer, own in zip(total, ours, strict=True)))
    return Claim(
        claim=f"{data}, {test}",
        figure=ratio.median,
        unit="× scipy.stats.permutation_test",
        side="at least",
        bar=bar,
        rounds=len(ours),
        details=ratio.details
        | {
            "seconds": statistics.median(seconds.clock for seconds in times[test]),
            "CPU s": statistics.median(ours),
            "CPU s of scipy": statistics.median(total),
            "CPU s of scipy per resample": statistics.median(per_resample),
            "extrapolated": f"scipy, from {resamples} resamples per round",
        },
    )
