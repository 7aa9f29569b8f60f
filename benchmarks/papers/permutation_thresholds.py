"""Section 5 of the paper on permutation tests: Adult and COMPAS as the threshold moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.papers.audited_people import People
from offline_audit import TableCounts, permutation_test

__all__ = [
    "METRICS",
    "SPLIT",
    "Detected",
    "Scored",
    "Sweep",
    "detected_by_size",
    "draw_detected",
    "draw_sweeps",
    "scored",
    "sweep",
]

Float = NDArray[np.float64]

SPLIT = (0.7, 0.15, 0.15)
# By metric: label of the rows that it counts, and its name in the paper.
METRICS = {"fpr": (False, "FPR"), "tpr": (True, "recall")}
_THRESHOLDS = np.linspace(0, 1, 51)
_ALPHA = 0.05
_COLOURS = {"fpr": "tab:blue", "tpr": "tab:orange"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """Scored rows.

    Attributes:
        name: Name of the data set.
        scores: Scores, `[n]`.
        labels: Labels, `[n]`.
        first: Whether a row is in the first group by name, `[n]`.
        groups: Names of both groups.
    """

    name: str
    scores: Float
    labels: NDArray[np.bool_]
    first: NDArray[np.bool_]
    groups: tuple[str, str]

    @property
    def auc(self) -> float:
        """AUC of the scores."""
        return float(roc_auc_score(self.labels, self.scores))

    def take(self, rows: NDArray[np.intp]) -> Scored:
        """Select rows."""
        return Scored(
            name=self.name,
            scores=self.scores[rows],
            labels=self.labels[rows],
            first=self.first[rows],
            groups=self.groups,
        )

    def table(self, threshold: float) -> NDArray[np.int64]:
        """Rows by group, label and decision, `[2, 2, 2]`, the first group first."""
        cells = (4 * ~self.first + 2 * self.labels) + (self.scores >= threshold)
        return np.bincount(cells, minlength=8).reshape(2, 2, 2)


def scored(people: People, seed: int) -> tuple[Scored, Scored]:
    """Test and training rows, scored by a ridge logistic regression on the training rows."""
    train, _, test = people.split(SPLIT, np.random.default_rng(seed))
    model = LogisticRegression(solver="newton-cholesky").fit(train.features, train.labels)
    first, second = np.unique(people.groups)
    both = [
        Scored(
            name=people.name,
            scores=model.predict_proba(part.features)[:, 1],
            labels=part.labels,
            first=part.groups == first,
            groups=(str(first), str(second)),
        )
        for part in (test, train)
    ]
    return both[0], both[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One metric at every threshold.

    Attributes:
        differences: |first group − second|, `[thresholds]`; NaN if a group has no row.
        percentiles: 95th percentiles of the permuted |difference|, as in the paper.
        rejected: Whether the library's test rejects.
        refused: Whether the library's test has no p-value: too few rows.
    """

    differences: Float
    percentiles: Float
    rejected: NDArray[np.bool_]
    refused: NDArray[np.bool_]


def sweep(people: Scored, metric: str, *, draws: int, seed: int = 0) -> Sweep:
    """Test equality of a rate at every threshold."""
    rng = np.random.default_rng(seed)
    label = METRICS[metric][0]
    differences, percentiles, rejected, refused = [], [], [], []
    for threshold in _THRESHOLDS:
        table = people.table(float(threshold))
        counted = table[:, int(label), :]
        differences.append(_difference(counted[:, 1], counted.sum(axis=1)))
        percentiles.append(_percentile(table, label=label, draws=draws, rng=rng))
        result = permutation_test(metrics=metric, counts=_counts(table, people.groups))[0]
        rejected.append(result.p_value is not None and result.p_value <= _ALPHA)
        refused.append(result.p_value is None)
    return Sweep(
        differences=np.array(differences),
        percentiles=np.array(percentiles),
        rejected=np.array(rejected),
        refused=np.array(refused),
    )


def _difference(hits: NDArray[np.int64], rows: NDArray[np.int64]) -> float:
    return float(abs(hits[0] / rows[0] - hits[1] / rows[1])) if rows.all() else float("nan")


