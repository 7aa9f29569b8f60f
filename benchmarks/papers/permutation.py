"""Permutation tests on the paper's own evaluation: sections 4.1, 4.2 and 5.

`python -m benchmarks.papers.permutation [--data DIR] [--out DIR] [--quick] [--json FILE]`
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, print_wide, report
from benchmarks.papers.audited_people import (
    PERMUTATION_FILES,
    People,
    adult_by_sex,
    compas_by_sex,
)
from benchmarks.papers.options import DATA, OUT, data_folder, out_folder
from benchmarks.papers.permutation_simulations import (
    PRINTED,
    SHUFFLED,
    correlation_rejections,
    draw_p_values,
    rate_p_values,
)
from benchmarks.papers.permutation_thresholds import (
    METRICS,
    Detected,
    Scored,
    Sweep,
    detected_by_size,
    draw_detected,
    draw_sweeps,
    scored,
    sweep,
)

_ALPHA = 0.05
# Table 1, by attribute: shares of the paper's own test and of FairTest's.
_TABLE_1 = {"uncorrelated": (0.0428, 0.7508), "dependent": (0.0501, 0.0099)}
_SECTION_42 = {"un-studentized": 0.1216, PRINTED: 0.0486, "basic bootstrap": 0.1078}
_ROWS = {"Adult": 48_842, "COMPAS": 6_167}
_AUC = {"Adult": 0.9087, "COMPAS": 0.7005}
# The error that the authors' scripts use for either test.
_OWN, _FAIRTEST = "ε/x²", "ε/x"


def measure(
    scale: Scale,
    say: Say,
    data: Path = DATA,
    out: Path = OUT,
) -> list[Claim]:
    """Repeat the simulations, sweep thresholds on real data, and draw the figures."""
    return [*_section_4(scale=scale, say=say, out=out), *_section_5(data, out, scale, say)]


def _section_4(*, scale: Scale, say: Say, out: Path) -> list[Claim]:
    data_sets = scale.pick(full=2_000, quick=30, smoke=2)
    rejections = correlation_rejections(
        simulations=data_sets,
        permutations=scale.pick(full=499, quick=199, smoke=99),
        n=2_000,
        say=say,
    )
    _print_table_1(rejections, data_sets)
    simulations = scale.pick(full=10_000, quick=500, smoke=5)
    p_values = rate_p_values(simulations=simulations, draws=1_000, say=say)
    shares = {test: float((values <= _ALPHA).mean()) for test, values in p_values.items()}
    _print_section_42(shares, simulations)
    print(f"Figure 1: {draw_p_values(p_values, out)}")
    claims = []
    for name, (own, fairtest) in _TABLE_1.items():
        for paper, test, error in ((own, "studentized", _OWN), (fairtest, SHUFFLED, _FAIRTEST)):
            share = rejections[name, error][test]
            claims.append(_near(f"Table 1, {name}, {test}, {error}", share, paper, data_sets))
    claims += [
        _near(f"section 4.2, {test}", shares[test], paper, simulations)
        for test, paper in _SECTION_42.items()
    ]
    own_size = Claim(
        claim="section 4.2: size of evenhand's own test",
        figure=shares["evenhand"],
        unit="rejected at 5%",
        side="at most",
        bar=0.06,
        rounds=simulations,
        details={"not enough data": float(np.isnan(p_values["evenhand"]).mean())},
    )
    return [*claims, own_size]


def _near(case: str, ours: float, paper: float, rounds: int) -> Claim:
    """Distance in standard errors of our simulations and of the paper's 10,000."""
    error = float(np.sqrt(paper * (1 - paper) * (1 / rounds + 1 / 10_000)))
    return Claim(
        claim=f"{case}: distance from the paper",
        figure=abs(ours - paper) / error,
        unit="standard errors",
        side="at most",
        bar=3,
        rounds=rounds,
        details={"ours": ours, "paper": paper},
    )


def _print_table_1(rejections: Mapping[tuple[str, str], Mapping[str, float]], rounds: int) -> None:
    table = Table("attribute", "error", title=f"Table 1: share rejected at 5%, {rounds} data sets")
    tests = list(next(iter(rejections.values())))
    for heading in (*tests, "paper's own", "paper's FairTest"):
        table.add_column(heading, justify="right")
    for (name, error), shares in rejections.items():
        own, fairtest = _TABLE_1[name]
        table.add_row(
            name, error, *(f"{shares[test]:.4f}" for test in tests), f"{own:.4f}", f"{fairtest:.4f}"
        )
    print_wide(table)


def _print_section_42(shares: Mapping[str, float], rounds: int) -> None:
    table = Table("test", title=f"Section 4.2: share rejected at 5%, {rounds:,} data sets")
    table.add_column("ours", justify="right")
    table.add_column("paper", justify="right")
    for test, share in shares.items():
        paper = _SECTION_42.get(test)
        table.add_row(test, f"{share:.4f}", "" if paper is None else f"{paper:.4f}")
    print_wide(table)


