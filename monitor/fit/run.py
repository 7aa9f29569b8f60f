"""Fit a bundle: status model, transport maps, baseline and audit, from data with known groups.

    rows ─┬─ half            learn the status model and the maps
          ├─ a tenth         tune the status model's temperatures
          ├─ a fifth         score as the baseline
          └─ the last fifth  judge everything: the audit

No row serves twice, so the baseline is exchangeable with traffic and the audit is honest.
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

from monitor.baseline import Baseline
from monitor.bundle import Bundle, Fitted, write_bundle
from monitor.bundle.archive import model_format
from monitor.bundle.classifier import export_classifier, load_classifier
from monitor.bundle.manifest import BundleSpec
from monitor.bundle.probe import with_ranges
from monitor.bundle.writer import check_target
from monitor.counterfactual import TransportMaps, fit_transport_maps
from monitor.drift import DriftReference
from monitor.errors import FitError, KernelError
from monitor.first_layer import first_layer
from monitor.fit.audit import FitAudit, audit_attribute
from monitor.fit.data import FitData
from monitor.fit.spec import FitSpec
from monitor.judge import maps_to_npz, signal_values, watched
from monitor.kernel import Target, load_kernel
from monitor.kernel.compiling import compile_kernel
from monitor.scores import Scores
from monitor.sensitivity import Sensitivity
from monitor.status_model import calibrate, judge_status, train_status_model
from monitor.threads import one_thread

__all__ = ["FitResult", "fit"]

# Called as it goes: what is being done, steps done, steps in all.
Progress = Callable[[str, int, int], None]

_SHARES = {"to learn from": 0.5, "to tune": 0.1, "as baseline": 0.2, "to judge": 0.2}
# More rows than this sharpen neither the baseline nor the audit.
_MOST_SCORED = 20_000
_MOST_EXPLAINED = 4_000
_BATCH = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """A bundle, and the audit that came with it.

    Attributes:
        bundle: What was written.
        audit: What it says of the classifier.
        not_compiled: Why the bundle holds no compiled code; empty where it does.
    """

    bundle: Bundle
    audit: FitAudit
    not_compiled: str

    @property
    def compiled_in_words(self) -> str:
        """Whether the bundle holds compiled code, and what to do if not."""
        targets = [t for t in map(Target.of_file, self.bundle.files) if t is not None]
        if targets:
            made = ", ".join(f"torch {target.torch} on {target.level}" for target in targets)
            return f"compiled for {made}; that code runs where the digest is pinned"
        return (
            f"not compiled: {self.not_compiled}. Predictions will be judged by uncompiled code, "
            "which takes many times as long; `evenhand bundle compile` adds compiled code."
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
    """Fit everything that judges a classifier's predictions, and write it as a bundle.

    Args:
        classifier: A torch.export archive or TorchScript, as bytes or by its path; or a module.
        data: Rows like those of production, best ones that the classifier did not learn from.
        spec: What their columns are.
        out: Where the bundle goes.
        seed: Of the split and of the training.
        replace: Whether a bundle that is there may be replaced.
        compiled: Whether to compile what judges a prediction, which takes half a minute and a C++
            compiler, and makes it many times faster.
        progress: Called as it goes.

    Raises:
        FitError: The data cannot be learned from.
        BundleError: In its kinds, where the classifier is not what the spec says or the bundle
            cannot be written.
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
    compiled: bool,  # noqa: FBT001 - likewise
    progress: Progress | None,
) -> FitResult:
    say = progress or (lambda _what, _done, _total: None)
    data = data.checked(spec)
    file, contents = _classifier_file(classifier, len(spec.features))
    features = with_ranges(spec.features, data.features)
    fitted = Fitted.now(seed=seed, rows=len(data.features))
    bundle_spec = spec.bundle_spec(file, features, fitted)
    loaded = load_classifier(contents, bundle_spec)
    parts = _split(len(data.features), seed)
    _check_parts(parts, data.groups)
    learn, tune, hold, judge = parts.values()

    attributes = bundle_spec.protected_attributes
    status = train_status_model(
        data.features[learn],
        _rows(data.groups, learn),
        attributes,
        seed=seed,
        progress=lambda done, total: say("learning to tell the groups", done, total),
    )
    calibrate(status, data.features[tune], _rows(data.groups, tune), attributes)
    maps = _fit_maps(data, learn, bundle_spec, say)
    sensitivity = Sensitivity(
        logit=loaded.logit,
        status=status,
        maps=maps,
        spec=bundle_spec,
        logit_spread=_logit_spread(loaded.logit, data.features[learn]),
        first_layer=first_layer(loaded),
    )
    held = _score(sensitivity, data.features[hold], say, "taking the baseline")
    baseline = _baseline(held)
    judged = _score(sensitivity, data.features[judge], say, "auditing")
    audit = _audit(sensitivity, data, parts, judged, judge)
    files = {
        file: contents,
        "status.pt2": export_classifier(status, bundle_spec.width),
        "maps.npz": maps_to_npz(maps, sensitivity.logit_spread),
        "baseline.npz": baseline.to_npz(),
        "drift.npz": _drift(held, seed).to_npz(),
        "audit.txt": audit.text().encode(),
        "audit.json": json.dumps(audit.to_dict(), indent=2, allow_nan=False).encode(),
        "audit.png": audit.png(),
    }
    kernel, not_compiled = _compiled(sensitivity, say) if compiled else ({}, "as asked for")
    written = write_bundle(out, bundle_spec, files | kernel, replace=replace)
    return FitResult(bundle=written, audit=audit, not_compiled=not_compiled)


