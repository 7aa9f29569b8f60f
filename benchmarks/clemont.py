"""Detection of decisions that would flip, by flip probability and by Clemont; and what both cost.

Clemont (PyPI; Gupta et al., KDD 2025) watches single decisions without groups: it raises an alarm
when a past input within ε got another decision. It is documented for inputs in [0, 1], and its
default is the maximum norm. Here it also gets the best ε, scaling and norm of each world, chosen
with knowledge of the true flips. The distance to the nearest past input with another decision is
compared as a score.

`python -m benchmarks.clemont [--only detection | cost | adult] [--data DIR]`. The true flips of
Adult are unknown, so it is used for costs only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import (  # type: ignore[import-untyped, unused-ignore]
    LogisticRegression,
)

from benchmarks.claims import Claim, Say, Scale, report_parts
from benchmarks.clemont_cost import ClemontProcess, Cost, compare_cost
from benchmarks.clemont_subjects import (
    DOCUMENTED,
    Contest,
    Watched,
    contests_of,
    kernel_of,
    watch,
)
from benchmarks.dependence_models import CORRELATION_ONLY
from benchmarks.kernel_subjects import SMALL, compiled_kernel, make_subject
from benchmarks.neighbours import alarm_at, neighbour_distances, tpr_at, unit_range
from benchmarks.papers.datasets import ADULT_FILE, load_adult
from benchmarks.papers.options import data_folder
from benchmarks.peers import PeerUnavailableError, peer_python
from benchmarks.structural_models import HIRING, INSURANCE
from benchmarks.subject import Society
from monitor import World
from monitor.scoring.kernel import Target, load_kernel
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity

# Development used other seeds.
_SEED = 2000
_WORLDS: dict[str, Society] = {
    "world": World(),
    "hiring": HIRING,
    "insurance": INSURANCE,
    # The model in which the flip probability is least accurate.
    "correlation only": CORRELATION_ONLY,
}
# ε of the experiments of Clemont's authors, and the one for costs.
_EPSILONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
_EPSILON = 0.08
# The fastest in the published times on Adult; it needs no retraining of an index.
_BACKEND, _OTHERS = "BruteForce", ("KdTree", "Snn")
_FALSE_ALARMS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Number of worlds, of people to fit on, of past inputs, and of decisions to find flips in."""

    worlds: int
    learn: int
    past: int
    judged: int


_FULL = _Sizes(worlds=4, learn=30_000, past=40_000, judged=10_000)
_QUICK = _Sizes(worlds=1, learn=10_000, past=12_000, judged=3_000)
_SMOKE = _Sizes(worlds=2, learn=1_500, past=1_600, judged=600)


def detection(scale: Scale, say: Say) -> list[Claim]:
    """Compare flip probability, alarms, neighbour distance and margin by the true flips."""
    torch.set_num_threads(1)
    sizes = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    contests: list[Contest] = []
    for number, (name, society) in enumerate(list(_WORLDS.items())[: sizes.worlds]):
        say(name)
        contests += contests_of(_watch(name, society, sizes, _SEED + 10 * number))
    Console().print(_ranking_table(contests))
    Console().print(_alarm_table(contests))
    return [
        Claim(
            claim="AUC of the flip probability above the best of Clemont's alarm (any ε) and the "
            "neighbour distance",
            figure=min(contest.lead for contest in contests),
            unit="at worst",
            side="at least",
            bar=0.05,
            rounds=len(contests),
            details={contest.name: contest.lead for contest in contests},
        )
    ]


def cost(scale: Scale, say: Say) -> list[Claim]:
    """Compare costs on decisions of the lending world."""
    torch.set_num_threads(1)
    say("fitting")
    sizes = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    watched = _watch("world", World(), sizes, _SEED)
    rows = World().people(scale.pick(full=100_000, quick=4_000, smoke=200), seed=_SEED + 3).features
    decisions = np.asarray(watched.subject.classifier(torch.from_numpy(rows)).detach() >= 0)
    sensitivity = watched.subject.sensitivity
    # Compiling takes half a minute; a smoke run times uncompiled code.
    if scale is Scale.SMOKE:
        joint = sensitivity.joint
    else:
        say("compiling")
        joint = kernel_of(sensitivity).joint
    score = _scorer(sensitivity, joint)
    return _cost_claims("world", rows, decisions, torch.from_numpy(rows), score, scale, say)


def adult(scale: Scale, say: Say, data: Path) -> list[Claim]:
    """Compare costs on Adult; evenhand scores a network of its shape, whatever its parameters."""
    torch.set_num_threads(1)
    people = load_adult(data)
    count = scale.pick(full=len(people.features), quick=2_000, smoke=200)
    rows, labels = people.features.numpy()[:count], people.labels.numpy()[:count]
    unit = unit_range(rows, rows)
    decisions = LogisticRegression(max_iter=500).fit(unit, labels).predict(unit) > 0
    subject = make_subject(SMALL)
    target = Target.here()
    assert target is not None
    if scale is Scale.SMOKE:
        joint = subject.sensitivity.joint
    else:
        say("compiling")
        kernel = load_kernel(compiled_kernel(subject, target), target, subject.sensitivity)
        joint = kernel.joint
    # Rows of that network's own table, since a short Adult has fewer columns.
    inputs = subject.rows[torch.arange(count) % len(subject.rows)]
    score = _scorer(subject.sensitivity, joint)
    return _cost_claims("Adult", rows, decisions, inputs, score, scale, say)


def _watch(name: str, society: Society, sizes: _Sizes, seed: int) -> Watched:
    return watch(name, society, learn=sizes.learn, past=sizes.past, judged=sizes.judged, seed=seed)


