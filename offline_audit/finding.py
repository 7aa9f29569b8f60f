"""Findings: results of audits in one form, with the correction for multiple tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.stats import false_discovery_control

from offline_audit.coverage import Unknowns
from offline_audit.errors import AuditInputError
from offline_audit.finding_text import (
    attribute_name,
    family_text,
    finding_text,
    findings_text,
    plot_title,
)
from offline_audit.plots import Estimate, Kind, interval_figure
from offline_audit.power import Detectable
from offline_audit.rendering import json_ready, to_html, to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from offline_audit.window.provenance import WindowFacts

__all__ = ["Correction", "Finding", "Findings", "adjusted_p_values", "guarantee"]

# Benjamini and Hochberg; Benjamini and Yekutieli; Holm; none.
Correction = Literal["bh", "by", "holm", "none"]

_GUARANTEES: dict[Correction, str] = {
    "bh": "The expected share of false positives among reported differences is at most α (false "
    "discovery rate, Benjamini and Hochberg; for independent or positively dependent tests).",
    "by": "The expected share of false positives among reported differences is at most α (false "
    "discovery rate, Benjamini and Yekutieli; for any dependence between tests).",
    "holm": "The probability of any false positive is at most α (family-wise error rate, Holm).",
    "none": "Each test alone has a false positive rate of at most α; not corrected for the number "
    "of tests.",
}

# What `to_dict` has of a test of an earlier call.
_IDENTITY = ("audit", "attributes", "groups", "metric", "p_value")

Outcome = Literal["difference", "no difference shown", "cannot be determined"]
_KINDS: dict[Outcome, Kind] = {
    "difference": "difference",
    "no difference shown": "none",
    "cannot be determined": "undetermined",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question about one window. Evidence is aggregates only, never rows.

    Attributes:
        audit: Name of the audit: `permutation`, `selection`, `projection`, `fliptest`.
        question: Question in words.
        attributes: Protected attributes; several if they are crossed or tested jointly.
        groups: Groups that are compared; the effect is the first minus the second.
        metric: Metric or criterion.
        rows: Number of predictions by group.
        unknown: Numbers of predictions of unknown group and without a label.
        effect: Signed difference, first group minus second; None if it could not be estimated.
        interval: 95% confidence interval of the effect.
        range: Smallest and largest effect over all values of the unknown groups or labels; None if
            all are known, or if the metric is not a rate.
        unit: Unit of the effect: `rate`, `score`, `auc`; None if the audit has no difference.
        direction: Direction of the effect in words; None without an effect.
        disadvantaged: Group that the effect disadvantages; None if the metric does not say, or if
            the direction is not clear.
        explanation: FlipTest: features through which most decisions change; projection: number of
            decisions that the smallest fair change alters; None for other audits.
        sentences: Result in sentences that can be quoted, with figures and intervals.
        share: Share of the first group whose decision would change; None for other audits.
        share_interval: 95% confidence interval of the share.
        statistic: Test statistic.
        p_value: p-value of this test alone; None if there is a `reason`.
        p_value_kind: How the p-value is computed, such as `mid-p`; None without one.
        adjusted_p_value: p-value corrected for all tests of the family.
        tests: Number of tests in the family; None if p is not corrected.
        alpha: Significance level.
        smallest_detectable_effect: Smallest effects downwards and upwards that the test detects
            with 80% power; None for a direction where no effect is. None without a test.
        reason: Why there is no p-value.
        warnings: Warnings about the data.
        seed: Seed of the random generator.
        evidence: Full result of the test, ready for JSON.
    """

    audit: str
    question: str
    attributes: tuple[str, ...]
    groups: tuple[str, ...]
    metric: str
    rows: Mapping[str, int]
    unknown: Unknowns | None = None
    effect: float | None
    interval: tuple[float, float] | None
    range: tuple[float, float] | None = None
    unit: str | None = None
    direction: str | None = None
    disadvantaged: str | None = None
    explanation: str | None = None
    sentences: tuple[str, ...] = ()
    share: float | None = None
    share_interval: tuple[float, float] | None = None
    statistic: float | None
    p_value: float | None
    p_value_kind: str | None = None
    adjusted_p_value: float | None = None
    tests: int | None = None
    alpha: float = 0.05
    smallest_detectable_effect: Detectable | None
    reason: str | None
    warnings: tuple[str, ...] = ()
    seed: int
    evidence: Mapping[str, Any]

    @property
    def outcome(self) -> Outcome:
        """Outcome by the adjusted p-value; without a p-value, `reason` says why there is none."""
        p = self.p_value if self.adjusted_p_value is None else self.adjusted_p_value
        if p is None:
            return "cannot be determined"
        return "difference" if p <= self.alpha else "no difference shown"

    @property
    def test(self) -> tuple[object, ...]:
        """What identifies the test: a repetition gives the same, another seed or option does not.

        Figures are rounded, since an engine may add up the same rows in another order.
        """
        figures = (self.statistic, self.p_value)
        rounded = (None if figure is None else f"{figure:.9g}" for figure in figures)
        return (self.audit, self.question, self.attributes, self.groups, self.metric, *rounded)

    def to_dict(self) -> dict[str, Any]:
        """All values in JSON form."""
        values: dict[str, Any] = json_ready(self)
        return {**values, "outcome": self.outcome}

    def __str__(self) -> str:
        return to_text(*finding_text(self))

    def _repr_html_(self) -> str:
        return to_html(*finding_text(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings of one or several calls, corrected for the number of tests.

    Attributes:
        findings: Findings in the order of the tests.
        correction: Correction for multiple tests.
        alpha: Significance level.
        earlier: Findings of earlier calls on the same window, whose tests are part of the family.
        window: Window that was audited; None for arrays and files.
        versions: Versions of the packages that computed the figures.
    """

    findings: tuple[Finding, ...]
    correction: Correction
    alpha: float
    earlier: tuple[Finding, ...] = ()
    window: WindowFacts | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def corrected(
        cls,
        findings: Sequence[Finding],
        *,
        correction: Correction = "bh",
        alpha: float = 0.05,
        earlier: Sequence[Finding] = (),
        window: WindowFacts | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> Findings:
        """Correct the p-values of findings for the number of tests of their family.

        The family is these findings and the earlier ones. A repeated test counts once.
        """
        included = {finding.test for finding in findings}
        others = {one.test: one for one in earlier if one.test not in included}
        family = {f.test: f.p_value for f in (*findings, *others.values()) if f.p_value is not None}
        adjusted = dict(
            zip(family, adjusted_p_values(list(family.values()), correction), strict=True)
        )
        tests = None if correction == "none" else len(family)
        return cls(
            findings=tuple(
                dataclasses.replace(
                    finding,
                    adjusted_p_value=adjusted.get(finding.test),
                    tests=None if finding.p_value is None else tests,
                    alpha=alpha,
                )
                for finding in findings
            ),
            correction=correction,
            alpha=alpha,
            earlier=tuple(one for one in others.values() if one.p_value is not None),
            window=window,
            versions=versions or {},
        )

    @property
    def tests(self) -> int:
        """Number of tests in the family: those of these findings and earlier ones."""
        return len({f.test for f in (*self.findings, *self.earlier) if f.p_value is not None})

    def together(self, *others: Findings) -> Findings:
        """These findings and those of other calls, corrected together; a repeated test counts once.

        Raises:
            AuditInputError: The findings differ in window, correction or alpha.
        """
        parts = (self, *others)
        for name in ("correction", "alpha"):
            if len(values := {getattr(part, name) for part in parts}) > 1:
                listed = ", ".join(sorted(map(str, values)))
                raise AuditInputError(f"together: findings differ in {name} ({listed})")
        windows = {
            (facts.model, facts.since, facts.until, facts.sha256): facts
            for facts in (part.window for part in parts)
            if facts is not None
        }
        if len(windows) > 1:
            raise AuditInputError(
                "together: the findings are of different windows: "
                f"{'; '.join(map(str, windows.values()))}"
            )
        versions = {name: version for part in parts for name, version in part.versions.items()}
        return Findings.corrected(
            list({finding.test: finding for part in parts for finding in part}.values()),
            correction=self.correction,
            alpha=self.alpha,
            earlier=[finding for part in parts for finding in part.earlier],
            window=next(iter(windows.values()), None),
            versions=versions,
        )

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def differences(self) -> tuple[Finding, ...]:
        """Findings that are differences after correction."""
        return tuple(finding for finding in self.findings if finding.outcome == "difference")

    def to_dict(self) -> dict[str, Any]:
        """All values in JSON form."""
        return {
            "findings": [finding.to_dict() for finding in self.findings],
            "correction": self.correction,
            "guarantee": guarantee(self.correction),
            "alpha": self.alpha,
            "tests": self.tests,
            "earlier": [
                {name: json_ready(getattr(finding, name)) for name in _IDENTITY}
                for finding in self.earlier
            ],
            "window": json_ready(self.window),
            "versions": dict(self.versions),
        }

    def plot(self) -> Figure:
        """Figure of the effects with their intervals, by attribute and unit."""
        estimates = [
            Estimate(
                name=f"{finding.metric}: {' – '.join(finding.groups)}",
                value=finding.effect,
                interval=finding.interval,
                kind=_KINDS[finding.outcome],
                section=attribute_name(finding),
                rows=tuple(
                    finding.rows[group] for group in finding.groups if group in finding.rows
                ),
                unit=finding.unit,
                range=finding.range,
            )
            for finding in self.findings
            if finding.effect is not None
        ]
        legend: dict[Kind, str] = {
            "difference": f"a difference at α = {self.alpha:g}, {family_text(self)}",
            "none": "no difference shown",
            "undetermined": "cannot be determined",
        }
        return interval_figure(estimates, plot_title(self), legend)

    def __str__(self) -> str:
        return to_text(*findings_text(self, guarantee(self.correction)))

    def _repr_html_(self) -> str:
        return to_html(*findings_text(self, guarantee(self.correction)))


def adjusted_p_values(p_values: Sequence[float | None], method: Correction) -> list[float | None]:
    """p-values corrected for the number of tests.

    Args:
        p_values: p-values; None for a question without a p-value, which is not counted.
        method: Correction method.

    Raises:
        AuditInputError: There is no such method.
    """
    if method not in _GUARANTEES:
        raise AuditInputError(
            f"correction: unknown method {method!r}; use one of {', '.join(_GUARANTEES)}"
        )
    tested = [index for index, p in enumerate(p_values) if p is not None]
    raw = np.array([p_values[index] for index in tested], float)
    adjusted: list[float | None] = [None] * len(p_values)
    for index, p in zip(tested, _adjusted(raw, method), strict=True):
        adjusted[index] = float(p)
    return adjusted


def guarantee(method: Correction) -> str:
    """Statistical guarantee of a method, in words."""
    return _GUARANTEES[method]


def _adjusted(p: np.ndarray, method: Correction) -> np.ndarray:
    if method == "none" or not len(p):
        return p
    if method != "holm":
        return np.asarray(false_discovery_control(p, method=method))
    order = np.argsort(p, kind="stable")
    # Holm: the k-th smallest p-value times m − k + 1, made monotone.
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
