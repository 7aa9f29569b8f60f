"""Subjects of `benchmarks.clemont`: classifiers, what evenhand fits to them, and streams of rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kernel_subjects import sources_key
from benchmarks.subject import People, Society, Subject, fit_subject, train_classifier
from monitor import decide
from monitor.bundle.classifier import probe_features
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.kernel import Kernel, Target, load_kernel
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["Watched", "kernel_of", "watch"]

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


def watch(
    name: str, society: Society, *, learn: int, past: int, judged: int, seed: int
) -> Watched:
    """Train and fit on people of known groups; the past inputs are those and further people."""
    people = society.people(learn, seed=seed)
    subject = fit_subject(society, train_classifier(people, seed=seed), people, seed=seed)
    fresh = society.people(judged, seed=seed + 1)
    further = society.people(past - learn, seed=seed + 2).features
    rows = np.concatenate([people.features, further, fresh.features])
    decisions = np.asarray(decide(subject.classifier, rows), dtype=bool)
    return Watched(name=name, subject=subject, fresh=fresh, rows=rows, decisions=decisions)


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
