"""Are wrong rows recognised as unlike the training rows, and ordinary rows not? And at what cost?

`python -m benchmarks.input_check [--data DIR]`, on the lending world and on Adult, with numbers as
they are and standardised. The kinds of errors are those of clients: columns in another order,
numbers on another scale, categories encoded otherwise, values out of range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.kernel import time_batches
from benchmarks.kernel_subjects import SMALL, KernelSubject, compiled_kernel, make_subject
from benchmarks.papers.datasets import ADULT_FILE, load_adult
from benchmarks.papers.options import data_folder
from monitor import Feature, OneHotGroup, World
from monitor.scoring.input_check import InputCheck
from monitor.scoring.kernel import Target, load_kernel
from monitor.scoring.scores import REASON_NAMES, Reason

Float = NDArray[np.float32]

_SEED = 300
_WITH, _WITHOUT = "with the check", "without"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Rows to learn from, new rows of the same people, and what the columns are."""

    name: str
    learn: Float
    fresh: Float
    features: Sequence[Feature]
    groups: Sequence[OneHotGroup]

    @property
    def numbers(self) -> list[int]:
        return [i for i, f in enumerate(self.features) if f.kind in ("numeric", "integer")]

    @property
    def categories(self) -> list[int]:
        """Columns of the largest one-hot group."""
        largest = max(self.groups, key=lambda group: len(group.features))
        return [i for i, f in enumerate(self.features) if f.name in largest.features]


def _reversed(_case: _Case, rows: Float) -> Float:
    return rows[:, ::-1]


def _shuffled(_case: _Case, rows: Float) -> Float:
    return rows[:, np.random.default_rng(_SEED).permutation(rows.shape[1])]


def _shifted(_case: _Case, rows: Float) -> Float:
    return np.roll(rows, 1, axis=1)


def _rescaled(case: _Case, rows: Float) -> Float:
    """Numbers on the scale of the raw columns where the classifier takes standardised ones."""
    rng = np.random.default_rng(_SEED)
    for column in case.numbers:
        rows[:, column] = rows[:, column] * rng.uniform(5, 200) + rng.uniform(10, 50)
    return rows


def _standardised(case: _Case, rows: Float) -> Float:
    """Standardised numbers where the classifier takes raw ones, on another sample's scale."""
    own = rows[:, case.numbers]
    spread = own.std(0)
    rows[:, case.numbers] = (own - own.mean(0)) / np.where(spread > 0, spread, 1) * 1.03 + 0.02
    return rows


def _several_categories(case: _Case, rows: Float) -> Float:
    rows[:, case.categories] = 1
    return rows


def _codes_from_two(case: _Case, rows: Float) -> Float:
    """The number of the category, from 2, in the first column of its group."""
    rows[:, case.categories] = 0
    rows[:, case.categories[0]] = np.arange(len(rows)) % len(case.categories) + 2
    return rows


def _out_of_range(case: _Case, rows: Float) -> Float:
    """One number of each row is half a range above the largest."""
    column = np.resize(case.numbers, len(rows))
    ends = np.array([rows.min(0)[column], rows.max(0)[column]])
    rows[np.arange(len(rows)), column] = np.ceil(ends[1] + 0.5 * (ends[1] - ends[0]))
    return rows


_ERRORS: dict[str, Callable[[_Case, Float], Float]] = {
    "columns reversed": _reversed,
    "columns shuffled": _shuffled,
    "columns shifted by one": _shifted,
    "numbers on another scale": _rescaled,
    "numbers standardised": _standardised,
    "several categories at once": _several_categories,
    "category codes in a one-hot group": _codes_from_two,
    "one number out of range": _out_of_range,
}


