"""Designs of `benchmarks.calibration` for the permutation tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offline_audit import GroupRows
from tests.calibration.array_designs import (
    Sample,
    array_design,
    auc_rivals,
    correlation_design,
    mean_rivals,
    unit_rivals,
)
from tests.calibration.designs import Design
from tests.calibration.rate_designs import Group, rate_design

__all__ = ["designs"]

Float = NDArray[np.float64]


def designs() -> list[Design]:
    """All designs, those of tables first."""
    return [*_rates(), *_means(), *_aucs(), *_others()]


def _same(rows: int, rate: float) -> Group:
    """A group in which every row is selected with the same probability."""
    return Group(rows=rows, base=0.5, tpr=rate, fpr=rate)


def _selection(name: str, sizes: tuple[int, int], rate: float, up: float, down: float) -> Design:
    fair = (_same(sizes[0], rate), _same(sizes[1], rate))
    planted = {
        "more": (_same(sizes[0], up), fair[1]),
        "less": (_same(sizes[0], down), fair[1]),
    }
    return rate_design(name, "selection_rate", fair, planted)


def _rates() -> list[Design]:
    a, b = (Group(rows=200, base=base, tpr=0.9, fpr=0.1) for base in (0.8, 0.2))
    worse = Group(rows=200, base=0.2, tpr=0.7, fpr=0.1)
    large = [Group(rows=2_000, base=base, tpr=0.9, fpr=0.1) for base in (0.8, 0.2)]
    # Equal PPV of .75 with unequal base rates: fpr = tpr base / (1 − base) / 3.
    ppv = [
        Group(rows=rows, base=base, tpr=0.6, fpr=0.6 * base / (1 - base) / 3)
        for rows, base in ((150, 0.2), (1_000, 0.5))
    ]
    most = Group(rows=3_800, base=0.5, tpr=0.8, fpr=0.2)
    return [
        rate_design(
            "80% and 20% positives, 200 against 200", "fnr", (b, a), {"more": (worse, a)},
            known_bad=True,
        ),
        rate_design(
            "80% and 20% positives, 2,000 against 2,000",
            "fnr",
            (large[1], large[0]),
            {"more": (Group(rows=2_000, base=0.2, tpr=0.855, fpr=0.1), large[0])},
        ),
        _selection("30 against 30, half", (30, 30), 0.5, 0.82, 0.18),
        _selection("200 against 200, 10%", (200, 200), 0.1, 0.19, 0.03),
        _selection("5% minority of 2,000, 30%", (100, 1_900), 0.3, 0.43, 0.17),
        _selection("5% minority of 20,000, 30%", (1_000, 19_000), 0.3, 0.342, 0.26),
        _selection("2% minority of 10⁵, 2%", (2_000, 98_000), 0.02, 0.029, 0.0115),
        _selection("rare, 1,000 against 1,000, 2%", (1_000, 1_000), 0.02, 0.04, 0.006),
        _selection("10⁵ against 10⁵, 20%", (100_000, 100_000), 0.2, 0.205, 0.195),
        rate_design(
            "unequal base rates, 150 against 1,000",
            "ppv",
            (ppv[0], ppv[1]),
            {"less": (Group(rows=150, base=0.2, tpr=0.6, fpr=0.12), ppv[1])},
        ),
        rate_design(
            "unequal base rates, 5% minority",
            "accuracy",
            (Group(rows=200, base=0.1, tpr=0.8, fpr=0.2), most),
            {"less": (Group(rows=200, base=0.1, tpr=0.7, fpr=0.3), most)},
        ),
    ]  # fmt: skip


def _beta(rows: tuple[int, int], shapes: tuple[tuple[float, float], tuple[float, float]]):
    """Scores of two groups by beta distributions; the shift moves the first one."""
    group = np.arange(sum(rows)) < rows[0]

    def draw(rng: np.random.Generator, shift: float) -> Sample:
        scores = np.concatenate([rng.beta(*s, n) for s, n in zip(shapes, rows, strict=True)])
        # Towards 1 or 0, so that scores stay between.
        scores = np.where(group, scores + shift, scores)
        return Sample(group=group, columns={"scores": scores, "score_limits": None})

    return draw


def _heavy(rows: tuple[int, int], kind: str):
    """Heavy-tailed scores of one shape; the shift moves the first group, so it is the effect."""
    group = np.arange(sum(rows)) < rows[0]

    def draw(rng: np.random.Generator, shift: float) -> Sample:
        n = sum(rows)
        if kind == "t(3)":
            scores = rng.standard_t(3, n)
        elif kind == "lognormal(1.5)":
            scores = rng.lognormal(0, 1.5, n)
        else:
            scores = rng.normal(size=n) + 20 * (rng.random(n) < 0.01)
        columns = {"scores": scores + shift * group, "score_limits": None}
        return Sample(group=group, columns=columns)

    return draw


def _gap(rng: np.random.Generator, shift: float) -> Sample:
    """Calibrated scores, more informative in one group."""
    rows = (300, 1_200)
    group = np.arange(sum(rows)) < rows[0]
    scores = np.concatenate([rng.beta(0.6, 2.4, rows[0]), rng.beta(6, 24, rows[1])])
    labels = rng.random(sum(rows)) < np.clip(scores + shift * group, 0, 1)
    return Sample(group=group, columns={"scores": scores, "labels": labels.astype(np.int64)})


def _means() -> list[Design]:
    return [
        array_design(
            "skewed, same, 100 against 900", "mean_score", 100,
            _beta((100, 900), ((0.5, 4.5), (0.5, 4.5))), mean_rivals,
            planted={"more": 0.04, "less": -0.03},
        ),
        array_design(
            "skewed wide minority of 50 against narrow 950", "mean_score", 50,
            _beta((50, 950), ((0.5, 4.5), (5, 45))), mean_rivals,
            planted={"more": 0.055, "less": -0.045}, known_bad=True,
        ),
        array_design(
            "skewed, 30 against 30, unequal spreads", "mean_score", 30,
            _beta((30, 30), ((0.5, 4.5), (2, 18))), mean_rivals, planted={"more": 0.08},
        ),
        *(
            array_design(
                f"{kind}, {rows[0]} against {rows[1]}", "mean_score", min(rows),
                _heavy(rows, kind), mean_rivals,
            )
            for kind in ("t(3)", "lognormal(1.5)", "1% outliers")
            for rows in ((50, 500), (200, 200))
        ),
        array_design(
            "unequal spreads, 300 against 1,200", "calibration_gap", 300, _gap, mean_rivals,
            planted={"more": 0.07},
        ),
    ]  # fmt: skip


def _binormal(
    rows: tuple[tuple[int, int], tuple[int, int]],
    spreads: tuple[tuple[float, float], tuple[float, float]],
    auc: float,
    *,
    decimals: int | None = None,
):
    """Normal scores of positives and negatives; the shift changes the first group's AUC."""

    def draw(rng: np.random.Generator, shift: float) -> Sample:
        scores, labels = [], []
        for (p, n), (wide, narrow), target in zip(rows, spreads, (auc + shift, auc), strict=True):
            mean = stats.norm.ppf(target) * np.hypot(wide, narrow)
            scores += [rng.normal(mean, wide, p), rng.normal(0, narrow, n)]
            labels += [np.ones(p, dtype=np.int64), np.zeros(n, dtype=np.int64)]
        all_scores = np.concatenate(scores)
        if decimals is not None:
            all_scores = np.round(all_scores, decimals)
        group = np.arange(len(all_scores)) < sum(rows[0])
        columns = {"scores": all_scores, "labels": np.concatenate(labels), "score_limits": None}
        return Sample(group=group, columns=columns)

    return draw


