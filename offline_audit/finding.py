"""Findings: what an audit says of a window, in a form that can be defended, kept and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from offline_audit.correction import Correction, adjusted_p_values, guarantee
from offline_audit.presentation import (
    Estimate,
    TextTable,
    bounds,
    interval_figure,
    json_ready,
    p_words,
    signed,
    to_html,
    to_text,
)
from offline_audit.window_facts import WindowFacts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Finding", "Findings"]

_HEADER = (
    *("audit", "attribute", "groups", "metric"),
    *("effect", "95% interval", "p", "adjusted", "outcome"),
)

Outcome = Literal["difference", "no difference shown", "not enough data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question about one window. Evidence is aggregates only, never rows.

    Attributes:
        audit: Which test: `permutation`, `projection`, `fliptest`.
        question: In words.
        attributes: The protected attributes; several where they are crossed or tested together.
        groups: That are compared, the one that the question is about first.
        metric: Or the criterion.
        rows: Predictions by group.
        effect: How much more the first group has of the metric; None where it is not known.
        interval: That covers the effect with 95 % confidence.
        statistic: Of the test.
        p_value: Of this test alone; None where there was not enough data.
        adjusted_p_value: With all tests of the same findings in mind.
        level: At which a difference is called.
        detectable: The smallest effect that this window would show four times in five.
        reason: Why there is no p-value.
        warnings: What to know before it is believed.
        seed: Of the draws.
        evidence: The test's whole result, as JSON has it.
    """

    audit: str
    question: str
    attributes: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    rows: Mapping[str, int]
    effect: float | None
    interval: tuple[float, float] | None
    statistic: float | None
    p_value: float | None
    adjusted_p_value: float | None = None
    level: float = 0.05
    detectable: float | None
    reason: str | None
    warnings: tuple[str, ...] = ()
    seed: int
    evidence: Mapping[str, Any]

    @property
    def outcome(self) -> Outcome:
        """By the adjusted p-value; without any p-value there was not enough data."""
        p = self.p_value if self.adjusted_p_value is None else self.adjusted_p_value
        if p is None:
            return "not enough data"
        return "difference" if p <= self.level else "no difference shown"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = json_ready(self)
        return {**found, "outcome": self.outcome}

    def __str__(self) -> str:
        return str(self._alone)

    def _repr_html_(self) -> str:
        return self._alone._repr_html_()

    @property
    def _alone(self) -> Findings:
        return Findings(findings=(self,), correction="none", level=self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All that was asked of a window, with its correction for many questions.

    Attributes:
        findings: In the order in which they were asked.
        correction: How their number is allowed for.
        level: At which a difference is called.
        window: What they were asked of; None for arrays.
        versions: Of what computed them.
    """

    findings: tuple[Finding, ...]
    correction: Correction
    level: float
    window: WindowFacts | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def corrected(
        cls,
        findings: Sequence[Finding],
        *,
        correction: Correction = "bh",
        level: float = 0.05,
        window: WindowFacts | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> Findings:
        """Findings that were asked together, each with a p-value that allows for the others."""
        adjusted = adjusted_p_values([finding.p_value for finding in findings], correction)
        held = tuple(
            dataclasses.replace(finding, adjusted_p_value=p, level=level)
            for finding, p in zip(findings, adjusted, strict=True)
        )
        return cls(
            findings=held,
            correction=correction,
            level=level,
            window=window,
            versions=versions or {},
        )

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def differences(self) -> tuple[Finding, ...]:
        """Those that hold after correction."""
        return tuple(finding for finding in self.findings if finding.outcome == "difference")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "correction": self.correction,
            "guarantee": guarantee(self.correction),
            "level": self.level,
            "window": json_ready(self.window),
            "versions": dict(self.versions),
        }

    def plot(self) -> Figure:
        """Effects with their intervals, those that had not enough data in gray."""
        shown = [
            Estimate(
                name=f"{finding.metric}: {' – '.join(finding.groups)}",
                value=finding.effect,
                interval=finding.interval,
                sure=finding.p_value is not None,
            )
            for finding in self.findings
            if finding.effect is not None
        ]
        return interval_figure(shown, "difference (gray: not enough data)")

    def __str__(self) -> str:
        return to_text(self._title, self._table, self._notes)

    def _repr_html_(self) -> str:
        return to_html(self._title, self._table, self._notes)

    @property
    def _title(self) -> str:
        tested = [f for f in self.findings if f.p_value is not None]
        called, asked = len(self.differences), len(self.findings)
        told = f"{called} of {len(tested)} tests show a difference at level {self.level:g}"
        short = asked - len(tested)
        told += f"; {short} had not enough data" if short else ""
        return told if self.window is None else f"{self.window}: {told}"

    @property
    def _table(self) -> TextTable:
        return TextTable(header=_HEADER, rows=tuple(map(_row, self.findings)), words=4)

    @property
    def _notes(self) -> list[str]:
        notes = [f"Level {self.level:g}: {guarantee(self.correction)}."]
        reasons = dict.fromkeys(f.reason for f in self.findings if f.reason is not None)
        notes += [f"Not enough data: {reason}" for reason in reasons]
        warnings = dict.fromkeys(w for finding in self.findings for w in finding.warnings)
        notes += [f"! {warning}" for warning in warnings]
        if self.window is not None:
            notes += [f"! {warning}" for warning in self.window.warnings]
        return notes


def _row(finding: Finding) -> tuple[str, ...]:
    return (
        finding.audit,
        " × ".join(finding.attributes),
        " / ".join(finding.groups),
        finding.metric,
        signed(finding.effect),
        bounds(finding.interval),
        p_words(finding.p_value),
        p_words(finding.adjusted_p_value),
        finding.outcome,
    )