def _section_5(data: Path, out: Path, scale: Scale, say: Say) -> list[Claim]:
    sweeps: dict[tuple[str, str], Sweep] = {}
    detected: dict[tuple[str, str], Detected] = {}
    claims = []
    table = Table("data", title="Section 5: classifiers over splits")
    for heading in ("rows", "paper", "test AUC", "deviation", "paper"):
        table.add_column(heading, justify="right")
    for people in (adult_by_sex(data), compas_by_sex(data)):
        say(f"section 5, {people.name}")
        test, train = scored(people, 0)
        aucs = np.array(
            [scored(people, seed)[0].auc for seed in range(scale.pick(full=10, quick=3, smoke=2))]
        )
        name = people.name
        table.add_row(
            *(name, f"{len(people):,}", f"{_ROWS[name]:,}", f"{aucs.mean():.4f}"),
            *(f"{aucs.std(ddof=1):.4f}", f"{_AUC[name]:.4f}"),
        )
        claims += _data_claims(people, aucs)
        # COMPAS has too few test rows for Figure 3, so the paper uses training rows.
        many = test if name == "Adult" else train
        sizes = _sizes(many, scale.pick(full=8, quick=3, smoke=2))
        for metric in METRICS:
            sweeps[name, metric] = sweep(test, metric, draws=1_000)
            detected[name, metric] = detected_by_size(
                many, metric, sizes, samples=scale.pick(full=20, quick=3, smoke=1)
            )
    print_wide(table)
    _print_sweeps(sweeps)
    _print_detected(detected)
    print(f"Figure 2: {draw_sweeps(sweeps, out)}\nFigure 3: {draw_detected(detected, out)}")
    return claims + [_detection_claim(case, detection) for case, detection in detected.items()]


def _sizes(people: Scored, how_many: int) -> list[int]:
    """Sizes of the paper: from about 950 to 4,500."""
    return [int(n) for n in np.linspace(950, min(4_500, len(people.scores)), how_many)]


def _data_claims(people: People, aucs: NDArray[np.float64]) -> list[Claim]:
    mean, paper = float(aucs.mean()), _AUC[people.name]
    return [
        Claim(
            claim=f"{people.name}: rows as in section 5",
            figure=abs(len(people) - _ROWS[people.name]),
            unit="rows off",
            side="at most",
            bar=0,
            rounds=1,
        ),
        Claim(
            claim=f"{people.name}: test AUC as in section 5",
            figure=abs(mean - paper),
            unit="off",
            side="at most",
            bar=0.01,
            rounds=len(aucs),
            details={"ours": mean, "paper": paper, "deviation": float(aucs.std(ddof=1))},
        ),
    ]


def _print_sweeps(sweeps: Mapping[tuple[str, str], Sweep]) -> None:
    table = Table("data", "metric", title="Figure 2: number of thresholds of 51")
    for heading in ("rejected", "above the percentile", "not enough data", "largest difference"):
        table.add_column(heading, justify="right")
    for (name, metric), sweep_result in sweeps.items():
        above = sweep_result.differences > sweep_result.percentiles
        table.add_row(
            *(
                name,
                METRICS[metric][1],
                str(int(sweep_result.rejected.sum())),
                str(int(above.sum())),
            ),
            *(str(int(sweep_result.refused.sum())), f"{np.nanmax(sweep_result.differences):.3f}"),
        )
    print_wide(table)


def _print_detected(detected: Mapping[tuple[str, str], Detected]) -> None:
    table = Table(
        "data", "metric", title="Figure 3: smallest difference rejected, by number of rows"
    )
    most = max(detected.values(), key=lambda one: len(one.sizes))
    for index in range(len(most.sizes)):
        table.add_column(f"size {index + 1}", justify="right")
    for (name, metric), one in detected.items():
        cells = [f"{m:.3f} ({n:,})" for n, m in zip(one.sizes, one.median, strict=True)]
        table.add_row(name, METRICS[metric][1], *cells)
    print_wide(table)


def _detection_claim(case: tuple[str, str], detection: Detected) -> Claim:
    """With n rows the smallest difference should fall as 1/√n."""
    name, metric = case
    fall = float(detection.median[0] / detection.median[-1])
    return Claim(
        claim=f"Figure 3, {name}, {METRICS[metric][1]}: more data detect smaller differences",
        figure=fall,
        unit=f"× smaller at {detection.sizes[-1]:,} than at {detection.sizes[0]:,}",
        side="at least",
        bar=1.2,
        rounds=len(detection.smallest),
        details={"by 1/√n": float(np.sqrt(detection.sizes[-1] / detection.sizes[0]))},
    )


if __name__ == "__main__":
    report(
        "Permutation tests as in their paper",
        partial(measure, data=data_folder(PERMUTATION_FILES), out=out_folder()),
    )
