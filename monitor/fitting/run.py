"""Fit a bundle: status model, transport maps, baseline and audit, from data with known groups.

Each step uses a part of the rows of its own, see `parts`. The audit's share of flips is
cross-fitted on all rows with maps of its own, see `intervals`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from monitor.bundle import Bundle, Fitted, write_bundle
from monitor.bundle.classifier import export_classifier, load_classifier, with_ranges
from monitor.bundle.manifest import BundleSpec, ProtectedAttribute
from monitor.bundle.writer import check_target
from monitor.drift.reference import DriftReference
from monitor.errors import BundleError, FitError, KernelError
from monitor.fitting.audit import (
    FitAudit,
    UnlikeRows,
    WildRows,
    audit_attribute,
    dependence_by_name,
)
from monitor.fitting.classifier_file import classifier_file
from monitor.fitting.data import FitData, read_data
from monitor.fitting.draws import with_chosen_draws
from monitor.fitting.intervals import FlipShareInterval, flip_share_interval
from monitor.fitting.parts import check_parts, disjoint_parts
from monitor.fitting.performance import check_classifier
from monitor.fitting.scored_rows import MOST_SCORED, baseline_of, finite_logits, score_rows
from monitor.fitting.separability import separability
from monitor.fitting.spec import FitSpec
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.counterfactual import TransportMaps, fit_transport_maps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.input_check import InputCheck
from monitor.scoring.judge import maps_to_npz
from monitor.scoring.kernel import Target, load_kernel
from monitor.scoring.robust import OrdinaryRange, robust_spread
from monitor.scoring.scores import Reason, Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import calibrate, status_report, train_status_model
from monitor.threads import one_thread

__all__ = [
    "FitResult",
    "Progress",
    "compiled_in_words",
    "compiled_pass",
    "fit",
]

# Called with the name of the step, the completed units and the total number of units.
Progress = Callable[[str, int, int], None]

_MOST_EXPLAINED = 4_000
_LEAST_REFITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit.

    Attributes:
        bundle: The bundle that was written.
        audit: Training-time audit of the classifier.
        not_compiled: Why the bundle has no compiled code; empty if it has.
    """

    bundle: Bundle
    audit: FitAudit
    not_compiled: str

    @property
    def compiled_in_words(self) -> str:
        """Whether the bundle has compiled code, and what to do if not."""
        return compiled_in_words(self.bundle, self.not_compiled)


def fit(
    classifier: bytes | Path | str | nn.Module,
    data: FitData | Path | str | Any,
    spec: FitSpec,
    out: Path | str,
    *,
    seed: int = 0,
    replace: bool = False,
    compiled: bool = True,
    n_refits: int = 20,
    progress: Progress | None = None,
) -> FitResult:
    """Fit status model, transport maps and baseline for a classifier, and write a bundle.

    Args:
        classifier: A torch.export archive or TorchScript, as bytes or a path; or a module.
        data: Rows like those of production, if possible not from the classifier's training data:
            the result of `read_data`, or what it reads (a file, a data frame or a table).
        spec: Description of the columns.
        out: Path of the bundle.
        seed: Seed of the split and of the training.
        replace: Whether to replace an existing bundle.
        compiled: Whether to compile the scoring pass, which takes half a minute and a C++
            compiler, and makes scoring many times faster.
        n_refits: Number of refits of the transport maps for the interval of the audit's share of
            flips, at least 5; 0 for an interval that covers the sampling of rows only.
        progress: Function that is called with the step, its completed and its total units.

    Raises:
        FitError: The data are not usable, or the number of refits is not; if the classifier's file
            is not usable either, the message says so, too.
        BundleError: The classifier does not match the spec, or the bundle cannot be written.
    """
    if n_refits and n_refits < _LEAST_REFITS:
        raise FitError(f"n_refits is {n_refits}; it must be 0 or at least {_LEAST_REFITS}")
    check_target(Path(out), replace=replace)
    with one_thread():
        return _fit(classifier, data, spec, Path(out), seed, replace, compiled, n_refits, progress)


