"""Predictions of the classifier against labels, and scores that suggest wrong input columns.

A classifier whose columns come in another order or on another scale than in its training still
returns probabilities, which depend little on protected groups: it looks fair. Labels show that such
probabilities predict nothing. Without labels, only saturated or constant scores are noticed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.manifest import Decision, ProtectedAttribute
from monitor.scoring.scores import Scores

__all__ = ["ClassifierCheck", "Performance", "RowsPerformance", "check_classifier"]

# Probabilities below 0.0001 or above 0.9999. Few classifiers are right about half of all rows with
# such odds.
_EXTREME_LOGIT = math.log(9999)
_MOST_EXTREME = 0.5
# Odds that differ by less than a tenth between the 1% and the 99% quantile.
_LEAST_RANGE = 0.1
_Z = 1.96
# Wrong columns may rank rows a little, so an AUC near one half says nothing about the input.
_RANKS = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPerformance:
    """Performance of the classifier on some rows with a label.

    Attributes:
        rows: Number of rows.
        accuracy: Share of decisions that agree with the label.
        auc: Area under the ROC curve; None if all labels are equal.
        auc_error: Its standard error by DeLong; None with fewer than two rows of a label.
        predicted: Mean probability of the favourable label.
        observed: Rate of the favourable label.
        gap_error: Standard error of observed − predicted; None with fewer than two rows.
    """

    rows: int
    accuracy: float
    auc: float | None
    auc_error: float | None
    predicted: float
    observed: float
    gap_error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """Performance of the classifier on held-back rows.

    Attributes:
        overall: Performance on all rows with a label.
        groups: Performance by protected attribute and group, without groups that have no row.
        unlabelled: Number of rows without a label.
        skill: Brier skill score, 1 − Brier score / Brier score of the rate of labels; None if all
            labels are equal.
        skill_low: Lower end of its 95% interval over rows.
        skill_high: Upper end.
        calibration_error: Mean difference between predicted and observed rates in ten bins of
            equal size.
    """

    overall: RowsPerformance
    groups: Mapping[str, Mapping[str, RowsPerformance]]
    unlabelled: int
    skill: float | None
    skill_low: float | None
    skill_high: float | None
    calibration_error: float

    @property
    def majority(self) -> float:
        """Accuracy of always predicting the more frequent label."""
        return max(self.overall.observed, 1 - self.overall.observed)

    @property
    def better_than_base_rate(self) -> bool:
        """Whether the probabilities predict the labels better than their rate, beyond noise."""
        return self.skill_low is not None and self.skill_low > 0

    @property
    def auc_interval(self) -> tuple[float, float] | None:
        """95% interval of the AUC on all rows; None if it is unknown."""
        auc, error = self.overall.auc, self.overall.auc_error
        if auc is None or error is None:
            return None
        return max(auc - _Z * error, 0.0), min(auc + _Z * error, 1.0)

    @property
    def ranks(self) -> bool:
        """Whether the scores clearly rank rows by the label, calibrated or not."""
        return self.auc_interval is not None and self.auc_interval[0] > _RANKS

    def warning(self, *, plausible: bool) -> str:
        """Why the classifier is not shown to predict the label; empty if it is.

        Args:
            plausible: Whether scores vary as those of a classifier that gets the right input.
        """
        if self.skill is None or self.skill_low is None or self.skill_high is None:
            return (
                "All held-back rows with a label have the same one, so performance is unknown. "
                "Check `label` in the spec."
            )
        if self.better_than_base_rate:
            return ""
        low, high = self.auc_interval or (0.0, 1.0)
        relation = "worse than" if self.skill_high < 0 else "no better than"
        text = (
            f"The classifier's probabilities predict the label {relation} the base rate (Brier "
            f"skill {self.skill:.2f}, 95% interval {self.skill_low:.2f} to {self.skill_high:.2f}; "
            "the base rate has 0). "
        )
        other = (
            "it was trained on another outcome, such as past decisions; or its probabilities are "
            "not calibrated, for example since classes were weighted in its training."
        )
        features = "the features may come in another order or on another scale than in its training"
        if self.ranks and plausible:
            return (
                f"{text}Yet they rank rows well (AUC {self.overall.auc:.3f}, 95% interval "
                f"{low:.3f} to {high:.3f}), so the order and scaling of the features are probably "
                f"right, and the level of the probabilities is not: {other}"
            )
        if low > 0.5:
            return (
                f"{text}They rank rows better than chance (AUC {self.overall.auc:.3f}, 95% "
                f"interval {low:.3f} to {high:.3f}): {features}; or {other}"
            )
        if high < 0.5:
            classes = (
                "`label.favourable`, `decision.favourable` or the classes of the output may be the "
                "wrong way round"
            )
            # Only a wrong class reverses a clear ranking; other input gives a weak one.
            causes = (classes, features) if high < 1 - _RANKS else (features, classes)
            return f"{text}They rank rows in reverse: {'; or '.join(causes)}."
        return (
            f"{text}They do not rank rows better than chance: {features}; or it was trained on "
            "another outcome."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierCheck:
    """Whether the classifier seems to get the input that it was trained on.

    Attributes:
        extreme: Share of held-back rows with a probability below 0.0001 or above 0.9999.
        low: 1% quantile of the probability of class 1.
        high: 99% quantile.
        log_odds_range: Difference between these quantiles as log odds.
        performance: Performance against labels; None without labels.
        one_decision: Whether all held-back rows get the same decision.
    """

    extreme: float
    low: float
    high: float
    log_odds_range: float
    performance: Performance | None
    one_decision: bool = False

    @property
    def doubt(self) -> str:
        """Why no share of flips is established for this classifier; empty if one may be."""
        if self.one_decision:
            return "all held-back rows get the same decision, so none could flip"
        performance = self.performance
        if performance is not None and performance.better_than_base_rate:
            return ""
        wrong = "the classifier may get wrong input"
        if self._shape:
            reason = self._shape.partition(":")[0]
            return f"{reason[0].lower()}{reason[1:]}, so {wrong}"
        if performance is None or performance.skill is None or performance.ranks:
            return ""
        return f"the scores do not predict the label, so {wrong}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to doubt the input, as sentences; labels outweigh the shape of the scores."""
        performance = self.performance
        found = ["All held-back rows get the same decision."] if self.one_decision else []
        if performance is not None and performance.better_than_base_rate:
            return tuple(found)
        shape = self._shape
        if performance is not None:
            found.append(performance.warning(plausible=not (shape or self.one_decision)))
        return (*found, *filter(None, [shape]))

    @property
    def _shape(self) -> str:
        """Why the scores are unlikely to be those of right input; empty if there is no reason."""
        if self.extreme >= _MOST_EXTREME:
            return (
                f"Scores are saturated: {self.extreme:.0%} of the probabilities are below 0.0001 "
                "or above 0.9999."
            )
        if self.log_odds_range < _LEAST_RANGE:
            return (
                f"Scores hardly vary: 98% of the probabilities are between {self.low:.4f} and "
                f"{self.high:.4f}."
            )
        return ""