def _aucs() -> list[Design]:
    even = ((1.0, 1.0), (1.0, 1.0))
    return [
        array_design(
            "80% and 20% positives", "auc", 20,
            _binormal(((100, 400), (400, 100)), even, 0.8), auc_rivals,
            planted={"less": -0.08}, known_bad=True,
        ),
        array_design(
            "unequal spreads, 5 expected on the wrong side", "auc", 5,
            _binormal(((50, 80), (100, 100)), ((3.0, 1.0), (1.0, 1.0)), 0.9), auc_rivals,
            planted={"less": -0.14},
        ),
        array_design(
            "ties, minority of 100 in 600", "auc", 10,
            _binormal(((50, 50), (250, 250)), ((1.0, 1.0), (1.5, 1.0)), 0.8, decimals=0),
            auc_rivals, planted={"less": -0.15},
        ),
    ]  # fmt: skip


def _people(rng: np.random.Generator, shift: float) -> Sample:
    """People with one to nine rows, which mostly have the same decision."""
    people, minority = 600, 90
    times = rng.integers(1, 10, people)
    chance = rng.beta(0.6, 1.4, people)
    units = np.repeat(np.arange(people), times)
    group = units < minority
    decisions = rng.random(len(units)) < np.clip(chance[units] + shift * group, 0, 1)
    columns = {"decisions": decisions.astype(np.int64), "units": units}
    return Sample(group=group, columns=columns)


