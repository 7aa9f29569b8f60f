"""The training-time audit: how much the classifier's decisions depend on a group, in words."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.baseline import Level
from monitor.bundle.manifest import Decision, ProtectedAttribute
from monitor.scores import Scores
from monitor.status_model import StatusReport

__all__ = ["AttributeAudit", "FitAudit", "audit_attribute"]

# Flip shares up to which a level is called low and moderate.
_LOW, _MODERATE = 0.01, 0.05
_TOP = 5
_LEAST_SHARE = 0.02
_ABSOLUTE_BOUND = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeAudit:
    """What was found as to one protected attribute, on rows that nothing was fitted on.

    Attributes:
        groups: Its groups and how many rows of each are known.
        favourable: Name of the favourable decision.
        favoured: The share of each group that gets it; None without rows of the group.
        unknown: Rows whose group is not given.
        level: Estimated share of decisions that would flip; mean, variance and outliers of the
            prediction sensitivity.
        likely_flips: Share of decisions whose flip probability exceeds one half.
        carriers: Features, one-hot groups as one, with their share of what a change of group would
            do to the score; the largest first.
        status: How well the groups can be told from the features.
        flip_histogram: Counts of flip probabilities in ten bins from 0 to 1.
    """

    groups: Mapping[str, int]
    favourable: str
    favoured: Mapping[str, float | None]
    unknown: int
    level: Level
    likely_flips: float
    carriers: tuple[tuple[str, float], ...]
    status: StatusReport
    flip_histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAudit:
    """The training-time audit of a classifier.

    Attributes:
        model: Name and version.
        rows: How many rows each part of the data had.
        attributes: What was found, by attribute.
        missing: Which scores could not be computed, and why; empty when all could.
    """

    model: str
    rows: Mapping[str, int]
    attributes: Mapping[str, AttributeAudit]
    missing: str

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)

    def text(self) -> str:
        """For people who have not read the paper."""
        parts = ", ".join(f"{count:,} {what}" for what, count in self.rows.items())
        lines = [f"Training-time audit of {self.model}", f"Rows: {parts}.", ""]
        for name, audit in self.attributes.items():
            lines += [f"{name} ({', '.join(audit.groups)})", *_in_words(name, audit), ""]
        if self.missing:
            lines += _wrapped("Not computed", f"{self.missing}."), ""
        return "\n".join(lines)

    def png(self) -> bytes:
        """A picture: flip probabilities, what carries them, and the status model's calibration."""
        from matplotlib.figure import Figure

        count = len(self.attributes)
        figure = Figure(figsize=(13, 3.6 * count), layout="constrained")
        axes = figure.subplots(count, 3, squeeze=False)
        for row, (name, audit) in zip(axes, self.attributes.items(), strict=True):
            _draw(row, name, audit)
        figure.suptitle(_plain(f"Training-time audit of {self.model}"))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def audit_attribute(
    attribute: ProtectedAttribute, decision: Decision, scores: Scores, groups: NDArray[np.int8],
    level: Level, status: StatusReport, carriers: Mapping[str, float],
) -> AttributeAudit:  # fmt: skip
    """Audit one attribute from the scores of held-out rows and their groups `[n]`."""
    favoured = scores.decision.numpy() == bool(decision.favourable)
    flip = scores.attributes[attribute.name].flip_probability.double().numpy()
    return AttributeAudit(
        groups={g: int((groups == i).sum()) for i, g in enumerate(attribute.groups)},
        favourable=decision.class_names[decision.favourable],
        favoured={
            g: float(favoured[groups == i].mean()) if (groups == i).any() else None
            for i, g in enumerate(attribute.groups)
        },
        unknown=int((groups < 0).sum()),
        level=level,
        likely_flips=float((flip > _ABSOLUTE_BOUND).mean()),
        carriers=tuple(sorted(carriers.items(), key=lambda item: -item[1])),
        status=status,
        flip_histogram=tuple(np.histogram(flip, bins=10, range=(0, 1))[0].tolist()),
    )


def _in_words(name: str, audit: AttributeAudit) -> list[str]:
    level, status = audit.level, audit.status
    size = "low" if level.flip_share <= _LOW else "moderate"
    size = "high" if level.flip_share > _MODERATE else size
    lines = [
        _wrapped(
            "Would decisions flip?",
            f"About {level.flip_share:.1%} of decisions (95% interval "
            f"{level.flip_share_low:.1%} to {level.flip_share_high:.1%}) would be different for "
            f"the same person with another {name}. That is {size}. Later verdicts are relative to "
            "this level: a model that is unfair now will look usual to them.",
        ),
        _wrapped("Decisions", _decisions(audit)),
        _wrapped(
            "Single decisions",
            f"{audit.likely_flips:.1%} of decisions would more likely flip than not.",
        ),
        _wrapped("How well can it be told?", _telling(name, status)),
    ]
    top = [(feature, share) for feature, share in audit.carriers[:_TOP] if share >= _LEAST_SHARE]
    if top:
        told = ", ".join(f"{feature} ({share:.0%})" for feature, share in top)
        lines.insert(3, _wrapped("Carried by", f"{told} of what another {name} would change."))
    if level.mean is not None and level.variance is not None and level.outliers is not None:
        lines.append(
            _wrapped(
                "Prediction sensitivity",
                f"mean {level.mean:.3g}, variance {level.variance:.3g}; {level.outliers:.2%} of "
                "people lie more than five standard deviations above the mean.",
            )
        )
    if audit.unknown:
        lines.append(_wrapped("Unknown groups", f"{audit.unknown:,} judged rows have none given."))
    return lines


def _decisions(audit: AttributeAudit) -> str:
    shares = {g: share for g, share in audit.favoured.items() if share is not None}
    told = ", ".join(f"{share:.1%} of {group}" for group, share in shares.items())
    told = f"{audit.favourable} for {told}."
    if set(shares.values()) in ({0.0}, {1.0}):
        told += (
            " Everybody gets the same decision, so nothing can flip: are the features listed in "
            "the order in which the classifier takes them?"
        )
    return told


def _telling(name: str, status: StatusReport) -> str:
    told = (
        f"From the features the group is guessed right for {status.accuracy:.0%} of people; always "
        f"naming the largest group would reach {status.majority:.0%}. Stated chances are off by "
        f"{status.calibration_error:.1%} on average."
    )
    if status.predictable:
        return told
    if not status.conclusive:
        return f"{told} These are too few rows to say whether that is better than chance."
    return (
        f"{told} That is hardly better than chance: the features do not give {name} away, so "
        "proxies are no route to it, and its scores say little."
    )


def _wrapped(title: str, text: str) -> str:
    return textwrap.fill(
        text, width=96, initial_indent=f"  {title:<26}", subsequent_indent=" " * 28
    )


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _draw(axes: Any, name: str, audit: AttributeAudit) -> None:
    histogram, carriers, reliability = axes
    people = np.array(audit.flip_histogram) / max(sum(audit.flip_histogram), 1)
    histogram.bar(np.arange(10) / 10 + 0.05, people, width=0.09)
    histogram.set(title=f"{_plain(name)}: chance that the decision flips", ylabel="share of people")
    top = [item for item in audit.carriers[:8] if item[1] > 0][::-1]
    carriers.barh([_plain(feature) for feature, _ in top], [share for _, share in top])
    carriers.set(title="carried by", xlabel="share of the change")
    stated, observed = zip(*audit.status.reliability, strict=True)
    reliability.plot([0, 1], [0, 1], color="grey", linewidth=1)
    reliability.plot(stated, observed, marker="o")
    reliability.set(title="calibration of the guess", xlabel="stated", ylabel="observed")
