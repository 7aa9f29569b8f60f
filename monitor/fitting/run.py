"""Fit a bundle: status model, transport maps, baseline and audit, from data with known groups.

    rows ─┬─ 50%  training: status model and transport maps
          ├─ 10%  calibration: temperatures of the status model
          ├─ 20%  baseline: scores that production is compared with
          └─ 20%  evaluation: the audit

The parts are disjoint, so the baseline is exchangeable with traffic and the audit is unbiased.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from monitor.bundle import Bundle, Fitted, write_bundle
from monitor.bundle.archive import model_format
from monitor.bundle.classifier import export_classifier, load_classifier, with_ranges
from monitor.bundle.manifest import BundleSpec
from monitor.bundle.writer import check_target
from monitor.drift.reference import DriftReference
from monitor.errors import FitError, KernelError
from monitor.fitting.audit import FitAudit, WildRows, audit_attribute
from monitor.fitting.data import FitData
from monitor.fitting.spec import FitSpec
from monitor.scoring.baseline import Baseline
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.counterfactual import TransportMaps, fit_transport_maps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.judge import maps_to_npz, signal_values
from monitor.scoring.kernel import Target, load_kernel
from monitor.scoring.robust import OrdinaryRange, robust_spread
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import calibrate, status_report, train_status_model
from monitor.threads import one_thread

__all__ = ["FitResult", "fit"]

# Called with the name of the step, the completed units and the total number of units.
Progress = Callable[[str, int, int], None]

_SHARES = {"training": 0.5, "calibration": 0.1, "baseline": 0.2, "evaluation": 0.2}
# More rows do not make the baseline or the audit noticeably more precise.
_MOST_SCORED = 20_000
_MOST_EXPLAINED = 4_000
_BATCH = 1024


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
        targets = [t for t in map(Target.of_file, self.bundle.files) if t is not None]
        if targets:
            names = ", ".join(f"torch {target.torch} on {target.level}" for target in targets)
            return f"compiled for {names}; compiled code runs only if the digest is pinned"
        return (
            f"not compiled: {self.not_compiled}. Predictions will be scored by uncompiled code, "
            "which is many times slower; `evenhand bundle compile` adds compiled code."
        )


def fit(
    classifier: bytes | Path | str | nn.Module,
    data: FitData,
    spec: FitSpec,
    out: Path | str,
    *,
    seed: int = 0,
    replace: bool = False,
    compiled: bool = True,
    progress: Progress | None = None,
) -> FitResult:
    """Fit status model, transport maps and baseline for a classifier, and write a bundle.

    Args:
        classifier: A torch.export archive or TorchScript, as bytes or a path; or a module.
        data: Rows like those of production, if possible not from the classifier's training data.
        spec: Description of the columns.
        out: Path of the bundle.
        seed: Seed of the split and of the training.
        replace: Whether to replace an existing bundle.
        compiled: Whether to compile the scoring pass, which takes half a minute and a C++
            compiler, and makes scoring many times faster.
        progress: Function that is called with the step, its completed and its total units.

    Raises:
        FitError: The data are not usable.
        BundleError: The classifier does not match the spec, or the bundle cannot be written.
    """
    check_target(Path(out), replace=replace)
    with one_thread():
        return _fit(classifier, data, spec, Path(out), seed, replace, compiled, progress)


def _fit(
    classifier: bytes | Path | str | nn.Module,
    data: FitData,
    spec: FitSpec,
    out: Path,
    seed: int,
    replace: bool,  # noqa: FBT001 - passed on
    compiled: bool,  # noqa: FBT001 - passed on
    progress: Progress | None,
) -> FitResult:
    report = progress or (lambda _step, _done, _total: None)
    data = data.checked(spec)
    file, contents = _classifier_file(classifier, len(spec.features))
    features = with_ranges(spec.features, data.features)
    fitted = Fitted.now(seed=seed, rows=len(data.features))
    bundle_spec = spec.bundle_spec(file, features, fitted)
    loaded = load_classifier(contents, bundle_spec)
    parts = _split(len(data.features), seed)
    _check_parts(parts, data.groups)
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
    maps = _fit_maps(data, training, bundle_spec, report)
    logits = _training_logits(loaded.logit, data.features[training])
    sensitivity = Sensitivity(
        logit=loaded.logit,
        status=status,
        maps=maps,
        spec=bundle_spec,
        logit_spread=robust_spread(logits),
        first_layer=first_layer(loaded),
    )
    baseline_scores = _score(
        sensitivity, data.features[baseline_rows], report, "scoring the baseline"
    )
    audit_scores = _score(sensitivity, data.features[evaluation], report, "auditing")
    audit = _audit(sensitivity, data, parts, audit_scores, logits)
    files = {
        file: contents,
        "status.pt2": export_classifier(status, bundle_spec.width),
        "maps.npz": maps_to_npz(maps, sensitivity.logit_spread),
        "baseline.npz": _baseline(baseline_scores).to_npz(),
        "drift.npz": _drift(baseline_scores, seed).to_npz(),
        "audit.txt": audit.text().encode(),
        "audit.json": json.dumps(audit.to_dict(), indent=2, allow_nan=False).encode(),
        "audit.png": audit.png(),
    }
    kernel, not_compiled = (
        _compiled(sensitivity, report) if compiled else ({}, "compilation was disabled")
    )
    written = write_bundle(out, bundle_spec, files | kernel, replace=replace)
    return FitResult(bundle=written, audit=audit, not_compiled=not_compiled)


def _compiled(sensitivity: Sensitivity, report: Progress) -> tuple[dict[str, bytes], str]:
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


def _classifier_file(classifier: bytes | Path | str | nn.Module, width: int) -> tuple[str, bytes]:
    """File name in the bundle, and content, of the classifier."""
    if isinstance(classifier, nn.Module):
        return "classifier.pt2", export_classifier(classifier, width)
    name = "the classifier"
    if isinstance(classifier, Path | str):
        name = str(classifier)
        try:
            classifier = Path(classifier).read_bytes()
        except OSError as error:
            raise FitError(f"{name}: cannot be read: {error.strerror or error}") from None
    exported = model_format(classifier, name) == "torch.export"
    return "classifier.pt2" if exported else "classifier.pt", classifier


def _split(rows: int, seed: int) -> dict[str, NDArray[np.int64]]:
    """Row indices of each part of `_SHARES`."""
    order = np.random.default_rng(seed).permutation(rows)
    cuts = np.cumsum([int(share * rows) for share in _SHARES.values()])[:-1]
    parts = dict(zip(_SHARES, np.split(order, cuts), strict=True))
    for part in ("baseline", "evaluation"):
        parts[part] = parts[part][:_MOST_SCORED]
    return parts


def _check_parts(
    parts: Mapping[str, NDArray[np.int64]], groups: Mapping[str, NDArray[np.int8]]
) -> None:
    for part, rows in parts.items():
        for name, known in groups.items():
            if len(np.unique(known[rows][known[rows] >= 0])) < 2:
                raise FitError(
                    f"too few rows: the {part} part has fewer than two groups of {name!r}"
                )


def _rows(
    groups: Mapping[str, NDArray[np.int8]], rows: NDArray[np.int64]
) -> dict[str, NDArray[np.int8]]:
    return {name: values[rows] for name, values in groups.items()}


def _fit_maps(
    data: FitData, training: NDArray[np.int64], spec: BundleSpec, report: Progress
) -> dict[str, TransportMaps]:
    maps = {}
    for number, attribute in enumerate(spec.protected_attributes, start=1):
        maps[attribute.name] = fit_transport_maps(
            data.features[training],
            data.groups[attribute.name][training],
            spec.features,
            spec.one_hot_groups,
            len(attribute.groups),
        )
        report("fitting transport maps", number, len(spec.protected_attributes))
    return maps


def _training_logits(
    logit: Callable[[torch.Tensor], torch.Tensor], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    with torch.no_grad():
        logits = logit(torch.from_numpy(features[:_MOST_SCORED]))
    _refuse_non_finite(logits)
    return logits.numpy()


def _refuse_non_finite(logits: torch.Tensor) -> None:
    if bad := int((~torch.isfinite(logits)).sum()):
        raise FitError(
            f"the classifier returns NaN or infinite values on {bad} of {len(logits)} rows"
        )


def _score(
    sensitivity: Sensitivity, features: NDArray[np.float32], report: Progress, step: str
) -> Scores:
    """Scores of many rows, computed in batches."""
    parts, size = [], min(_BATCH, sensitivity.max_rows)
    for start in range(0, len(features), size):
        batch = torch.from_numpy(features[start : start + size])
        parts.append(sensitivity.joint(batch))
        report(step, min(start + size, len(features)), len(features))
    packed, contributions = map(torch.cat, zip(*parts, strict=True))
    scores = sensitivity.unpacked(packed, contributions)
    _refuse_non_finite(scores.logit)
    return scores


def _baseline(scores: Scores) -> Baseline:
    return Baseline.from_scores(
        {name: signal_values(own) for name, own in scores.attributes.items()},
        {name: own.hard_flips.double().numpy() for name, own in scores.attributes.items()},
    )


def _drift(scores: Scores, seed: int) -> DriftReference:
    signals = scores.predictions
    return DriftReference.from_rows(signals.margin, signals.attributes, seed=seed)


def _audit(
    sensitivity: Sensitivity, data: FitData, parts: Mapping[str, NDArray[np.int64]],
    scores: Scores, training_logits: NDArray[np.float32],
) -> FitAudit:  # fmt: skip
    spec, levels, rows = sensitivity.spec, _baseline(scores).levels, parts["evaluation"]
    training = data.features[parts["training"]]
    ordinary = OrdinaryRange.of(training)
    features = torch.from_numpy(data.features[rows])
    # Wild rows would dominate the sums of changes.
    explained = torch.from_numpy(ordinary.clipped(data.features[rows[:_MOST_EXPLAINED]]))
    with torch.no_grad():
        logits = sensitivity.status(features)
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
        )
    return FitAudit(
        model=f"{spec.model.name} version {spec.model.version}",
        rows={name: len(rows) for name, rows in parts.items()},
        attributes=audits,
        missing=scores.missing,
        wild=WildRows.of(
            [feature.name for feature in spec.features],
            ordinary.wild(training),
            OrdinaryRange.of(training_logits[:, None]).wild(training_logits[:, None]),
        ),
    )
