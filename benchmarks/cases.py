"""Cases of `benchmarks.detection`: scores of a classifier and its true flips, on new people."""

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
from monitor.fitting.bound import flip_share_bound
from monitor.fitting.scored_rows import baseline_of
from monitor.scoring.baseline import Signal
from monitor.scoring.judge import signal_values
from monitor.scoring.scores import Scores
from monitor.settings import PolicyConfig

__all__ = ["FLIP", "FLIP_KNOWING", "LIMIT", "LIMIT_KNOWING", "MARGIN", "Case", "judge"]

Floats = NDArray[np.float64]
Bool = NDArray[np.bool_]

FLIP, LIMIT, MARGIN = "flip probability", "information limit", "margin"
FLIP_KNOWING, LIMIT_KNOWING = f"{FLIP}, group known", f"{LIMIT}, group known"
_BINS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One classifier and one protected attribute.

    Attributes:
        name: Setting and attribute.
        flips: Whether each decision truly flips, `[n]`.
        rankings: Scores by name, higher for likelier flips, `[n]` each; may be empty.
        flip_probability: Flip probability, `[n]`.
        unusual: Whether the default policy finds a decision unusual, `[n]`.
        flip_share: Estimated share of decisions that flip.
        bound: Lower bound on the share for any map, from the groups' rates of decisions.
        false_alarms: Number of alarms on traffic like the baseline's, by signal and level.
    """

    name: str
    flips: Bool
    rankings: dict[str, Floats]
    flip_probability: Floats
    unusual: Bool
    flip_share: float
    bound: float
    false_alarms: dict[Signal, list[int]]

    @property
    def true_share(self) -> float:
        """Share of decisions that truly flip."""
        return float(self.flips.mean())

    def auc(self, score: str) -> float:
        """AUC of a score for the true flips."""
        return float(roc_auc_score(self.flips, self.rankings[score]))

    def tpr(self, score: str) -> float:
        """True positive rate of a score at a false positive rate of 5%."""
        false, true, _ = roc_curve(self.flips, self.rankings[score])
        return float(np.interp(0.05, false, true))

    @property
    def by_rule(self) -> dict[str, Bool]:
        """Which decisions are above by each rule of policy, with its default limits, `[n]`."""
        likely_flip = self.flip_probability >= PolicyConfig().flip_probability
        return {
            "likely_flip": likely_flip,
            "unusual": self.unusual,
            "either": likely_flip | self.unusual,
            "both": likely_flip & self.unusual,
        }

    @property
    def brier_skill(self) -> float:
        """Brier skill score of the flip probability relative to the base rate."""
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
        """Error of the flip share relative to its tolerance: 1.5 points, or 20% of the truth."""
        return abs(self.flip_share - self.true_share) / max(0.015, 0.2 * self.true_share)


def judge(
    name: str, society: Society, *, learn: int, baseline: int, judged: int, limit: int, seed: int
) -> Iterator[Case]:
    """Train, fit and score new people; without rows for the limit there are no rankings."""
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
        for attribute, ranking in rankings.items():
            ranking |= _limits(subject, teachers, fresh, attribute)
    for attribute, ranking in rankings.items():
        own = scores.attributes[attribute]
        yield Case(
            name=f"{name}: {attribute}",
            flips=subject.true_flips(fresh, attribute),
            rankings=ranking,
            flip_probability=_floats(own.flip_probability),
            unusual=_unusual(before, scores, attribute),
            flip_share=float(own.hard_flips.mean()),
            bound=_bound(scores, fresh, attribute),
            false_alarms=alarms(before, scores, attribute),
        )


def _unusual(before: Scores, scores: Scores, attribute: str) -> Bool:
    policy, own = PolicyConfig(), scores.attributes[attribute]
    values = signal_values(own)[policy.signal]
    p_values = baseline_of(before).p_values(attribute, policy.signal, values)
    return np.asarray(p_values <= policy.alpha)


def _bound(scores: Scores, fresh: People, attribute: str) -> float:
    bound = flip_share_bound(scores.decision.bool().numpy(), fresh.groups[attribute])
    return bound.share if bound else 0.0


def _rankings(
    subject: Subject, scores: Scores, fresh: People, reseeded: nn.Module
) -> dict[str, dict[str, Floats]]:
    """By attribute, every score, higher for likelier flips."""
    knowing = subject.scores_knowing(fresh.features, fresh.groups)
    side = np.where(scores.decision.numpy(), 1.0, -1.0)
    with torch.no_grad():
        other = _floats(reseeded(torch.from_numpy(fresh.features)))
    rankings = {}
    for name, own in scores.attributes.items():
        assert own.log_prediction_sensitivity is not None
        rankings[name] = {
            FLIP: _floats(own.flip_probability),
            FLIP_KNOWING: _floats(knowing.attributes[name].flip_probability),
            "expected change": _floats(own.expected_change),
            # It is −∞ if no feature has a gradient in both models; a ranking needs finite values.
            "prediction sensitivity": _floats(own.log_prediction_sensitivity.clamp_min(-1e30)),
            MARGIN: -_floats(scores.margin),
            # Another logit ranks by its distance beyond the threshold.
            "reseeded classifier": -side * other,
        }
        change = linear_change(subject.sensitivity, torch.from_numpy(fresh.features), name)
        if change is not None:
            linear = _floats(scores.logit + change)
            rankings[name]["linear change"] = -side * linear
    return rankings


def _limits(subject: Subject, teachers: People, fresh: People, attribute: str) -> dict[str, Floats]:
    """P(flip | features) and P(flip | features, group), learned from true flips."""
    flips = subject.true_flips(teachers, attribute)
    limits = {}
    for name, known in ((LIMIT, None), (LIMIT_KNOWING, attribute)):
        learner = HistGradientBoostingClassifier(
            max_iter=400, learning_rate=0.08, early_stopping=True, random_state=0
        )
        learner.fit(_inputs(subject, teachers, known), flips)
        limits[name] = learner.predict_proba(_inputs(subject, fresh, known))[:, 1]
    return limits


def _inputs(subject: Subject, people: People, known: str | None) -> NDArray[np.float32]:
    """Features, the classifier's logit, and the group of a known attribute."""
    with torch.no_grad():
        logit = subject.classifier(torch.from_numpy(people.features)).numpy()
    columns = [people.features, logit[:, None]]
    if known is not None:
        groups = people.groups[known]
        columns.append(groups[:, None] == np.arange(groups.max() + 1))
    return np.hstack(columns).astype(np.float32)


def _floats(values: Tensor) -> Floats:
    return values.double().numpy()
