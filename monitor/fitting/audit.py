"""The training-time audit: how much a classifier's decisions depend on protected groups."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec, Decision, ProtectedAttribute
from monitor.fitting.audit_text import LIMITS, attribute_lines, wrapped
from monitor.fitting.bound import FlipShareBound, flip_share_bound
from monitor.fitting.intervals import FlipShareInterval
from monitor.fitting.pairs import PairShare
from monitor.fitting.performance import ClassifierCheck
from monitor.fitting.performance_text import classifier_lines
from monitor.fitting.separability import Separability
from monitor.scoring.baseline import Level
from monitor.scoring.counterfactual import TransportMaps
from monitor.scoring.scores import REASON_NAMES, Reason, Scores
from monitor.scoring.status_model import StatusReport

__all__ = [
    "AttributeAudit",
    "FitAudit",
    "UnlikeRows",
    "WildRows",
    "audit_attribute",
    "dependence_by_name",
]

_ABSOLUTE_BOUND = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeAudit:
    """The audit of one protected attribute, on held-out rows.

    Attributes:
        groups: Number of rows by group.
        favourable: Name of the favourable decision.
        unfavourable: Name of the other decision.
        favoured: Rate of the favourable decision by group; None for a group without rows.
        unknown: Number of rows with an unknown group.
        level: Share of decisions that would flip by the fitted maps, with hidden groups and an
            interval over the sampling of rows; mean, variance and outliers of the prediction
            sensitivity.
        likely_flips: Share of decisions whose flip probability exceeds one half.
        feature_shares: Features (a one-hot group counts as one) with their share of the effect of a
            change of group on the score, largest first.
        status: How well the groups can be predicted from the features.
        flip_histogram: Counts of flip probabilities in ten bins from 0 to 1.
        interval: Flip share with its interval over data and fit, the headline, and the shares of
            pairs of groups; None without refits, the headline is then the level's.
        bound: Lower bound on the share of flips that holds for every map; None without two groups.
        dependence: Features that are transported given others, with these others, for each causal
            order that scores average over; empty if groups do not differ in dependence.
        separability: How well a classifier tells transported rows from real ones, for every
            ordered pair of groups with enough rows.
        doubt: Why the classifier's scores establish no share; empty if there is no such reason.
        is_input: Whether the spec says that the attribute is an input of the classifier.
    """

    groups: Mapping[str, int]
    favourable: str
    unfavourable: str
    favoured: Mapping[str, float | None]
    unknown: int
    level: Level
    likely_flips: float
    feature_shares: tuple[tuple[str, float], ...]
    status: StatusReport
    flip_histogram: tuple[int, ...]
    interval: FlipShareInterval | None
    bound: FlipShareBound | None
    dependence: tuple[Mapping[str, tuple[str, ...]], ...]
    separability: tuple[Separability, ...]
    doubt: str = ""
    is_input: bool = False

    @property
    def established(self) -> bool:
        """Whether the classifier's scores vary as they should, and the maps explain the rates.

        There is no reason to doubt the scores, the share is compatible with the lower bound, up to
        the sampling of rows, and the maps of no pair of groups miss the rate of decisions of the
        target group.
        """
        return not self.doubt and self.reaches_bound and not self.unexplained

    @property
    def unexplained(self) -> tuple[PairShare, ...]:
        """Pairs whose maps miss the rate of the target group, the largest miss first."""
        pairs = self.interval.pairs if self.interval else ()
        return tuple(sorted((p for p in pairs if p.unexplained), key=lambda p: -abs(p.miss)))

    @property
    def reaches_bound(self) -> bool:
        """Whether the share is compatible with the lower bound, up to the sampling of rows."""
        if self.bound is None:
            return True
        if self.interval is None:
            return self.level.flip_share_high >= self.bound.low
        return self.interval.share + 1.96 * self.interval.standard_error >= self.bound.low

    @property
    def headline(self) -> tuple[float, float, float]:
        """Flip share and the ends of its 95% interval, over data and fit if there were refits."""
        if self.interval is not None:
            return self.interval.share, self.interval.low, self.interval.high
        level = self.level
        return level.flip_share, level.flip_share_low, level.flip_share_high


@dataclass(frozen=True, slots=True, kw_only=True)
class WildRows:
    """Training rows with values far outside the range of the others.

    Attributes:
        rows: Number of training rows with a wild feature.
        features: Number of such rows by feature, without features that have none.
        logits: Number of training rows with a wild logit.
    """

    rows: int
    features: Mapping[str, int]
    logits: int

    @classmethod
    def of(
        cls, names: Sequence[str], features: NDArray[np.bool_], logits: NDArray[np.bool_]
    ) -> Self:
        """Counts of wild features `[n, d]` and wild logits `[m]`, or `[m, 1]`."""
        counts = zip(names, features.sum(0).tolist(), strict=True)
        return cls(
            rows=int(features.any(1).sum()),
            features={name: count for name, count in counts if count},
            logits=int(logits.sum()),
        )

    @property
    def in_words(self) -> str:
        """The counts as a sentence; empty if there are no wild rows."""
        names = ", ".join(f"{name} ({count:,})" for name, count in self.features.items())
        parts = [f"{self.rows:,} training rows have a value in: {names}"] if names else []
        parts += [f"{self.logits:,} have such a logit of the classifier"] if self.logits else []
        if not parts:
            return ""
        return (
            f"Far outside the range of all other rows: {'; '.join(parts)}. These values do not "
            "move the scales of the scores. Check whether they are errors in the data."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeRows:
    """Rows of the data that the input check would refuse to score.

    Attributes:
        rows: Number of rows of the data.
        reasons: Number of unlike rows by reason, without reasons that no row has.
    """

    rows: int
    reasons: Mapping[str, int]

    @classmethod
    def of(cls, reasons: NDArray[np.int64]) -> Self:
        """Counts of the `Reason` of each row, `[n]`."""
        counts = zip(REASON_NAMES, np.bincount(reasons, minlength=len(Reason)), strict=True)
        found = {name: int(count) for name, count in counts if count and name != "none"}
        return cls(rows=len(reasons), reasons=found)

    @property
    def in_words(self) -> str:
        """The counts as a sentence; empty if there are no unlike rows."""
        if not self.reasons:
            return ""
        total = sum(self.reasons.values())
        reasons = ", ".join(f"{name} ({count:,})" for name, count in self.reasons.items())
        return (
            f"{total:,} of {self.rows:,} rows ({total / self.rows:.2%}) are unlike the training "
            f"rows, by reason: {reasons}. In production such rows get the verdict `unknown`; here "
            "they are left out of the baseline and the audit."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAudit:
    """The training-time audit of a classifier.

    Attributes:
        model: Name and version.
        rows: Number of rows in each part of the data.
        classifier: Performance of the classifier, and whether it seems to get the right input.
        attributes: Audits by protected attribute.
        missing: Scores that could not be computed, and why; empty if there are none.
        unlike: Rows that are left out because they are unlike the training rows.
        wild: Training rows with values far outside the range of the others.
        merged: Number of rows by value of every merged group, by attribute.
        excluded: Number of rows by value that was left out, by attribute.
    """

    model: str
    rows: Mapping[str, int]
    classifier: ClassifierCheck
    attributes: Mapping[str, AttributeAudit]
    missing: str
    unlike: UnlikeRows
    wild: WildRows
    merged: Mapping[str, Mapping[str, Mapping[str, int]]]
    excluded: Mapping[str, Mapping[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """The audit as a JSON-serializable dict."""
        result = asdict(self)
        result["classifier"]["warnings"] = list(self.classifier.warnings)
        result["classifier"]["doubt"] = self.classifier.doubt
        for name, audit in self.attributes.items():
            attribute = result["attributes"][name]
            attribute["established"] = audit.established
            if audit.interval is not None:
                for of, pair in zip(
                    attribute["interval"]["pairs"], audit.interval.pairs, strict=True
                ):
                    established = pair.established and not audit.doubt
                    of |= {"miss": pair.miss, "established": established}
                    of |= {"balance": pair.balance}
        return result

    def text(self) -> str:
        """The audit as text for readers who do not know the method."""
        parts = ", ".join(f"{count:,} {what}" for what, count in self.rows.items())
        lines = [f"Training-time audit of {self.model}", f"Rows: {parts}.", ""]
        lines += [*classifier_lines(self.classifier), ""]
        for name, audit in self.attributes.items():
            lines += [f"{name} ({', '.join(audit.groups)})", *attribute_lines(name, audit), ""]
        if notes := self._notes_on_groups():
            lines += ["Groups as the spec defines them", *notes, ""]
        lines += wrapped("Not shown", LIMITS), ""
        if self.missing:
            lines += wrapped("Not computed", f"{self.missing}."), ""
        if self.unlike.in_words:
            lines += wrapped("Unlike rows", self.unlike.in_words), ""
        if self.wild.in_words:
            lines += wrapped("Wild values", self.wild.in_words), ""
        return "\n".join(lines)

    def _notes_on_groups(self) -> list[str]:
        """What was merged and left out, with numbers of rows."""
        notes = []
        for attribute, groups in self.merged.items():
            for group, values in groups.items():
                text = (
                    f"{attribute} {group!r} is {_counted(values)}. Figures of {group!r} can hide "
                    "how each of them is treated; `permutation_test` compares their rates of "
                    "decisions."
                )
                notes.append(wrapped("Merged", text))
        for attribute, values in self.excluded.items():
            if values:
                text = (
                    f"{_counted(values)} of {attribute}. Nothing in this audit about {attribute} "
                    "covers them, and in production they are scored as members of the other "
                    "groups. `permutation_test` compares their rate of decisions with that of the "
                    "others."
                )
                notes.append(wrapped("Left out", text))
        return notes

    def png(self) -> bytes:
        """A figure of the headline, pairs of groups, main features, flips and calibration."""
        from monitor.fitting.audit_figure import audit_figure

        buffer = io.BytesIO()
        audit_figure(self).savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def audit_attribute(
    attribute: ProtectedAttribute, decision: Decision, scores: Scores, groups: NDArray[np.int8],
    level: Level, status: StatusReport, feature_shares: Mapping[str, float],
    interval: FlipShareInterval | None,
    dependence: tuple[Mapping[str, tuple[str, ...]], ...],
    separability: tuple[Separability, ...], doubt: str,
) -> AttributeAudit:  # fmt: skip
    """The audit of one attribute, from scores and groups `[n]` of held-out rows."""
    favoured = scores.decision.numpy() == bool(decision.favourable)
    flip = scores.attributes[attribute.name].flip_probability.double().numpy()
    return AttributeAudit(
        groups={g: int((groups == i).sum()) for i, g in enumerate(attribute.groups)},
        favourable=decision.class_names[decision.favourable],
        unfavourable=decision.class_names[1 - decision.favourable],
        favoured={
            g: float(favoured[groups == i].mean()) if (groups == i).any() else None
            for i, g in enumerate(attribute.groups)
        },
        unknown=int((groups < 0).sum()),
        level=level,
        likely_flips=float((flip > _ABSOLUTE_BOUND).mean()),
        feature_shares=tuple(sorted(feature_shares.items(), key=lambda item: -item[1])),
        status=status,
        flip_histogram=tuple(np.histogram(flip, bins=10, range=(0, 1))[0].tolist()),
        interval=interval,
        bound=flip_share_bound(favoured, groups),
        dependence=dependence,
        separability=separability,
        doubt=doubt,
        is_input=attribute.feature is not None,
    )


def dependence_by_name(
    maps: TransportMaps, spec: BundleSpec
) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Features that are transported given others, for each causal order."""
    names = [feature.name for feature in spec.features]
    groups = {name: group.name for group in spec.one_hot_groups for name in group.features}
    orders = []
    for repairs in maps.repairs:
        given: dict[str, tuple[str, ...]] = {}
        for repair in repairs:
            for index, column in enumerate(repair.free.tolist()):
                used = repair.weight[:, : len(repair.columns), index].any(0)
                read = [names[i] for i in repair.columns[used].tolist()]
                given[names[column]] = tuple(dict.fromkeys(groups.get(n, n) for n in read))
        orders.append(given)
    return tuple(orders)


def _counted(values: Mapping[str, int]) -> str:
    return " and ".join(f"{value!r} ({rows:,} rows)" for value, rows in values.items())