def _fit(
    classifier: bytes | Path | str | nn.Module,
    source: FitData | Path | str | Any,
    spec: FitSpec,
    out: Path,
    seed: int,
    replace: bool,  # noqa: FBT001 - passed on
    compiled: bool,  # noqa: FBT001 - passed on
    n_refits: int,
    progress: Progress | None,
) -> FitResult:
    report = progress or (lambda _step, _done, _total: None)
    data, file, contents = _checked_inputs(classifier, source, spec)
    features = with_ranges(spec.features, data.features)
    fitted = Fitted.now(seed=seed, rows=len(data.features))
    bundle_spec = spec.bundle_spec(file, features, fitted)
    name = str(classifier) if isinstance(classifier, Path | str) else "the classifier"
    loaded = load_classifier(contents, bundle_spec, given_as=name)
    parts = disjoint_parts(len(data.features), seed, most_scored=MOST_SCORED)
    inputs = InputCheck.fit(
        data.features[parts["training"]], bundle_spec.features, bundle_spec.one_hot_groups
    )
    reasons = inputs.reasons(data.features)
    # Rows that would get no scores in production have no part in what these are compared with.
    compared = ("baseline", "evaluation")
    parts |= {name: parts[name][reasons[parts[name]] == Reason.NONE] for name in compared}
    check_parts(parts, data.groups)
    training, calibration, baseline_rows, evaluation = parts.values()

    attributes = bundle_spec.protected_attributes
    status = train_status_model(
        data.features[training],
        _rows(data.groups, training),
        attributes,
        seed=seed,
        progress=lambda done, total: report("training the status model", done, total),
    )
    calibrate(status, data.features[calibration], _rows(data.groups, calibration), attributes)
    maps = _fit_maps(data, training, bundle_spec, spec.order, report)
    logits = finite_logits(loaded.logit, data.features[training])
    sensitivity = Sensitivity(
        logit=loaded.logit,
        status=status,
        maps=maps,
        spec=bundle_spec,
        logit_spread=robust_spread(logits),
        first_layer=first_layer(loaded),
        inputs=inputs,
    )
    sensitivity = with_chosen_draws(
        sensitivity,
        data.features[calibration],
        _rows(data.groups, calibration),
        seed=seed,
        progress=lambda done, total: report("choosing the number of draws", done, total),
    )
    baseline_scores = score_rows(
        sensitivity, data.features[baseline_rows], report, "scoring the baseline"
    )
    audit_scores = score_rows(sensitivity, data.features[evaluation], report, "auditing")
    ordinary = data.select(reasons == Reason.NONE)
    intervals = _intervals(sensitivity, ordinary, spec.order, n_refits, seed, report)
    audit = _audit(sensitivity, data, parts, audit_scores, logits, intervals, reasons)
    files = {
        file: contents,
        "status.pt2": export_classifier(status, bundle_spec.width),
        "maps.npz": maps_to_npz(sensitivity.maps, sensitivity.logit_spread),
        "inputs.npz": inputs.to_npz(),
        "baseline.npz": baseline_of(baseline_scores).to_npz(),
        "drift.npz": _drift(baseline_scores, seed).to_npz(),
        "audit.txt": audit.text().encode(),
        "audit.json": json.dumps(audit.to_dict(), indent=2, allow_nan=False).encode(),
        "audit.png": audit.png(),
    }
    kernel, not_compiled = (
        compiled_pass(sensitivity, report) if compiled else ({}, "compilation was disabled")
    )
    written = write_bundle(out, bundle_spec, files | kernel, replace=replace)
    return FitResult(bundle=written, audit=audit, not_compiled=not_compiled)


def _checked_inputs(
    classifier: bytes | Path | str | nn.Module, source: FitData | Path | str | Any, spec: FitSpec
) -> tuple[FitData, str, bytes]:
    """Validated data, and name and content of the classifier's file in the bundle.

    Raises:
        FitError: The data are not usable; the message also has the problem of the classifier.
        BundleError: The classifier is not usable.
    """
    unusable: BundleError | None = None
    try:
        file, contents = classifier_file(classifier, spec)
    except BundleError as error:
        unusable, file, contents = error, "", b""
    try:
        data = source if isinstance(source, FitData) else read_data(source, spec)
        data = data.checked(spec)
    except FitError as error:
        if unusable is None:
            raise
        raise FitError(f"{error}\n{unusable}") from None
    if unusable is not None:
        raise unusable
    return data, file, contents


def compiled_pass(sensitivity: Sensitivity, report: Progress) -> tuple[dict[str, bytes], str]:
    """The compiled pass by its file name, after a test; or the reason why there is none."""
    report("compiling", 0, 1)
    target = Target.here()
    if target is None:
        return {}, "this processor is not supported"
    try:
        data = compile_kernel(sensitivity, target)
        load_kernel(data, target, sensitivity)
    except KernelError as error:
        return {}, str(error)
    report("compiling", 1, 1)
    return {target.file: data}, ""


def compiled_in_words(bundle: Bundle, not_compiled: str) -> str:
    """Whether a bundle has compiled code; if not, the given reason and what to do."""
    targets = [t for t in map(Target.of_file, bundle.files) if t is not None]
    if targets:
        names = ", ".join(f"torch {target.torch} on {target.level}" for target in targets)
        return f"compiled for {names}; compiled code runs only if the digest is pinned"
    return (
        f"not compiled: {not_compiled}. Predictions will be scored by uncompiled code, "
        "which is many times slower; `evenhand bundle compile` adds compiled code."
    )