def measure(scale: Scale, say: Say, data: Path) -> list[Claim]:
    """Compute the share of unlike rows by kind of error, and the cost of the check."""
    torch.set_num_threads(1)
    sizes = scale.pick(full=(1_500, 15_000), quick=(1_500, 15_000), smoke=(600,))
    table = Table("rows", "error", "unlike", "by reason", title="Rows unlike the training rows")
    detected: dict[str, float] = {}
    ordinary: dict[str, float] = {}
    for case in [case for size in sizes for case in _cases(size, data)]:
        say(case.name)
        check = InputCheck.fit(case.learn, case.features, case.groups)
        ordinary[case.name], words = _unlike(check, case.fresh)
        table.add_row(case.name, "none", f"{ordinary[case.name]:.2%}", words)
        for error, wrong in _ERRORS.items():
            share, words = _unlike(check, wrong(case, case.fresh.copy()))
            detected[f"{case.name}, {error}"] = share
            table.add_row(case.name, error, f"{share:.2%}", words)
        table.add_section()
    Console().print(table)
    rounds = len(detected)
    worst = min(detected, key=lambda name: detected[name])
    return [
        Claim(
            claim="wrong rows that are recognised as unlike the training rows",
            figure=detected[worst],
            unit="of rows, at worst",
            side="at least",
            bar=0.95,
            rounds=rounds,
            details={"worst": worst},
        ),
        Claim(
            claim="ordinary rows that are taken for unlike",
            figure=max(ordinary.values()),
            unit="of rows, at worst",
            side="at most",
            bar=0.01,
            rounds=len(ordinary),
            details=dict(ordinary),
        ),
        *_cost_claims(scale, say),
    ]


def _cases(size: int, data: Path) -> list[_Case]:
    world = World()
    cases = [
        _Case(
            name=f"world, {size:,} rows",
            learn=world.people(size, seed=_SEED).features,
            fresh=world.people(10_000, seed=_SEED + 1).features,
            features=world.features,
            groups=world.one_hot_groups,
        )
    ]
    adult = load_adult(data)
    order = np.random.default_rng(_SEED).permutation(len(adult.features))
    rows = adult.features.numpy()[order]
    size = min(size, len(rows) // 2)
    cases.append(
        _Case(
            name=f"Adult, {size:,} rows",
            learn=rows[:size],
            fresh=rows[size:],
            features=adult.kinds,
            groups=adult.one_hot_groups,
        )
    )
    numbers = cases[-1].numbers
    own = rows[:size, numbers]
    scaled, spread = rows.copy(), own.std(0)
    scaled[:, numbers] = (rows[:, numbers] - own.mean(0)) / np.where(spread > 0, spread, 1)
    kinds = [
        feature.model_copy(update={"kind": "numeric"}) if feature.kind == "integer" else feature
        for feature in adult.kinds
    ]
    cases.append(
        replace(
            cases[-1],
            name=f"Adult standardised, {size:,} rows",
            learn=scaled[:size],
            fresh=scaled[size:],
            features=kinds,
        )
    )
    return cases


def _unlike(check: InputCheck, rows: Float) -> tuple[float, str]:
    """Share of unlike rows, and the shares of the reasons in words."""
    reasons = check.reasons(np.ascontiguousarray(rows))
    shares = np.bincount(reasons, minlength=len(Reason)) / len(reasons)
    words = [f"{REASON_NAMES[r]} {shares[r]:.1%}" for r in list(Reason)[1:] if shares[r]]
    return 1 - float(shares[Reason.NONE]), ", ".join(words)


def _cost_claims(scale: Scale, say: Say) -> list[Claim]:
    """Time of the compiled pass with the check, relative to that without."""
    target = Target.here()
    if target is None or scale is Scale.SMOKE:
        return []
    say("compiling")
    own = make_subject(SMALL)
    bare = replace(own, sensitivity=replace(own.sensitivity, inputs=None), maps="unchecked")
    passes = {_WITH: _kernel(own, target), _WITHOUT: _kernel(bare, target)}
    say("timing")
    rounds = scale.pick(full=21, quick=7, smoke=1)
    return [
        Claim(
            claim=f"cost of the check in the compiled pass, batch of {batch}",
            figure=timing.ratio(_WITH, _WITHOUT),
            unit="× without",
            side="at most",
            bar=1.03,
            rounds=rounds,
            details={"µs": round(1e6 * timing.median(_WITH), 1)},
        )
        for batch, timing in time_batches(own, passes, None, rounds).items()
    ]


def _kernel(subject: KernelSubject, target: Target) -> Callable[[torch.Tensor], object]:
    return load_kernel(compiled_kernel(subject, target), target, subject.sensitivity).joint


if __name__ == "__main__":
    report("Rows unlike the training rows", partial(measure, data=data_folder((ADULT_FILE,))))
