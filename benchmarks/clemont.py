"""Decisions that would flip for another group: the flip probability and Clemont, which needs no groups.

Clemont (PyPI; Gupta et al., KDD 2025) watches single decisions: it raises an alarm when a past input
within ε got another decision. Clemont gets the best ε, scaling and norm in each world, chosen with
knowledge of the true flips; the distance to the nearest past input with another decision is compared
as a score as well. Documented for inputs in [0, 1] and the maximum norm.

`python -m benchmarks.clemont [--only detection | cost | adult] [--data DIR]`. True flips are not known
in Adult, which is used for costs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import (  # type: ignore[import-untyped, unused-ignore]
    LogisticRegression,
)
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped, unused-ignore]

from benchmarks.claims import Claim, Say, Scale, report_parts
from benchmarks.clemont_cost import ClemontProcess, Cost, compare_cost
from benchmarks.clemont_subjects import Watched, kernel_of, watch
from benchmarks.dependence_models import CORRELATION_ONLY
from benchmarks.kernel_subjects import SMALL, compiled_kernel, make_subject
from benchmarks.neighbours import (
    Alarm,
    Norm,
    alarm_at,
    best_alarm,
    neighbour_distances,
    standardised,
    tpr_at,
    unit_range,
)
from benchmarks.papers.datasets import ADULT_FILE, load_adult
from benchmarks.papers.options import data_folder
from benchmarks.peers import PeerUnavailableError, peer_python
from benchmarks.structural_models import HIRING, INSURANCE
from benchmarks.subject import Society
from monitor import World
from monitor.scoring.kernel import Target, load_kernel
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity

Floats = NDArray[np.float64]

# Development used other seeds.
_SEED = 2000
_WORLDS: dict[str, Society] = {
    "world": World(),
    "hiring": HIRING,
    "insurance": INSURANCE,
    # The model in which the flip probability is least accurate.
    "correlation only": CORRELATION_ONLY,
}
_SCALINGS = {"[0, 1]": unit_range, "standardised": standardised}
_NORMS: tuple[Norm, ...] = ("infinity", "l2")
_DOCUMENTED = "[0, 1], infinity"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """Scores of one classifier's decisions for one protected attribute.

    Attributes:
        name: World and attribute.
        flips: True flips, `[n]`.
        flip_probability: Of evenhand, `[n]`.
        margin: Distance of the logit from the threshold, `[n]`.
        distances: Distance to the nearest past input with another decision, by scaling and norm.
    """

    name: str
    flips: NDArray[np.bool_]
    flip_probability: Floats
    margin: Floats
    distances: Mapping[str, Floats]

    def auc(self, score: Floats) -> float:
        """AUC of a score that is higher for likelier flips."""
        return float(roc_auc_score(self.flips, score))

    @property
    def best_distance(self) -> str:
        """Scaling and norm with the highest AUC of the neighbour distance."""
        return max(self.distances, key=lambda way: self.auc(-self.distances[way]))

    @property
    def best_alarm(self) -> Alarm:
        """Alarm with the highest AUC over scalings, norms and ε."""
        ways = self.distances.values()
        return max((best_alarm(d, self.flips) for d in ways), key=lambda alarm: alarm.auc)

    @property
    def lead(self) -> float:
        """AUC of the flip probability minus the best of Clemont's alarm and neighbour distance."""
        distance = self.auc(-self.distances[self.best_distance])
        return self.auc(self.flip_probability) - max(distance, self.best_alarm.auc)


def detection(scale: Scale, say: Say) -> list[Claim]:
    """Compare flip probability, alarms, neighbour distance and margin by the true flips."""
    torch.set_num_threads(1)
    sizes = scale.pick(full=_FULL, quick=_QUICK, smoke=_SMOKE)
    contests: list[_Contest] = []
    for number, (name, society) in enumerate(list(_WORLDS.items())[: sizes.worlds]):
        say(name)
        contests += _contests(_watch(name, society, sizes, _SEED + 10 * number))
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
    return _cost_claims("world", rows, decisions, score, scale, say)


def adult(scale: Scale, say: Say) -> list[Claim]:
    """Compare costs on Adult; evenhand scores a network of its shape, whatever its parameters."""
    torch.set_num_threads(1)
    data = load_adult(_DATA)
    rows = data.features.numpy()[: scale.pick(full=len(data.features), quick=2_000, smoke=200)]
    unit = unit_range(rows, rows)
    labels = data.labels.numpy()[: len(rows)]
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
    return _cost_claims(
        "Adult", rows, decisions, _scorer(subject.sensitivity, joint), scale, say
    )


def _watch(name: str, society: Society, sizes: _Sizes, seed: int) -> Watched:
    return watch(
        name, society, learn=sizes.learn, past=sizes.past, judged=sizes.judged, seed=seed
    )


