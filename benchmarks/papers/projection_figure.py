"""Figure 1 of the paper on projection tests: regularisation has little effect on the statistic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import chi2
from sklearn.linear_model import LogisticRegression

from benchmarks.claims import Claim, Say
from benchmarks.papers.audited_people import People
from benchmarks.papers.fair_svm import LinearClassifier, naive_svm
from benchmarks.papers.printed_projection import printed_weight
from offline_audit import projection_test

__all__ = ["Trace", "draw_figure_1", "logistic", "trace_regularisation"]

Float = NDArray[np.float64]

# Up to where machines still predict both classes.
_POWERS = np.logspace(-1, 2, 13)
_ALPHA = 0.05
_STATISTIC, _THRESHOLD, _ACCURACY = "tab:green", "tab:pink", "tab:purple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Equal opportunity by strength of regularisation, on held-out rows.

    Attributes:
        title: Classifier and data.
        powers: Strengths λ, `[k]`; the penalty on errors is 1/λ.
        statistics: Statistics, `[splits, k]`; NaN without a test.
        thresholds: Critical values of the statistic, `[splits, k]`.
        accuracies: Accuracies, `[splits, k]`.
    """

    title: str
    powers: Float
    statistics: Float
    thresholds: Float
    accuracies: Float

    def claims(self) -> list[Claim]:
        """The paper: the statistic decreases slightly, and fairness is rejected at every λ."""
        rejected = (self.statistics >= self.thresholds).mean(axis=0)
        middle = np.nanmedian(self.statistics, axis=0)
        shares = {
            f"λ = {power:.3g}": float(share)
            for power, share in zip(self.powers[::4], rejected[::4], strict=True)
        }
        return [
            Claim(
                claim=f"{self.title}: smallest share of splits rejected over λ (Figure 1)",
                figure=float(rejected.min()),
                unit="of the splits",
                side="at least",
                bar=0.95,
                rounds=len(self.statistics),
                details=shares,
            ),
            Claim(
                claim=f"{self.title}: smallest statistic, relative to λ = {self.powers[0]:g}",
                figure=float(middle.min() / middle[0]),
                unit="×",
                side="at least",
                bar=0.5,
                rounds=len(self.statistics),
            ),
        ]


def trace_regularisation(
    compas: People, drug: People, *, splits: int, say: Say
) -> tuple[Trace, Trace]:
    """(a) logistic regression on COMPAS, (b) a support vector machine on Drug."""
    say("Figure 1, COMPAS")
    first = _trace("Logistic regression on COMPAS", compas, logistic, splits)
    say("Figure 1, Drug")
    return first, _trace("Support vector machine on Drug", drug, _machine, splits)


def logistic(train: People, power: float) -> LinearClassifier:
    """Logistic regression with a ridge of λ/2 on the weights."""
    model = LogisticRegression(C=1 / power, solver="newton-cholesky")
    model.fit(train.features, train.labels)
    return LinearClassifier(weights=model.coef_[0], bias=float(model.intercept_[0]))


def _machine(train: People, power: float) -> LinearClassifier:
    return naive_svm(train, penalty=1 / power)


def _trace(
    title: str, people: People, fit: Callable[[People, float], LinearClassifier], splits: int
) -> Trace:
    figures = np.full((3, splits, len(_POWERS)), np.nan)
    for split in range(splits):
        train, test = people.split((0.7, 0.3), np.random.default_rng(split))
        for index, power in enumerate(_POWERS):
            classifier = fit(train, float(power))
            decisions = classifier.decisions(test.features)
            distances = classifier.distances(test.features)
            result = projection_test(
                groups=test.groups,
                decisions=decisions,
                distances=distances,
                labels=test.labels,
                criterion="equal_opportunity",
                smallest_expected=1,
                smallest_cell=1,
            )
            first, second = (test.labels & (test.groups == g) for g in np.unique(test.groups))
            weight = printed_weight(np.where(decisions, distances, -distances), first, second)
            figures[2, split, index] = (decisions == test.labels).mean()
            if result.statistic is not None and weight is not None:
                figures[0, split, index] = result.statistic
                figures[1, split, index] = weight * chi2.isf(_ALPHA, 1)
    return Trace(
        title=title,
        powers=_POWERS,
        statistics=figures[0],
        thresholds=figures[1],
        accuracies=figures[2],
    )


def draw_figure_1(traces: tuple[Trace, Trace], out: Path) -> Path:
    """Medians over splits with their quartiles: statistic and threshold above, accuracy below."""
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    grid = figure.subplots(2, 2, sharex="col", height_ratios=(2, 1))
    for column, trace in enumerate(traces):
        above, below = grid[0][column], grid[1][column]
        _draw(above, trace.powers, trace.statistics, _STATISTIC, "-", "statistic")
        _draw(above, trace.powers, trace.thresholds, _THRESHOLD, "--", "rejected from here (5%)")
        _draw(below, trace.powers, trace.accuracies, _ACCURACY, "-", "accuracy")
        above.set(title=trace.title, ylabel="N × projection distance")
        above.set_ylim(bottom=0)
        above.legend(loc="upper right" if column else "center right")
        below.set(xscale="log", xlabel="λ, power of regularisation", ylabel="accuracy")
    figure.suptitle("Equal opportunity and regularisation (Figure 1): medians of splits, quartiles")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "projection_figure_1.png"
    figure.savefig(path, dpi=120)
    return path


def _draw(axes: Axes, powers: Float, values: Float, colour: str, style: str, words: str) -> None:
    # A machine with equal decisions for all has no statistic; half of the splits must have one.
    seen = np.isfinite(values).mean(axis=0) >= 0.5
    if not seen.any():
        return
    low, middle, high = np.nanquantile(values[:, seen], [0.25, 0.5, 0.75], axis=0)
    axes.plot(powers[seen], middle, style, color=colour, label=words, linewidth=2)
    axes.fill_between(powers[seen], low, high, color=colour, alpha=0.15, linewidth=0)
