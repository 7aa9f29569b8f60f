"""Text of one finding, and of several with their correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from offline_audit.coverage import Unknowns
from offline_audit.rendering import (
    TextTable,
    bounds,
    count,
    format_p_value,
    p_equals,
    percent,
    signed,
)

if TYPE_CHECKING:
    from offline_audit.finding import Finding, Findings
    from offline_audit.power import Detectable

__all__ = ["attribute_name", "family_text", "finding_text", "findings_text", "plot_title"]

_HEADER = (
    *("audit", "attribute", "groups", "metric"),
    *("effect", "95% interval", "p", "adjusted", "outcome"),
)
# What the explanation of an audit is called in a table.
_EXPLANATION = {"fliptest": "features", "projection": "smallest fair change"}
# Differences whose sentences are printed with several findings.
_MOST_QUOTED = 12

Text = tuple[str, TextTable | None, Sequence[str]]


def finding_text(finding: Finding) -> Text:
    """What was asked and found, for whom, how sure it is, and what it does not show."""
    title = f"{finding.audit}, {finding.metric} by {attribute_name(finding)}: {finding.question}"
    if finding.unknown is not None:
        title += f" {finding.unknown}"
    notes = [_outcome(finding), *finding.sentences]
    if finding.smallest_detectable_effect is not None:
        notes.append(_detectable(finding.smallest_detectable_effect, finding.unit))
    if finding.rows:
        sizes = ", ".join(f"{group} {rows:,}" for group, rows in finding.rows.items())
        notes.append(f"Predictions: {sizes}.")
    return title, None, [*notes, *(f"! {warning}" for warning in finding.warnings)]


def _detectable(effects: Detectable, unit: str | None) -> str:
    """The effects that the test detects, in both directions."""
    if effects == (None, None):
        return "No effect is detected with 80% power in this number of rows."
    known = [effect for effect in effects if effect is not None]
    none = "" if len(known) == 2 else f" {'upwards' if effects[1] is None else 'downwards'}"
    amounts = " or ".join(_amount(effect, unit, sign="+") for effect in known)
    text = f"With 80% power the test detects an effect of about {amounts}"
    if none:
        return f"{text}, and none{none}; a smaller effect may exist."
    return f"{text}; a smaller effect may exist."


def _outcome(finding: Finding) -> str:
    if finding.p_value is None:
        return f"Cannot be determined: {finding.reason}"
    p = f"p {p_equals(finding.p_value)}"
    details = [] if finding.p_value_kind is None else [finding.p_value_kind]
    if finding.tests is None:
        details.append("not corrected for other tests")
    else:
        adjusted = format_p_value(finding.adjusted_p_value)
        details.append(f"{adjusted} corrected for {count(finding.tests, 'test')}")
    p += f" ({'; '.join(details)})"
    if finding.outcome == "no difference shown":
        return f"No difference shown at α = {finding.alpha:g}: {p}."
    return f"A difference at α = {finding.alpha:g}: {p}. Disadvantaged: {_disadvantaged(finding)}."


def findings_text(findings: Findings, guarantee: str) -> Text:
    """A table of all findings, sentences on each difference, and what the tests do not show."""
    title = _headline(findings)
    if findings.window is not None:
        title = f"{findings.window}: {title}"
    if unknown := Unknowns.joined(finding.unknown for finding in findings):
        title += f". {unknown}"
    return title, _table(findings), _notes(findings, guarantee)


def _headline(findings: Findings) -> str:
    """The number of differences."""
    tested = sum(f.p_value is not None for f in findings)
    untested = len(findings) - tested
    if not tested:
        return f"No test could be run; {count(untested, 'question')} without a p-value"
    title = f"{len(findings.differences)} of {tested} tests show a difference"
    title += f" at α = {findings.alpha:g}"
    return title + (f"; {untested} without a p-value" if untested else "")


def plot_title(findings: Findings) -> str:
    """The number of differences, and the largest of those that say who is disadvantaged."""
    title = _headline(findings)
    known = [f for f in findings.differences if f.disadvantaged and f.unit == "rate" and f.effect]
    if not known:
        return title
    largest = max(known, key=lambda finding: abs(finding.effect or 0.0))
    return f"{title}. Largest: {largest.sentences[0].partition(' (95%')[0].rstrip('.')}."


def _table(findings: Findings) -> TextTable:
    header: tuple[str, ...] = _HEADER
    rows = [_row(finding) for finding in findings]
    if any(finding.disadvantaged for finding in findings.differences):
        header = (*header, "disadvantaged")
        rows = _joined(rows, [_disadvantaged(finding) for finding in findings])
    if explained := {finding.audit for finding in findings if finding.explanation}:
        header = (*header, " / ".join(_EXPLANATION[audit] for audit in sorted(explained)))
        rows = _joined(rows, [finding.explanation or "–" for finding in findings])
    if any(finding.share is not None for finding in findings):
        # Only FlipTest has a share whose decision would change; its column precedes the effect.
        header = (*header[:4], "would change", *header[4:])
        shares = [percent(finding.share) for finding in findings]
        rows = [(*row[:4], share, *row[4:]) for row, share in zip(rows, shares, strict=True)]
    return TextTable(header=header, rows=tuple(rows), words=4)


def _joined(rows: list[tuple[str, ...]], column: list[str]) -> list[tuple[str, ...]]:
    return [(*row, cell) for row, cell in zip(rows, column, strict=True)]


def _row(finding: Finding) -> tuple[str, ...]:
    return (
        finding.audit,
        attribute_name(finding),
        " / ".join(finding.groups),
        finding.metric,
        signed(finding.effect),
        bounds(finding.interval),
        format_p_value(finding.p_value),
        format_p_value(finding.adjusted_p_value),
        finding.outcome,
    )


def _notes(findings: Findings, guarantee: str) -> list[str]:
    differences = [finding for finding in findings.differences if finding.sentences]
    notes = [
        f"{attribute_name(finding)}, {finding.metric}: {' '.join(finding.sentences)}"
        for finding in differences[:_MOST_QUOTED]
    ]
    if others := differences[_MOST_QUOTED:]:
        notes.append(f"{count(len(others), 'more difference')}: print each finding.")
    corrected = findings.correction != "none"
    family = f", {family_text(findings)}" if corrected else ""
    if findings.tests:
        notes.append(f"α = {findings.alpha:g}{family}. {guarantee}")
    if findings.earlier and corrected:
        notes.append(
            "Findings of earlier calls were corrected for fewer tests; `earlier.together(later)` "
            "corrects them again, with these."
        )
    notes += _kinds(findings)
    notes += _power(findings)
    reasons = dict.fromkeys(f.reason for f in findings if f.reason is not None)
    notes += [f"No p-value: {reason}" for reason in reasons]
    warnings = dict.fromkeys(w for finding in findings for w in finding.warnings)
    notes += [f"! {warning}" for warning in warnings]
    if findings.window is not None:
        notes += [f"! {warning}" for warning in findings.window.warnings]
    return notes


def family_text(findings: Findings) -> str:
    """What p-values are corrected for: the number of tests in the family, and of earlier ones."""
    if findings.correction == "none":
        return "not corrected for the number of tests"
    text = f"corrected for {count(findings.tests, 'test')}"
    if not findings.earlier:
        return text
    return f"{text}, {len(findings.earlier):,} of them from earlier calls on this window"


def _kinds(findings: Findings) -> list[str]:
    """How the p-values of each audit are computed."""
    kinds = dict.fromkeys((f.audit, f.p_value_kind) for f in findings if f.p_value_kind)
    if not kinds:
        return []
    return [f"p: {', '.join(f'{audit} ({kind})' for audit, kind in kinds)}."]


def _power(findings: Findings) -> list[str]:
    """What the tests that show no difference would have detected."""
    amounts: dict[str | None, list[float]] = {}
    blind = 0
    for finding in findings:
        effects = finding.smallest_detectable_effect
        if finding.outcome == "no difference shown" and effects is not None:
            known = [abs(effect) for effect in effects if effect is not None]
            blind += len(known) < 2
            if known:
                amounts.setdefault(finding.unit, []).extend(known)
    notes = []
    if amounts:
        ranges = ", ".join(_range(values, unit) for unit, values in amounts.items())
        notes.append(
            "No difference shown does not mean that there is none: with 80% power these tests "
            f"detect differences of about {ranges} or more."
        )
    if blind:
        tests = count(blind, "test")
        notes.append(f"{tests} without a difference cannot detect any in at least one direction.")
    return notes


def _range(values: Sequence[float], unit: str | None) -> str:
    least, most = _amount(min(values), unit), _amount(max(values), unit)
    return least if least == most else f"{least.split(' ')[0]} to {most}"


def _disadvantaged(finding: Finding) -> str:
    """The disadvantaged group of a difference."""
    return "–" if finding.outcome != "difference" else finding.disadvantaged or "not clear"


def attribute_name(finding: Finding) -> str:
    """Names of the attributes, with × if they are crossed, as groups are then named."""
    joint = finding.groups and not any(" × " in group for group in finding.groups)
    return (", " if joint else " × ").join(finding.attributes)


def _amount(value: float, unit: str | None, sign: str = "") -> str:
    """An effect with its unit; shares in percentage points."""
    if unit == "rate":
        return f"{100 * value:{sign}.1f} percentage points"
    return f"{value:{sign}.3f}" if unit is None else f"{value:{sign}.3f} ({unit})"