def _contests(watched: Watched) -> list[_Contest]:
    """One per protected attribute."""
    past = watched.rows[: watched.start]
    distances = {}
    for (scaling, scaled), norm in product(_SCALINGS.items(), _NORMS):
        rows = scaled(watched.rows, past)
        distances[f"{scaling}, {norm}"] = neighbour_distances(
            rows, watched.decisions, start=watched.start, norm=norm
        )
    scores = watched.subject.scores(watched.fresh.features)
    return [
        _Contest(
            name=f"{watched.name}: {attribute}",
            flips=watched.subject.true_flips(watched.fresh, attribute),
            flip_probability=own.flip_probability.double().numpy(),
            margin=scores.margin.double().numpy(),
            distances=distances,
        )
        for attribute, own in scores.attributes.items()
    ]


def _ranking_table(contests: list[_Contest]) -> Table:
    table = Table("world: attribute", "score", "AUC", "TPR", title="Detection of true flips")
    table.caption = f"TPR at {_FALSE_ALARMS:.0%} false alarms, or at the alarm's own"
    for contest in contests:
        best = contest.best_distance
        scores = {
            "flip probability": contest.flip_probability,
            f"neighbour distance, {best}, the best": -contest.distances[best],
            f"neighbour distance, {_DOCUMENTED}, documented": -contest.distances[_DOCUMENTED],
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


def _alarm_table(contests: list[_Contest]) -> Table:
    title = "Clemont's alarms, inputs in [0, 1], maximum norm"
    headings = ("alarms", "false alarm rate", "TPR", "TPR of the flip probability")
    table = Table("world: attribute", "ε", *headings, title=title)
    for contest in contests:
        for epsilon in _EPSILONS:
            alarm = alarm_at(epsilon, contest.distances[_DOCUMENTED], contest.flips)
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
    score: Callable[[torch.Tensor], Scores],
    scale: Scale,
    say: Say,
) -> list[Claim]:
    """Time both on a stream, print the costs; no claims without Clemont."""
    try:
        python = peer_python("clemont", install=scale is not Scale.SMOKE)
    except PeerUnavailableError as error:
        print(f"without Clemont: {error}")
        score(torch.from_numpy(rows[:1]))
        return []
    unit = unit_range(rows, rows)
    size = scale.pick(full=1_000, quick=500, smoke=100)
    shorter = scale.pick(full=5_000, quick=1_000, smoke=200)
    costs: dict[str, tuple[Cost, Cost]] = {}
    for backend in (*_OTHERS, _BACKEND):
        say(f"{name}: {backend}")
        count = len(rows) if backend == _BACKEND else shorter
        with ClemontProcess(python, backend, _EPSILON, unit[:count], decisions[:count]) as clemont:
            inputs = torch.from_numpy(rows[:count])
            # The first call is slower.
            score(inputs[:1])
            costs[backend] = compare_cost(clemont, score, inputs, size=size)
    Console().print(_cost_table(name, costs))
    theirs, ours = costs[_BACKEND]
    distances = neighbour_distances(unit[: theirs.decisions], decisions[: theirs.decisions])
    differ = float(np.mean(theirs.alarms != (distances < _EPSILON)))
    on = f"{name}, {theirs.decisions} decisions"
    claims = [
        ("CPU time per decision, evenhand", ours.microseconds / theirs.microseconds, "× Clemont",
         "at most", 1.0, {"evenhand µs": ours.microseconds, "Clemont µs": theirs.microseconds,
                          "Clemont µs, last tenth": theirs.last_microseconds}),
        ("growth of memory of evenhand", ours.growth, "MiB", "at most", 10.0,
         {"Clemont MiB": theirs.growth}),
        ("growth of Clemont's memory in the second half", theirs.late_growth, "× the first",
         "at least", 0.5, {}),
        ("decisions on which Clemont's alarm differs from its rule", differ, "of all",
         "at most", 0.001, {"alarms": int(theirs.alarms.sum())}),
    ]  # fmt: skip
    return [
        Claim(claim=f"{claim}; {on}", figure=figure, unit=unit_, side=side, bar=bar,
              rounds=len(ours.slices), details=details)
        for claim, figure, unit_, side, bar, details in claims
    ]  # fmt: skip


def _cost_table(name: str, costs: dict[str, tuple[Cost, Cost]]) -> Table:
    headings = ("decisions", "µs", "µs, last tenth", "growth, MiB")
    table = Table("monitor", *headings, title=f"CPU time per decision and memory, {name}")
    for backend, (theirs, ours) in costs.items():
        for monitor, cost in ((f"Clemont, {backend}", theirs), ("evenhand, same run", ours)):
            cells = (f"{cost.microseconds:.0f}", f"{cost.last_microseconds:.0f}")
            table.add_row(monitor, str(cost.decisions), *cells, f"{cost.growth:.1f}")
    return table


if __name__ == "__main__":
    _DATA: Path = data_folder((ADULT_FILE,))
    report_parts(
        "Single decisions: flip probability and Clemont",
        {"detection": detection, "cost": cost, "adult": adult},
    )