def _ranking_table(contests: list[Contest]) -> Table:
    table = Table("world: attribute", "score", "AUC", "TPR", title="Detection of true flips")
    table.caption = f"TPR at {_FALSE_ALARMS:.0%} false alarms, or at the alarm's own"
    for contest in contests:
        best = contest.best_distance
        scores = {
            "flip probability": contest.flip_probability,
            f"neighbour distance, {best}, the best": -contest.distances[best],
            f"neighbour distance, {DOCUMENTED}, documented": -contest.distances[DOCUMENTED],
            "margin": -contest.margin,
        }
        for name, score in scores.items():
            rate = tpr_at(_FALSE_ALARMS, score, contest.flips)
            table.add_row(contest.name, name, f"{contest.auc(score):.3f}", f"{rate:.3f}")
        alarm = contest.best_alarm
        own = f"{alarm.true_positive_rate:.3f} at {alarm.false_positive_rate:.1%}"
        table.add_row(
            contest.name, f"Clemont's alarm, ε = {alarm.epsilon:.2g}", f"{alarm.auc:.3f}", own
        )
        table.add_section()
    return table


def _alarm_table(contests: list[Contest]) -> Table:
    title = "Clemont's alarms, inputs in [0, 1], maximum norm"
    headings = ("alarms", "false alarm rate", "TPR", "TPR of the flip probability")
    table = Table("world: attribute", "ε", *headings, title=title)
    for contest in contests:
        for epsilon in _EPSILONS:
            alarm = alarm_at(epsilon, contest.distances[DOCUMENTED], contest.flips)
            rate = alarm.false_positive_rate
            ours = tpr_at(rate, contest.flip_probability, contest.flips)
            rates = (alarm.share, rate, alarm.true_positive_rate, ours)
            table.add_row(contest.name, f"{epsilon:g}", *(f"{value:.1%}" for value in rates))
        table.add_section()
    return table


def _scorer(
    sensitivity: Sensitivity, joint: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
) -> Callable[[torch.Tensor], Scores]:
    """From a row `[1, d]` to all its scores."""
    return lambda row: sensitivity.unpacked(*joint(row))


def _cost_claims(
    name: str,
    rows: NDArray[np.float32],
    decisions: NDArray[np.bool_],
    inputs: torch.Tensor,
    score: Callable[[torch.Tensor], Scores],
    scale: Scale,
    say: Say,
) -> list[Claim]:
    """Time Clemont on the rows and evenhand on as many inputs; no claims without Clemont."""
    try:
        python = peer_python("clemont", install=scale is not Scale.SMOKE)
    except PeerUnavailableError as error:
        print(f"without Clemont: {error}")
        score(inputs[:1])
        return []
    unit = unit_range(rows, rows)
    size = scale.pick(full=1_000, quick=500, smoke=100)
    shorter = scale.pick(full=5_000, quick=1_000, smoke=200)
    costs: dict[str, tuple[Cost, Cost]] = {}
    for backend in (*_OTHERS, _BACKEND):
        say(f"{name}: {backend}")
        count = len(rows) if backend == _BACKEND else shorter
        with ClemontProcess(python, backend, _EPSILON, unit[:count], decisions[:count]) as clemont:
            # The first call is slower.
            score(inputs[:1])
            costs[backend] = compare_cost(clemont, score, inputs[:count], size=size)
    Console().print(_cost_table(name, costs))
    theirs, ours = costs[_BACKEND]
    distances = neighbour_distances(unit[: theirs.decisions], decisions[: theirs.decisions])
    # Clemont computes in single precision, in which some distances equal ε.
    near = distances.astype(np.float32) < np.float32(_EPSILON)
    differ = float(np.mean(theirs.alarms != near))
    where = f"{name}, {theirs.decisions} decisions"
    rounds = len(ours.slices)
    return [
        Claim(
            claim=f"CPU time per decision of evenhand relative to Clemont; {where}",
            figure=ours.microseconds / theirs.microseconds,
            unit="× Clemont",
            side="at most",
            bar=1,
            rounds=rounds,
            details={
                "evenhand µs": ours.microseconds,
                "Clemont µs": theirs.microseconds,
                "Clemont µs, last tenth": theirs.last_microseconds,
            },
        ),
        Claim(
            claim=f"growth of evenhand's memory; {where}",
            figure=ours.growth,
            unit="MiB",
            side="at most",
            bar=10,
            rounds=rounds,
            details={"Clemont MiB": theirs.growth},
        ),
        Claim(
            claim=f"growth of Clemont's memory in the second half (1 if linear); {where}",
            figure=theirs.late_growth,
            unit="× the first half",
            side="at least",
            bar=0.5,
            rounds=rounds,
        ),
        Claim(
            claim=f"decisions on which Clemont's alarm differs from its rule; {where}",
            figure=differ,
            unit="of all",
            side="at most",
            bar=0.001,
            rounds=rounds,
            details={"alarms": int(theirs.alarms.sum())},
        ),
    ]


def _cost_table(name: str, costs: dict[str, tuple[Cost, Cost]]) -> Table:
    headings = ("decisions", "µs", "µs, last tenth", "growth, MiB")
    table = Table("monitor", *headings, title=f"CPU time per decision and memory, {name}")
    for backend, (theirs, ours) in costs.items():
        for monitor, cost in ((f"Clemont, {backend}", theirs), ("evenhand, same run", ours)):
            cells = (f"{cost.microseconds:.0f}", f"{cost.last_microseconds:.0f}")
            table.add_row(monitor, str(cost.decisions), *cells, f"{cost.growth:.1f}")
    return table


_PARTS = {"detection": detection, "cost": cost}

if __name__ == "__main__":
    report_parts(
        "Single decisions: flip probability and Clemont",
        _PARTS | {"adult": partial(adult, data=data_folder((ADULT_FILE,)))},
    )