def _rows(
    groups: Mapping[str, NDArray[np.int8]], rows: NDArray[np.int64]
) -> dict[str, NDArray[np.int8]]:
    return {name: values[rows] for name, values in groups.items()}


def _fit_maps(
    data: FitData,
    training: NDArray[np.int64],
    spec: BundleSpec,
    order: Sequence[str],
    report: Progress,
) -> dict[str, TransportMaps]:
    maps = {}
    for number, attribute in enumerate(spec.protected_attributes, start=1):
        maps[attribute.name] = _fit_map(data, training, spec, attribute, order)
        report("fitting transport maps", number, len(spec.protected_attributes))
    return maps


def _fit_map(
    data: FitData,
    rows: NDArray[np.int64],
    spec: BundleSpec,
    attribute: ProtectedAttribute,
    order: Sequence[str],
    *,
    repair: bool = True,
) -> TransportMaps:
    return fit_transport_maps(
        data.features[rows],
        data.groups[attribute.name][rows],
        spec.features,
        spec.one_hot_groups,
        len(attribute.groups),
        repair=repair,
        order=order,
    )


def _intervals(
    sensitivity: Sensitivity,
    data: FitData,
    order: Sequence[str],
    n_refits: int,
    seed: int,
    report: Progress,
) -> dict[str, FlipShareInterval]:
    """Flip share of every attribute with its interval over data and fit; empty without refits."""
    attributes = sensitivity.spec.protected_attributes if n_refits else ()

    def interval(number: int, attribute: ProtectedAttribute) -> FlipShareInterval:
        def refit(rows: NDArray[np.int64]) -> Sensitivity:
            # Which pairs need a repair is tested in each refit only if any pair did.
            repair = bool(sensitivity.maps[attribute.name].repairs)
            maps = _fit_map(data, rows, sensitivity.spec, attribute, order, repair=repair)
            return dataclasses.replace(sensitivity, maps={attribute.name: maps}, first_layer=None)

        return flip_share_interval(
            refit,
            data.features,
            data.groups[attribute.name],
            attribute,
            n_refits=n_refits,
            seed=seed,
            progress=lambda done, total: report(
                "refitting for the interval", number * total + done, len(attributes) * total
            ),
        )

    return {a.name: interval(number, a) for number, a in enumerate(attributes)}


def _drift(scores: Scores, seed: int) -> DriftReference:
    signals = scores.predictions
    return DriftReference.from_rows(signals.margin, signals.attributes, seed=seed)


def _audit(
    sensitivity: Sensitivity, data: FitData, parts: Mapping[str, NDArray[np.int64]],
    scores: Scores, training_logits: NDArray[np.float32],
    intervals: Mapping[str, FlipShareInterval], reasons: NDArray[np.int64],
) -> FitAudit:  # fmt: skip
    spec, levels, rows = sensitivity.spec, baseline_of(scores).levels, parts["evaluation"]
    training = data.features[parts["training"]]
    ordinary_range = OrdinaryRange.of(training)
    features = torch.from_numpy(data.features[rows])
    # Wild rows would dominate the sums of changes.
    explained = torch.from_numpy(ordinary_range.ordinary(data.features[rows[:_MOST_EXPLAINED]]))
    with torch.no_grad():
        logits = sensitivity.status(features)
    classifier = check_classifier(
        scores,
        spec.decision,
        None if data.labels is None else data.labels[rows],
        _rows(data.groups, rows),
        spec.protected_attributes,
    )
    audits = {}
    for attribute in spec.protected_attributes:
        groups = data.groups[attribute.name][rows]
        audits[attribute.name] = audit_attribute(
            attribute,
            spec.decision,
            scores,
            groups,
            levels[attribute.name],
            status_report(logits[:, spec.heads[attribute.name]], groups, attribute),
            sensitivity.feature_shares(explained, attribute.name),
            intervals.get(attribute.name),
            dependence_by_name(sensitivity.maps[attribute.name], spec),
            separability(
                sensitivity.maps[attribute.name],
                attribute,
                (training, data.groups[attribute.name][parts["training"]]),
                (data.features[rows], groups),
                seed=spec.fitted.seed,
            ),
            classifier.doubt,
        )
    return FitAudit(
        model=f"{spec.model.name} version {spec.model.version}",
        rows={name: len(rows) for name, rows in parts.items()},
        classifier=classifier,
        attributes=audits,
        missing=scores.missing,
        unlike=UnlikeRows.of(reasons),
        wild=WildRows.of(
            [feature.name for feature in spec.features],
            ordinary_range.wild(training),
            OrdinaryRange.of(training_logits[:, None]).wild(training_logits[:, None]),
        ),
        merged=data.merged,
        excluded=data.excluded,
    )