def check_classifier(
    scores: Scores,
    decision: Decision,
    labels: NDArray[np.int8] | None,
    groups: Mapping[str, NDArray[np.int8]],
    attributes: Sequence[ProtectedAttribute],
) -> ClassifierCheck:
    """Check scores of held-back rows.

    Args:
        scores: Scores of n rows.
        decision: Decision rule.
        labels: Class of each row, −1 if unknown, `[n]`; None without labels.
        groups: Group codes `[n]` by attribute, −1 if unknown.
        attributes: Protected attributes.
    """
    logit = scores.logit.double().numpy()
    low, high = (float(q) for q in np.quantile(logit, [0.01, 0.99]))
    performance = None
    if labels is not None and (labels >= 0).any():
        favourable = logit if decision.favourable == 1 else -logit
        rows = _Rows(
            logit=favourable,
            favoured=scores.decision.numpy() == bool(decision.favourable),
            label=np.where(labels < 0, -1, labels == decision.favourable),
        )
        performance = _performance(rows, groups, attributes)
    return ClassifierCheck(
        extreme=float((np.abs(logit) > _EXTREME_LOGIT).mean()),
        low=float(_sigmoid(np.array(low))),
        high=float(_sigmoid(np.array(high))),
        log_odds_range=high - low,
        performance=performance,
        one_decision=len(scores.decision.unique()) < 2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Logit and decision of the favourable class, and label: 1 if favourable, −1 if unknown."""

    logit: NDArray[np.float64]
    favoured: NDArray[np.bool_]
    label: NDArray[np.int64]

    def of(self, chosen: NDArray[np.bool_]) -> _Rows:
        return _Rows(
            logit=self.logit[chosen], favoured=self.favoured[chosen], label=self.label[chosen]
        )


def _performance(
    rows: _Rows,
    groups: Mapping[str, NDArray[np.int8]],
    attributes: Sequence[ProtectedAttribute],
) -> Performance:
    known = rows.label >= 0
    labelled = rows.of(known)
    by_group: dict[str, dict[str, RowsPerformance]] = {}
    for attribute in attributes:
        of_group = [known & (groups[attribute.name] == i) for i in range(len(attribute.groups))]
        by_group[attribute.name] = {
            name: _on_rows(rows.of(chosen))
            for name, chosen in zip(attribute.groups, of_group, strict=True)
            if chosen.any()
        }
    probability = _sigmoid(labelled.logit)
    skill = _skill(probability, labelled.label)
    return Performance(
        overall=_on_rows(labelled),
        groups=by_group,
        unlabelled=int((~known).sum()),
        skill=skill[0] if skill else None,
        skill_low=skill[1] if skill else None,
        skill_high=skill[2] if skill else None,
        calibration_error=_calibration_error(probability, labelled.label),
    )


def _on_rows(rows: _Rows) -> RowsPerformance:
    auc, error = _auc(rows.logit, rows.label == 1)
    probability, count = _sigmoid(rows.logit), len(rows.label)
    gap_error = (rows.label - probability).std(ddof=1) / math.sqrt(count) if count > 1 else None
    return RowsPerformance(
        rows=len(rows.label),
        accuracy=float((rows.favoured == (rows.label == 1)).mean()),
        auc=auc,
        auc_error=error,
        predicted=float(probability.mean()),
        observed=float(rows.label.mean()),
        gap_error=None if gap_error is None else float(gap_error),
    )


def _auc(
    score: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[float | None, float | None]:
    """AUC with the standard error of DeLong, DeLong and Clarke-Pearson (1988), from midranks."""
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return None, None
    ranks = stats.rankdata(score)
    # Share of the other label's rows that each row is ranked above (below for zeros).
    above = (ranks[positive] - stats.rankdata(score[positive])) / zeros
    below = 1 - (ranks[~positive] - stats.rankdata(score[~positive])) / ones
    auc = float(above.mean())
    if min(ones, zeros) < 2:
        return auc, None
    return auc, math.sqrt(above.var(ddof=1) / ones + below.var(ddof=1) / zeros)


def _skill(
    probability: NDArray[np.float64], label: NDArray[np.int64]
) -> tuple[float, float, float] | None:
    """Brier skill against the rate of labels with its 95% interval; None if labels are equal."""
    rate = label.mean()
    if rate in (0, 1) or len(label) < 2:
        return None
    gain = ((rate - label) ** 2 - (probability - label) ** 2) / (rate * (1 - rate))
    skill, error = float(gain.mean()), float(gain.std(ddof=1)) / math.sqrt(len(gain))
    return skill, skill - _Z * error, skill + _Z * error


def _calibration_error(probability: NDArray[np.float64], label: NDArray[np.int64]) -> float:
    order = np.argsort(probability, kind="stable")
    bins = [part for part in np.array_split(order, 10) if len(part)]
    error = sum(abs(probability[b].mean() - label[b].mean()) * len(b) for b in bins)
    return float(error / len(order))


def _sigmoid(logit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability of a logit, without overflow."""
    probability: NDArray[np.float64] = np.exp(-np.logaddexp(0, -logit))
    return probability
