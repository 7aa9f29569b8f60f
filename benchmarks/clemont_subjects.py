"""Subjects of `benchmarks.clemont`: fitted classifiers with streams of decisions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped, unused-ignore]

from benchmarks.kernel_subjects import sources_key
from benchmarks.neighbours import (
    Alarm,
    Norm,
    best_alarm,
    neighbour_distances,
    standardised,
    unit_range,
)
from benchmarks.subject import People, Society, Subject, fit_subject, train_classifier
from monitor import decide
from monitor.bundle.classifier import probe_features
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.kernel import Kernel, Target, load_kernel
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["DOCUMENTED", "Contest", "Watched", "contests_of", "kernel_of", "watch"]

Floats = NDArray[np.float64]

# Clemont's documented scaling and its default norm.
DOCUMENTED = "[0, 1], infinity"
_SCALINGS = {"[0, 1]": unit_range, "standardised": standardised}
_NORMS: tuple[Norm, ...] = ("infinity", "l2")

_CACHE = Path(__file__).parents[1] / ".cache" / "kernels"
_SOURCES = ("monitor/bundle/*.py", "monitor/scoring/*.py", "monitor/scoring/counterfactual/*.py")
_PROBE_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A fitted classifier, its past inputs, and new people.

    Attributes:
        name: Name of the world.
        subject: The classifier and its scoring.
        fresh: New people, who come after the past inputs.
        rows: Inputs in the order of the stream, the new people last, `[n, d]`.
        decisions: Decisions, `[n]`.
    """

    name: str
    subject: Subject
    fresh: People
    rows: NDArray[np.float32]
    decisions: NDArray[np.bool_]

    @property
    def start(self) -> int:
        """Index of the first new person."""
        return len(self.rows) - len(self.fresh.features)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
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


def watch(name: str, society: Society, *, learn: int, past: int, judged: int, seed: int) -> Watched:
    """Train and fit on people of known groups; the past inputs are those and further people."""
    people = society.people(learn, seed=seed)
    subject = fit_subject(society, train_classifier(people, seed=seed), people, seed=seed)
    fresh = society.people(judged, seed=seed + 1)
    further = society.people(past - learn, seed=seed + 2).features
    rows = np.concatenate([people.features, further, fresh.features])
    decisions = np.asarray(decide(subject.classifier, rows), dtype=bool)
    return Watched(name=name, subject=subject, fresh=fresh, rows=rows, decisions=decisions)


def contests_of(watched: Watched) -> list[Contest]:
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
        Contest(
            name=f"{watched.name}: {attribute}",
            flips=watched.subject.true_flips(watched.fresh, attribute),
            flip_probability=own.flip_probability.double().numpy(),
            margin=scores.margin.double().numpy(),
            distances=distances,
        )
        for attribute, own in scores.attributes.items()
    ]


def kernel_of(sensitivity: Sensitivity) -> Kernel:
    """The compiled joint pass, from the cache or newly compiled."""
    target = Target.here()
    assert target is not None
    # The output on probe rows stands for the parameters.
    probe = torch.from_numpy(probe_features(sensitivity.spec, _PROBE_ROWS))
    output = sensitivity.joint(probe)[0].numpy().tobytes().hex()
    file = _CACHE / f"{sources_key(_SOURCES, output, target)}.pt2"
    if not file.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(compile_kernel(sensitivity, target))
        draft.replace(file)
    return load_kernel(file.read_bytes(), target, sensitivity)
