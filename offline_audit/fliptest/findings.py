"""From a window, or a file, to findings of FlipTest."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from monitor.bundle import Bundle, BundleSpec
from offline_audit.audited_model import AuditedModel
from offline_audit.correction import Correction
from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding, Findings
from offline_audit.fliptest.progress import ShowProgress
from offline_audit.fliptest.result import FlipDirection, FlipTestResult
from offline_audit.fliptest.run import flip_test
from offline_audit.fliptest.tables import TableRows, rows_of_file, rows_of_window
from offline_audit.maps import MapMethod
from offline_audit.projection.criteria import CRITERIA, Criterion
from offline_audit.window import Window
from offline_audit.window_facts import WindowFacts, computed_by

__all__ = ["fliptest_findings"]

# Of a group in a file.
_MOST_ROWS = 100_000


def fliptest_findings(
    source: Window | Path | str | pa.Table,
    model: Bundle | Path | str | AuditedModel,
    by: Sequence[str] | None = None,
    *,
    manifest: BundleSpec | None = None,
    criteria: Sequence[Criterion] = ("statistical_parity",),
    map: str | MapMethod = "joint_quantile",  # noqa: A002 - what users call it
    rows: int = 10_000,
    permutations: int | None = None,
    resamples: int | None = None,
    correction: Correction = "bh",
    level: float = 0.05,
    seed: int = 0,
    progress: ShowProgress | bool | None = None,
) -> Findings:
    """Whose decisions would differ in another group: one finding for every direction.

    The effect is the share of a group whose decision would be another, either way; the evidence
    holds both sides, features and subgroups as aggregates.

    Args:
        source: A window with outcomes; or a Parquet or CSV file, or a table, with the features and
            a column for each protected attribute.
        model: What decides: its bundle, or an `AuditedModel`, for example of an endpoint.
        by: Protected attributes; None for all of the manifest.
        manifest: Of the bundle; needed with an `AuditedModel`.
        criteria: Within which outcomes people are carried; see `flip_test`.
        map: See `flip_test`.
        rows: Of each group of a window, and label, at most.
        permutations: See `flip_test`.
        resamples: See `flip_test`.
        correction: How the number of tests is allowed for.
        level: At which a difference is called.
        seed: Of whatever is random.
        progress: See `flip_test`.

    Raises:
        AuditInputError: What was given cannot be used.
        UnknownColumnError: There is no such attribute.
    """
    if unknown := [criterion for criterion in criteria if criterion not in CRITERIA]:
        raise AuditInputError(f"criteria: {unknown[0]!r} is none of {', '.join(CRITERIA)}")
    bundle = Bundle.read(model) if isinstance(model, Path | str) else model
    if isinstance(bundle, Bundle):
        manifest, asked = bundle.manifest, AuditedModel.of(bundle)
    else:
        asked = bundle
    if manifest is None:
        raise AuditInputError("manifest: an AuditedModel does not say what its features are")
    facts = WindowFacts.of(source.provenance) if isinstance(source, Window) else None
    found: list[Finding] = []
    for attribute in by or [each.name for each in manifest.protected_attributes]:
        for criterion in criteria:
            people = _people(source, manifest, attribute, criterion, facts, rows, seed)
            found += _tested(
                people,
                asked,
                manifest,
                criterion=criterion,
                map=map,
                permutations=permutations,
                resamples=resamples,
                level=level,
                seed=seed,
                progress=progress,
            )
    return Findings.corrected(
        found,
        correction=correction,
        level=level,
        window=facts,
        versions={**computed_by(), **{name: version(name) for name in ("torch", "POT")}},
    )


def _people(
    source: Window | Path | str | pa.Table,
    manifest: BundleSpec,
    attribute: str,
    criterion: Criterion,
    facts: WindowFacts | None,
    rows: int,
    seed: int,
) -> TableRows:
    favourable = manifest.decision.favourable
    if not isinstance(source, Window):
        return rows_of_file(source, manifest, attribute, favourable=favourable)
    if facts is not None and facts.favourable != favourable:
        raise AuditInputError(
            "the manifest and the log disagree about which decision is favourable"
        )
    return rows_of_window(
        source,
        manifest,
        attribute,
        by_label=CRITERIA[criterion] != (None,),
        rows=rows,
        favourable=favourable,
        seed=seed,
    )


def _tested(
    people: TableRows, model: AuditedModel, manifest: BundleSpec, **options: Any
) -> list[Finding]:
    criterion = options["criterion"]
    names = sorted(set(people.groups.tolist()))
    if len(names) < 2:
        known = f"only {names[0]} is" if names else "none is"
        reason = f"two groups of {people.attribute} are needed, and {known} known."
        return [_nothing(people, criterion, reason, options["seed"])]
    result = flip_test(
        model,
        people.features,
        {people.attribute: people.groups},
        labels=None if CRITERIA[criterion] == (None,) else people.labels,
        columns=manifest,
        most_rows=_MOST_ROWS,
        **options,
    )
    return [_finding(each, result, people) for each in result.directions]


def _question(source: str, target: str, label: int | None) -> str:
    within = "" if label is None else f", among those with label {label}"
    return f"would decisions about {source} differ, had they been {target}{within}?"


def _finding(each: FlipDirection, result: FlipTestResult, people: TableRows) -> Finding:
    metric = "flips" if each.label is None else f"flips, label {each.label}"
    return Finding(
        audit="fliptest",
        question=_question(each.source, each.target, each.label),
        attributes=(result.attribute,),
        groups=(each.source, each.target),
        metric=metric,
        rows={each.source: each.rows[0], each.target: each.rows[1]},
        effect=None if each.gross is None else each.gross.value,
        interval=None if each.gross is None else each.gross.interval,
        statistic=None if each.gross is None else each.gross.value,
        p_value=each.p_value,
        detectable=each.detectable,
        reason=each.reason,
        warnings=(*people.warnings, *result.warnings, *each.warnings),
        seed=result.seed,
        evidence={**each.to_dict(), "map": result.map, "cost": result.cost, "draws": result.draws},
    )


def _nothing(people: TableRows, criterion: Criterion, reason: str, seed: int) -> Finding:
    return Finding(
        audit="fliptest",
        question=f"would decisions differ in another group ({criterion.replace('_', ' ')})?",
        attributes=(people.attribute,),
        groups=(),
        metric="flips",
        rows={},
        effect=None,
        interval=None,
        statistic=None,
        p_value=None,
        detectable=None,
        reason=reason,
        warnings=people.warnings,
        seed=seed,
        evidence={},
    )