def _compiled(sensitivity: Sensitivity, say: Progress) -> tuple[dict[str, bytes], str]:
    """The compiled pass by its name in a bundle, tried before it is kept; or why there is none."""
    say("compiling", 0, 1)
    target = Target.here()
    if target is None:
        return {}, "nothing is compiled for this kind of processor"
    try:
        data = compile_kernel(sensitivity, target)
        load_kernel(data, target, sensitivity)
    except KernelError as error:
        return {}, str(error)
    say("compiling", 1, 1)
    return {target.file: data}, ""


def _classifier_file(classifier: bytes | Path | str | nn.Module, width: int) -> tuple[str, bytes]:
    """The classifier's bytes, and the name that its format has in a bundle."""
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
    """Which rows serve what, by the words of `_SHARES`."""
    order = np.random.default_rng(seed).permutation(rows)
    cuts = np.cumsum([int(share * rows) for share in _SHARES.values()])[:-1]
    parts = dict(zip(_SHARES, np.split(order, cuts), strict=True))
    for what in ("as baseline", "to judge"):
        parts[what] = parts[what][:_MOST_SCORED]
    return parts


def _check_parts(
    parts: Mapping[str, NDArray[np.int64]], groups: Mapping[str, NDArray[np.int8]]
) -> None:
    for what, rows in parts.items():
        for name, known in groups.items():
            if len(np.unique(known[rows][known[rows] >= 0])) < 2:
                raise FitError(f"too few rows: of those {what}, fewer than two groups of {name!r}")


def _rows(
    groups: Mapping[str, NDArray[np.int8]], rows: NDArray[np.int64]
) -> dict[str, NDArray[np.int8]]:
    return {name: values[rows] for name, values in groups.items()}


def _fit_maps(
    data: FitData, learn: NDArray[np.int64], spec: BundleSpec, say: Progress
) -> dict[str, TransportMaps]:
    maps = {}
    for number, attribute in enumerate(spec.protected_attributes, start=1):
        maps[attribute.name] = fit_transport_maps(
            data.features[learn],
            data.groups[attribute.name][learn],
            spec.features,
            spec.one_hot_groups,
            len(attribute.groups),
        )
        say("mapping groups onto each other", number, len(spec.protected_attributes))
    return maps


def _logit_spread(
    logit: Callable[[torch.Tensor], torch.Tensor], features: NDArray[np.float32]
) -> float:
    with torch.no_grad():
        logits = logit(torch.from_numpy(features[:_MOST_SCORED]))
    _refuse_non_finite(logits)
    return float(logits.std())


def _refuse_non_finite(logits: torch.Tensor) -> None:
    if bad := int((~torch.isfinite(logits)).sum()):
        raise FitError(
            f"the classifier returns NaN or infinite values on {bad} of {len(logits)} rows"
        )


def _score(
    sensitivity: Sensitivity, features: NDArray[np.float32], say: Progress, what: str
) -> Scores:
    """Scores of many rows, batch by batch."""
    parts, size = [], min(_BATCH, sensitivity.rows_at_once)
    for start in range(0, len(features), size):
        batch = torch.from_numpy(features[start : start + size])
        parts.append(sensitivity.joint(batch))
        say(what, min(start + size, len(features)), len(features))
    packed, contributions = map(torch.cat, zip(*parts, strict=True))
    scores = sensitivity.unpacked(packed, contributions)
    _refuse_non_finite(scores.logit)
    return scores


def _baseline(scores: Scores) -> Baseline:
    return Baseline.take(
        {name: signal_values(found) for name, found in scores.attributes.items()},
        {name: found.hard_flips.double().numpy() for name, found in scores.attributes.items()},
    )


def _drift(scores: Scores, seed: int) -> DriftReference:
    found = watched(scores)
    return DriftReference.take(found.margin, found.attributes, seed=seed)


def _audit(
    sensitivity: Sensitivity, data: FitData, parts: Mapping[str, NDArray[np.int64]],
    scores: Scores, rows: NDArray[np.int64],
) -> FitAudit:  # fmt: skip
    spec, levels = sensitivity.spec, _baseline(scores).levels
    features = torch.from_numpy(data.features[rows])
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
            judge_status(logits[:, spec.heads[attribute.name]], groups, attribute),
            sensitivity.carriers(features[:_MOST_EXPLAINED], attribute.name),
        )
    return FitAudit(
        model=f"{spec.model.name} version {spec.model.version}",
        rows={what: len(part) for what, part in parts.items()},
        attributes=audits,
        missing=scores.missing,
    )