def _percentile(
    table: NDArray[np.int64], *, label: bool, draws: int, rng: np.random.Generator
) -> float:
    """95th percentile of the difference when all rows are permuted."""
    pool = table.sum(axis=0)
    chosen = rng.multivariate_hypergeometric(pool.ravel(), int(table[0].sum()), size=draws)
    own = chosen.reshape(draws, 2, 2)[:, int(label), :]
    other = pool[int(label)] - own
    hits, rows = np.stack([own[:, 1], other[:, 1]]), np.stack([own.sum(1), other.sum(1)])
    rates = hits / np.maximum(rows, 1)
    return float(np.quantile(np.abs(rates[0] - rates[1]), 1 - _ALPHA))


def _counts(table: NDArray[np.int64], groups: tuple[str, str]) -> TableCounts:
    return TableCounts.from_mapping(
        {
            name: {(y, d): int(table[index, y, d]) for y in (0, 1) for d in (0, 1)}
            for index, name in enumerate(groups)
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """The smallest difference over thresholds that was rejected, by sample size.

    Attributes:
        sizes: Sample sizes, `[k]`.
        smallest: Smallest differences, `[samples, k]`; NaN if nothing was rejected.
    """

    sizes: NDArray[np.int64]
    smallest: Float

    @property
    def median(self) -> Float:
        """Median over samples, `[k]`."""
        median: Float = np.nanmedian(self.smallest, axis=0)
        return median


def detected_by_size(
    people: Scored, metric: str, sizes: Sequence[int], *, samples: int
) -> Detected:
    """Test random samples of each size at every threshold."""
    smallest = np.full((samples, len(sizes)), np.nan)
    for sample in range(samples):
        order = np.random.default_rng([sample, 53]).permutation(len(people.scores))
        for index, size in enumerate(sizes):
            sweep_result = sweep(people.take(order[:size]), metric, draws=100, seed=sample)
            if sweep_result.rejected.any():
                smallest[sample, index] = sweep_result.differences[sweep_result.rejected].min()
    return Detected(sizes=np.array(sizes), smallest=smallest)


def draw_sweeps(sweeps: dict[tuple[str, str], Sweep], out: Path) -> Path:
    """Figure 2: differences and percentiles by threshold, one row per data set."""
    names = list(dict.fromkeys(name for name, _ in sweeps))
    figure = Figure(figsize=(12, 3.6 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), len(METRICS), squeeze=False)
    for row, name in enumerate(names):
        for column, metric in enumerate(METRICS):
            _draw_sweep(grid[row][column], sweeps[name, metric], metric, name)
    figure.suptitle("Difference between men and women by threshold (Figure 2)")
    return _saved(figure, out / "permutation_figure_2.png")


def _draw_sweep(axes: Axes, sweep_result: Sweep, metric: str, name: str) -> None:
    colour, word = _COLOURS[metric], METRICS[metric][1]
    axes.plot(_THRESHOLDS, sweep_result.differences, color=colour, label=f"difference of {word}")
    axes.plot(
        _THRESHOLDS, sweep_result.percentiles, "--", color="gray", label="95th percentile, permuted"
    )
    detected = sweep_result.rejected
    axes.plot(
        _THRESHOLDS[detected],
        sweep_result.differences[detected],
        "o",
        color=colour,
        label="rejected",
    )
    untested = sweep_result.refused
    axes.plot(
        _THRESHOLDS[untested],
        sweep_result.differences[untested],
        "x",
        color="black",
        label="not enough data",
    )
    axes.set(title=f"{name}: {word}", xlabel="threshold τ", ylabel="|difference|")
    axes.legend(fontsize="small")


def draw_detected(detected: dict[tuple[str, str], Detected], out: Path) -> Path:
    """Figure 3: smallest difference detected, by sample size."""
    names = list(dict.fromkeys(name for name, _ in detected))
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names)), names, strict=True):
        for metric, (_, word) in METRICS.items():
            one, colour = detected[name, metric], _COLOURS[metric]
            low, high = np.nanquantile(one.smallest, [0.25, 0.75], axis=0)
            axes.plot(one.sizes, one.median, "o-", color=colour, label=word)
            axes.fill_between(one.sizes, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(title=name, xlabel="people", ylabel="smallest |difference| rejected")
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.suptitle("Smallest difference detected: medians of samples, quartiles (Figure 3)")
    return _saved(figure, out / "permutation_figure_3.png")


def _saved(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