def _copies(rng: np.random.Generator, shift: float) -> Sample:
    """Duplicated rows: one to five per person, always with the same decision."""
    people, minority = 400, 120
    times = rng.integers(1, 6, people)
    decisions = rng.random(people) < 0.2 + shift * (np.arange(people) < minority)
    units = np.repeat(np.arange(people), times)
    columns = {"decisions": decisions[units].astype(np.int64), "units": units}
    return Sample(group=units < minority, columns=columns)


def _unequal_spread(rows: int):
    def draw(rng: np.random.Generator, shift: float) -> tuple[Float, Float]:
        x = rng.standard_normal(rows)
        return x, rng.standard_normal(rows) * np.sqrt(0.2 + x**2) + shift * x

    return draw


def brier(rows: GroupRows) -> float:
    """The Brier score."""
    assert rows.labels is not None
    assert rows.scores is not None
    return float(np.mean((rows.labels - rows.scores) ** 2))


def _brier_sample(rng: np.random.Generator, shift: float) -> Sample:
    """Groups with the same Brier score of .16 but different scores."""
    rows = (150, 450)
    group = np.arange(sum(rows)) < rows[0]
    scores = np.where(group, np.where(rng.random(sum(rows)) < 0.5, 0.2, 0.8), 0.2)
    # Towards 0.5, so that scores are less informative.
    chance = scores + shift * group * np.sign(0.5 - scores)
    labels = (rng.random(sum(rows)) < chance).astype(np.int64)
    return Sample(group=group, columns={"scores": scores, "labels": labels})


def _brier_rivals(sample: Sample, rng: np.random.Generator) -> dict[str, float]:
    errors = (sample.columns["labels"] - sample.columns["scores"]) ** 2
    return mean_rivals(Sample(group=sample.group, columns={"scores": errors}), rng)


def _others() -> list[Design]:
    return [
        array_design(
            "people who come back, 15% minority", "selection_rate", 20, _people, unit_rivals,
            planted={"more": 0.12, "less": -0.12},
        ),
        array_design(
            "copied rows", "selection_rate", 15, _copies, unit_rivals, planted={"more": 0.13},
        ),
        correlation_design("unequal spreads, 100 rows", 100, _unequal_spread(100), {"more": 0.5}),
        correlation_design("unequal spreads, 30 rows", 30, _unequal_spread(30), {"more": 0.9}),
        array_design(
            "bootstrap, 150 against 450", brier, 150, _brier_sample, _brier_rivals,
            planted={"more": 0.12},
        ),
    ]  # fmt: skip
