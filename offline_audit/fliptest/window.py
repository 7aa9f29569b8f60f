"""Findings of FlipTest for a window of the log, or for a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from monitor.bundle import Bundle, BundleSpec
from offline_audit.criteria import CRITERIA, Criterion
from offline_audit.errors import AuditInputError
from offline_audit.finding import Finding
from offline_audit.fliptest.result import FlipDirection, FlipTestResult
from offline_audit.fliptest.tables import TableRows, rows_of_file, rows_of_window
from offline_audit.fliptest.test import flip_test
from offline_audit.groups import too_few_groups
from offline_audit.maps import MapMethod
from offline_audit.model.audited_model import AuditedModel
from offline_audit.progress import Progress
from offline_audit.window.provenance import WindowFacts
from offline_audit.window.window import Window

__all__ = ["findings"]

# Limit of rows per group for files; rows of a window are limited by `max_rows`.
_MAX_ROWS_OF_FILE = 100_000


def findings(
    window: Window | Path | str | pa.Table,
    by: str | Sequence[str] | None = None,
    *,
    model: Bundle | Path | str | AuditedModel | None,
    criteria: Sequence[Criterion] = ("statistical_parity",),
    map: str | MapMethod = "joint_quantile",  # noqa: A002 - what users call it
    alpha: float = 0.05,
    n_resamples: int | None = None,
    n_bootstrap: int | None = None,
    max_rows: int = 10_000,
    seed: int = 0,
    progress: Progress | bool | None = None,
    manifest: BundleSpec | None = None,
) -> list[Finding]:
    """Whose decisions would change in another group: one finding per direction, not corrected.

    The evidence holds both sides of the flipset, features and subgroups, as aggregates.

    Args:
        window: Window with outcomes; or a Parquet or CSV file, or a table, with the features and
            one column per protected attribute.
        by: Protected attribute, or a list of them; None for all of the manifest.
        model: Bundle of the model, or an `AuditedModel`, for example of an endpoint.
        criteria: Criteria; see `flip_test`.
        map: Transport map; see `flip_test`.
        alpha: Significance level.
        n_resamples: Number of permutations behind a p-value; see `flip_test`.
        n_bootstrap: Number of bootstrap resamples behind intervals; see `flip_test`.
        max_rows: Largest number of rows per group and label that are read from a window.
        seed: Seed of the random generator.
        progress: Progress callback; see `flip_test`.
        manifest: Manifest of the bundle; required with an `AuditedModel`.

    Raises:
        AuditInputError: Invalid input.
        UnknownColumnError: No such protected attribute.
    """
    if unknown := [criterion for criterion in criteria if criterion not in CRITERIA]:
        raise AuditInputError(
            f"criteria: unknown criterion {unknown[0]!r}; use one of {', '.join(CRITERIA)}"
        )
    if model is None:
        raise AuditInputError("model: FlipTest needs the model; pass its bundle or an AuditedModel")
    bundle = Bundle.read(model) if isinstance(model, Path | str) else model
    if isinstance(bundle, Bundle):
        manifest, audited = bundle.manifest, AuditedModel.of(bundle)
    else:
        audited = bundle
    if manifest is None:
        raise AuditInputError(
            "manifest: required with an AuditedModel, which does not describe its features"
        )
    result: list[Finding] = []
    for attribute in _attributes(by, manifest):
        for criterion in criteria:
            rows = _rows(window, manifest, attribute, criterion, max_rows, seed)
            result += _findings_of_rows(
                rows,
                audited,
                manifest,
                criterion=criterion,
                map=map,
                n_resamples=n_resamples,
                n_bootstrap=n_bootstrap,
                alpha=alpha,
                seed=seed,
                progress=progress,
            )
    if isinstance(window, Window):
        window.record(result)
    return result


def _attributes(by: str | Sequence[str] | None, manifest: BundleSpec) -> list[str]:
    if by is None:
        return [attribute.name for attribute in manifest.protected_attributes]
    names = [by] if isinstance(by, str) else list(by)
    if isinstance(by, tuple) or any(isinstance(name, tuple) for name in names):
        raise AuditInputError(
            "by: a tuple means the crossing of its attributes, which FlipTest does not support; "
            "give a list of single attributes"
        )
    return names


def _rows(
    source: Window | Path | str | pa.Table,
    manifest: BundleSpec,
    attribute: str,
    criterion: Criterion,
    max_rows: int,
    seed: int,
) -> TableRows:
    favourable = manifest.decision.favourable
    if not isinstance(source, Window):
        return rows_of_file(source, manifest, attribute, favourable=favourable)
    if WindowFacts.of(source.provenance).favourable != favourable:
        raise AuditInputError(
            "manifest: its favourable decision is not the one recorded in the log; use the bundle "
            "that was deployed"
        )
    return rows_of_window(
        source,
        manifest,
        attribute,
        by_label=CRITERIA[criterion] != (None,),
        rows=max_rows,
        favourable=favourable,
        seed=seed,
    )


def _findings_of_rows(
    rows: TableRows, model: AuditedModel, manifest: BundleSpec, **options: Any
) -> list[Finding]:
    criterion = options["criterion"]
    names = sorted(set(rows.groups.tolist()))
    if reason := too_few_groups(names, rows.attribute):
        return [_untested_finding(rows, criterion, reason, options["seed"])]
    result = flip_test(
        model,
        rows.features,
        {rows.attribute: rows.groups},
        labels=None if CRITERIA[criterion] == (None,) else rows.labels,
        units=rows.units,
        columns=manifest,
        label_counts=rows.label_counts,
        max_rows=_MAX_ROWS_OF_FILE,
        **options,
    )
    classes = manifest.decision.class_names
    favourable = manifest.decision.favourable
    words = f"{classes[1 - favourable]!r}", f"{classes[favourable]!r}"
    return [_finding(direction, result, rows, words) for direction in result.directions]


def _question(source: str, target: str, label: int | None) -> str:
    within = "" if label is None else f", among those with label {label}"
    return f"would decisions about {source} change if they were {target}{within}?"


def _finding(
    direction: FlipDirection, result: FlipTestResult, rows: TableRows, words: tuple[str, str]
) -> Finding:
    gross, net = direction.gross, direction.net
    return Finding(
        audit="fliptest",
        question=_question(direction.source, direction.target, direction.label),
        attributes=(result.attribute,),
        groups=(direction.source, direction.target),
        metric="flips" if direction.label is None else f"flips, label {direction.label}",
        rows={direction.source: direction.rows[0], direction.target: direction.rows[1]},
        unknown=rows.unknown,
        effect=None if net is None else net.value,
        interval=None if net is None else net.interval,
        unit="rate",
        direction=None if net is None else _direction_text(direction, net.value),
        disadvantaged=_disadvantaged(direction),
        explanation=_features(direction),
        sentences=direction.sentences(words),
        share=None if gross is None else gross.value,
        share_interval=None if gross is None else gross.interval,
        statistic=None if gross is None else gross.value,
        p_value=direction.p_value,
        p_value_kind=direction.p_value_kind,
        smallest_detectable_effect=direction.smallest_detectable_effect,
        reason=direction.reason,
        warnings=(*rows.warnings, *result.warnings, *direction.warnings),
        seed=result.seed,
        evidence={
            **direction.to_dict(),
            "map": result.map,
            "cost": result.cost,
            "n_counterparts": result.n_counterparts,
        },
    )


def _disadvantaged(direction: FlipDirection) -> str | None:
    """The group that loses on balance, if that is clear."""
    groups = {"loses": direction.source, "gains": direction.target, "unclear": None}
    return groups[direction.balance]


def _features(direction: FlipDirection) -> str | None:
    """The features through which most decisions change, with the share that each undoes alone."""
    parts = [
        feature.name if feature.undone is None else f"{feature.name} {100 * feature.undone:.0f}%"
        for feature in direction.main_features
    ]
    return f"{', '.join(parts)}{direction.caveat}" if parts else None


def _direction_text(direction: FlipDirection, net: float) -> str:
    often = "as often as" if net == 0 else f"{'more' if net > 0 else 'less'} often than"
    counterparts = f"their counterparts in {direction.target}"
    return f"{direction.source} gets the favourable decision {often} {counterparts}"


def _untested_finding(rows: TableRows, criterion: Criterion, reason: str, seed: int) -> Finding:
    return Finding(
        audit="fliptest",
        question=f"would decisions change in another group ({criterion.replace('_', ' ')})?",
        attributes=(rows.attribute,),
        groups=(),
        metric="flips",
        rows={},
        unknown=rows.unknown,
        effect=None,
        interval=None,
        statistic=None,
        p_value=None,
        smallest_detectable_effect=None,
        reason=reason,
        warnings=rows.warnings,
        seed=seed,
        evidence={},
    )
