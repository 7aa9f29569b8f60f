"""Prediction sensitivity on the paper's own evaluation: sections 5 and 6, Table 2.

A row is outside the match set if the classifier F disagrees with F̂ on it. F̂ is the same network,
trained on random genders (section 5) or on data in which every row is repeated with the other value
of the protected attribute (section 6). Every score is evaluated by its AUC for rows outside the
match set. The share of decisions that change with F's seed alone is the noise floor.

`python -m benchmarks.papers.prediction_sensitivity [--data DIR] [--quick] [--json FILE]`
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.papers.datasets import (
    FILES,
    PAPER_SHAPES,
    Data,
    load_adult,
    load_compas,
    shape,
)
from benchmarks.papers.options import DATA, data_folder
from benchmarks.papers.prediction_sensitivity_trials import (
    ACCURACY,
    EPOCHS,
    PAPERS_PS,
    PAPERS_STATUS_ACCURACY,
    PS,
    STATUS_ACCURACY,
    SYNTHETIC,
    TEST_SETS,
    Cell,
    Figures,
    real_trial,
    synthetic_trial,
)

_TRIALS = 10
_QUICK_ROWS, _SMOKE_ROWS = 800, 200

# Table 2 by case and epochs: on the original test set, on the augmented test set.
_PAPER_ACCURACY = {
    ("Adult sex", 10): (0.840, 0.843),
    ("Adult sex", 40): (0.844, 0.851),
    ("Adult race", 10): (0.834, 0.841),
    ("Adult race", 40): (0.846, 0.840),
    ("COMPAS sex", 10): (0.677, 0.668),
    ("COMPAS sex", 40): (0.667, 0.660),
    ("COMPAS race", 10): (0.679, 0.669),
    ("COMPAS race", 40): (0.666, 0.659),
}
_PAPER_AUC = {
    ("Adult sex", 10): (0.574, 0.593),
    ("Adult sex", 40): (0.698, 0.699),
    ("Adult race", 10): (0.575, 0.604),
    ("Adult race", 40): (0.667, 0.663),
    ("COMPAS sex", 10): (0.777, 0.794),
    ("COMPAS sex", 40): (0.764, 0.775),
    ("COMPAS race", 10): (0.792, 0.780),
    ("COMPAS race", 40): (0.748, 0.751),
}
_AUC_OF = {
    PS: "AUC of prediction sensitivity",
    PAPERS_PS: "AUC of prediction sensitivity by a status model like the paper's",
}
_STATUS_OF = {PS: STATUS_ACCURACY, PAPERS_PS: PAPERS_STATUS_ACCURACY}
_PAPER = {ACCURACY: _PAPER_ACCURACY, PS: _PAPER_AUC, PAPERS_PS: _PAPER_AUC}

# By cell, the figures of every trial.
Measured = Mapping[Cell, Sequence[Mapping[str, float]]]


def measure(scale: Scale, say: Say, data: Path = DATA) -> list[Claim]:
    """Repeat the paper's trials, print every score next to the paper's, and claim agreement."""
    torch.set_num_threads(1)
    trials = scale.pick(full=_TRIALS, quick=2, smoke=1)
    sets = [load_adult(data), load_compas(data)]
    measured: dict[Cell, list[Mapping[str, float]]] = defaultdict(list)
    for trial in range(trials):
        for name, run in _runs(sets, trial, scale=scale):
            say(f"{name}, trial {trial + 1} of {trials}")
            for cell, figures in run:
                measured[cell].append(figures)
    _print_tables(measured)
    return [
        *(_shape_claim(data_set) for data_set in sets),
        *_agreement(measured, ACCURACY, bar=0.02),
        _status_claim(measured),
        *_agreement(measured, PS, bar=0.05),
        *_agreement(measured, PAPERS_PS, bar=0.05),
        _synthetic_claim(measured),
    ]


def _runs(sets: Sequence[Data], trial: int, *, scale: Scale) -> Iterator[tuple[str, Figures]]:
    """Experiments on synthetic and on real data, with their names."""
    yield (
        SYNTHETIC,
        synthetic_trial(trial, scale.pick(full=10_000, quick=_QUICK_ROWS, smoke=_SMOKE_ROWS)),
    )
    for data in sets:
        rows = scale.pick(full=len(data.features), quick=_QUICK_ROWS, smoke=_SMOKE_ROWS)
        yield data.name, real_trial(data, trial, rows)


def _print_tables(measured: Measured) -> None:
    """Print one table per number of epochs and test set: mean ± deviation by case."""
    cases = list(dict.fromkeys(cell.case for cell in measured))
    for epochs, (column, test_set) in product(EPOCHS, enumerate(TEST_SETS)):
        title = f"{epochs} epochs, {test_set} test set, {_trials(measured)} trials"
        heads = (case.replace(" ", "\n") for case in cases)
        table = Table("", *heads, title=title, box=box.SIMPLE, pad_edge=False)
        cells = [Cell(case, epochs, test_set) for case in cases]
        for name in measured[cells[0]][0]:
            if name == PS:
                table.add_section()
                table.add_row("[bold]AUC[/bold]")
            table.add_row(name, *(_mean_text(_values(measured, cell, name)) for cell in cells))
            if name in (ACCURACY, PS):
                pairs = [_PAPER[name].get((case, epochs)) for case in cases]
                table.add_row(
                    "  the paper's", *(_short(pair[column]) if pair else "" for pair in pairs)
                )
        Console().print(table)


def _trials(measured: Measured) -> int:
    return len(next(iter(measured.values())))


def _values(measured: Measured, cell: Cell, name: str) -> NDArray[np.float64]:
    return np.array([figures[name] for figures in measured[cell]])


def _mean_text(values: NDArray[np.float64]) -> str:
    mean = float(values.mean())
    # One trial, as in a smoke run, has no deviation.
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return f"{mean:.0f}±{deviation:.0f}" if mean > 1 else f"{_short(mean)}±{_short(deviation)}"


def _short(share: float) -> str:
    """Four characters: .123 or 1.00."""
    return f"{share:.3f}".removeprefix("0")[:4]


def _shape_claim(data: Data) -> Claim:
    ours, paper = shape(data), PAPER_SHAPES[data.name]
    return Claim(
        claim=f"{data.name}: rows to train and test on and columns as in Table 1",
        figure=sum(abs(one - other) for one, other in zip(ours, paper, strict=True)),
        unit="rows or columns off",
        side="at most",
        bar=0,
        rounds=1,
        details={"train × test × columns": ours},
    )


def _agreement(measured: Measured, name: str, *, bar: float) -> list[Claim]:
    """One claim per case: the largest distance from Table 2 over epochs and test sets."""
    return [
        _agreement_claim(measured, name, case, bar)
        for case in dict.fromkeys(case for case, _ in _PAPER[name])
    ]


def _agreement_claim(measured: Measured, name: str, case: str, bar: float) -> Claim:
    details, distances = {}, []
    for epochs, (column, test_set) in product(EPOCHS, enumerate(TEST_SETS)):
        mean = float(_values(measured, Cell(case, epochs, test_set), name).mean())
        paper = _PAPER[name][case, epochs][column]
        distances.append(abs(mean - paper))
        details[f"{epochs} epochs {test_set}"] = f"{_short(mean)} (paper {_short(paper)})"
    if name in _STATUS_OF:
        # Agreement means nothing if A does not predict the group, so A's accuracy is reported too.
        cell = Cell(case, max(EPOCHS), "original")
        details["accuracy of A"] = _short(float(_values(measured, cell, _STATUS_OF[name]).mean()))
    return Claim(
        claim=f"{case}: {_AUC_OF.get(name, name)} as in Table 2",
        figure=max(distances),
        unit="off in the worst cell",
        side="at most",
        bar=bar,
        rounds=_trials(measured),
        details=details,
    )


def _status_claim(measured: Measured) -> Claim:
    """The group is a column of x, so a status model that misses it would invalidate every AUC."""
    accuracies = {
        cell.case: float(_values(measured, cell, STATUS_ACCURACY).mean())
        for cell in measured
        if cell.test_set == "original"
    }
    return Claim(
        claim="accuracy of the status model where the group is a column of x",
        figure=min(accuracies.values()),
        unit="accuracy in the worst case",
        side="at least",
        bar=0.95,
        rounds=_trials(measured),
        details=accuracies,
    )


def _synthetic_claim(measured: Measured) -> Claim:
    """The paper only plots its synthetic AUC and says that it is above those on real data."""
    values = _values(measured, Cell(SYNTHETIC, max(EPOCHS), "original"), PS)
    return Claim(
        claim="synthetic: AUC of prediction sensitivity above the paper's best on real data",
        figure=float(values.mean()),
        unit="AUC",
        side="at least",
        bar=max(max(pair) for pair in _PAPER_AUC.values()),
        rounds=_trials(measured),
        details={"lowest": float(values.min()), "highest": float(values.max())},
    )


if __name__ == "__main__":
    report("Prediction sensitivity as in its paper", partial(measure, data=data_folder(FILES)))
