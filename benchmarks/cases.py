"""Cases of `benchmarks.detection`: a classifier's scores beside its true flips, on fresh people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import (  # type: ignore[import-untyped, unused-ignore]
    HistGradientBoostingClassifier,
)
from sklearn.metrics import (  # type: ignore[import-untyped, unused-ignore]
    roc_auc_score,
    roc_curve,
)
from torch import Tensor, nn

from benchmarks.alarms import alarms
from benchmarks.rival_scores import linear_change
from benchmarks.subject import People, Society, Subject, fit_subject, train_classifier
from monitor.scoring.baseline import Signal
from monitor.scoring.scores import Scores

__all__ = ["FLIP", "FLIP_KNOWING", "LIMIT", "LIMIT_KNOWING", "MARGIN", "Case", "judge"]

Floats = NDArray[np.float64]
Bool = NDArray[np.bool_]

FLIP, LIMIT, MARGIN = "flip probability", "information limit", "margin"
FLIP_KNOWING, LIMIT_KNOWING = f"{FLIP}, group given", f"{LIMIT}, group given"
_BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One classifier and one protected attribute.

    Attributes:
        name: The setting and the attribute.
        flips: Whose decision truly flips, `[n]`.
        rankings: By name of a score, the higher the likelier a flip, `[n]`; may be empty.
        flip_probability: The flip probability, `[n]`.
        flip_share: The estimated share of decisions that flip.
        false_alarms: Alarms on traffic like the baseline's, by signal and level.
    """

    name: str
    flips: Bool
    rankings: dict[str, Floats]
    flip_probability: Floats
    flip_share: float
    false_alarms: dict[Signal, list[int]]

    @property
    def true_share(self) -> float:
        """Share of decisions that truly flip."""
        return float(self.flips.mean())

    def auc(self, score: str) -> float:
        """How well a score ranks the true flips."""
        return float(roc_auc_score(self.flips, self.rankings[score]))

    def tpr(self, score: str) -> float:
        """Share of true flips found where 5% of the other decisions are named too."""
        false, true, _ = roc_curve(self.flips, self.rankings[score])
        return float(np.interp(0.05, false, true))

    @property
    def brier_skill(self) -> float:
        """Share of the base rate's squared error that the flip probability takes away."""
        error = float(np.mean((self.flip_probability - self.flips) ** 2))
        return 1 - error / float(self.flips.var())

    def calibration_error(self, *, above: float) -> float:
        """Expected calibration error in bins of equal counts, among scores above a bound."""
        rows = np.flatnonzero(self.flip_probability > above)
        rows = rows[np.argsort(self.flip_probability[rows], kind="stable")]
        gaps = [
            abs(self.flip_probability[members].mean() - self.flips[members].mean()) * len(members)
            for members in np.array_split(rows, _BINS)
            if len(members)
        ]
        return float(sum(gaps) / len(rows)) if len(rows) else float("nan")

    @property
    def share_error(self) -> float:
        """Error of the flip share over what is allowed: 1.5 points, or a fifth of the truth."""
        return abs(self.flip_share - self.true_share) / max(0.015, 0.2 * self.true_share)


def judge(
    name: str, society: Society, *, learn: int, baseline: int, judged: int, limit: int, seed: int
) -> Iterator[Case]:
    """Train, fit and judge on fresh people; nothing is ranked where nobody teaches the limit."""
    people = society.people(learn, seed=seed)
    subject = fit_subject(society, train_classifier(people, seed=seed), people, seed=seed)
    fresh = society.people(judged, seed=seed + 1)
    scores = subject.scores(fresh.features)
    before = subject.scores(society.people(baseline, seed=seed + 3).features)
    rankings: dict[str, dict[str, Floats]] = {a.name: {} for a in society.attributes}
    if limit:
        teachers = society.people(limit, seed=seed + 2)
        reseeded = train_classifier(people, seed=seed + 1)
        rankings = _rankings(subject, scores, fresh, reseeded)
        for attribute, found in rankings.items():
            found |= _limits(subject, teachers, fresh, attribute)
    for attribute, found in rankings.items():
        mine = scores.attributes[attribute]
        yield Case(
            name=f"{name}: {attribute}",
            flips=subject.true_flips(fresh, attribute),
            rankings=found,
            flip_probability=_floats(mine.flip_probability),
            flip_share=float(mine.hard_flips.mean()),
            false_alarms=alarms(before, scores, attribute),
        )


def _rankings(
    subject: Subject, scores: Scores, fresh: People, reseeded: nn.Module
) -> dict[str, dict[str, Floats]]:
    """By attribute, every score, the higher the likelier a flip."""
    knowing = subject.scores_knowing(fresh.features, fresh.groups)
    side = np.where(scores.decision.numpy(), 1.0, -1.0)
    with torch.no_grad():
        other = _floats(reseeded(torch.from_numpy(fresh.features)))
    found = {}
    for name, judged in scores.attributes.items():
        assert judged.log_prediction_sensitivity is not None
        found[name] = {
            FLIP: _floats(judged.flip_probability),
            FLIP_KNOWING: _floats(knowing.attributes[name].flip_probability),
            "expected change": _floats(judged.expected_change),
            # Where no feature counts in both models it is −∞, which a ranking must still place.
            "prediction sensitivity": _floats(judged.log_prediction_sensitivity.clamp_min(-1e30)),
            MARGIN: -_floats(scores.margin),
            # Another logit ranks by how far it lies on the other side of the threshold.
            "reseeded classifier": -side * other,
        }
        change = linear_change(subject.sensitivity, torch.from_numpy(fresh.features), name)
        if change is not None:
            linear = _floats(scores.logit + change)
            found[name]["linear change"] = -side * linear
    return found


def _limits(subject: Subject, teachers: People, fresh: People, attribute: str) -> dict[str, Floats]:
    """P(flip | features) and P(flip | features, group), as learned from true flips."""
    flips = subject.true_flips(teachers, attribute)
    found = {}
    for name, given in ((LIMIT, None), (LIMIT_KNOWING, attribute)):
        learner = HistGradientBoostingClassifier(
            max_iter=400, learning_rate=0.08, early_stopping=True, random_state=0
        )
        learner.fit(_seen(subject, teachers, given), flips)
        found[name] = learner.predict_proba(_seen(subject, fresh, given))[:, 1]
    return found


def _seen(subject: Subject, people: People, given: str | None) -> NDArray[np.float32]:
    """Features, the classifier's logit, and the group by the attribute that is given."""
    with torch.no_grad():
        logit = subject.classifier(torch.from_numpy(people.features)).numpy()
    columns = [people.features, logit[:, None]]
    if given is not None:
        groups = people.groups[given]
        columns.append(groups[:, None] == np.arange(groups.max() + 1))
    return np.hstack(columns).astype(np.float32)


def _floats(values: Tensor) -> Floats:
    return values.double().numpy()
