"""Update a bundle with a retrained classifier, and keep the baseline that it is compared with.

Kept: status model, transport maps, baseline and drift reference. Replaced: the classifier, its
version, the spread of its logits, the compiled code. Dropped: the audit of the old classifier.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from dataclasses import replace as with_changes
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

from monitor.bundle import Bundle, BundleSpec, Model, write_bundle
from monitor.bundle.archive import sanitize_archive
from monitor.bundle.classifier import load_classifier, probe_features
from monitor.bundle.reader import validation_message
from monitor.bundle.writer import check_target
from monitor.errors import BundleError, ClassifierError, FitError
from monitor.fitting.classifier_file import classifier_file
from monitor.fitting.comparison import (
    ALPHA,
    AttributeComparison,
    Comparison,
    rise_of,
    status_distance,
)
from monitor.fitting.data import FEWEST_ROWS, check_features
from monitor.fitting.run import Progress, compiled_in_words, compiled_pass
from monitor.fitting.scored_rows import MOST_SCORED, baseline_of, logit_spread, score_rows
from monitor.scoring.first_layer import first_layer
from monitor.scoring.judge import Judge, with_logit_spread
from monitor.scoring.kernel import Target
from monitor.scoring.scores import Reason, Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.threads import one_thread

__all__ = ["UpdateResult", "update_bundle"]

_KEPT = ("status.pt2", "maps.npz", "inputs.npz", "baseline.npz", "drift.npz")
_PROBE_ROWS = 2_000
_DIGITS = 8
_MAX_NAME, _MAX_NOTES = 100, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """Result of an update.

    Attributes:
        bundle: The bundle that was written.
        comparison: What changes from the old classifier to the new one.
        spread: Spread of the new classifier's logits that was stored.
        spread_kept: Whether it is that of the old classifier, since no rows were given.
        dropped: Files of the old bundle that describe or contain the old classifier's results.
        not_compiled: Why the bundle has no compiled code; empty if it has.
    """

    bundle: Bundle
    comparison: Comparison
    spread: float
    spread_kept: bool
    dropped: tuple[str, ...]
    not_compiled: str

    @property
    def compiled_in_words(self) -> str:
        """Whether the bundle has compiled code, and for which machines it was dropped."""
        words = compiled_in_words(self.bundle, self.not_compiled)
        targets = [t for t in map(Target.of_file, self.dropped) if t is not None]
        lost = [t for t in targets if t.file not in self.bundle.files]
        if not lost:
            return words
        names = ", ".join(f"torch {target.torch} on {target.level}" for target in lost)
        return f"{words}\nno longer compiled for {names}; see `evenhand bundle compile --for`"

    @property
    def spread_in_words(self) -> str:
        """The stored spread of the logits, and where it comes from."""
        if self.spread_kept:
            return (
                f"spread of the logits: {self.spread:.3g}, that of the old classifier; rows of a "
                "table or of the log are needed to compute the new one"
            )
        return f"spread of the logits: {self.spread:.3g}, computed from the rows"


def update_bundle(
    bundle: Bundle | Path | str,
    classifier: bytes | Path | str | nn.Module,
    out: Path | str,
    *,
    rows: NDArray[np.float32] | None = None,
    source: str = "given rows",
    model_version: str | None = None,
    replace: bool = False,
    compiled: bool = True,
    progress: Progress | None = None,
) -> UpdateResult:
    """Write a bundle with a new classifier and the baseline of the old one.

    The new classifier must have the same features and kind of output. Its version is
    `model_version`; by default the old version and the first eight digits of the classifier's
    SHA-256.

    Args:
        bundle: The bundle, or its path.
        classifier: The new classifier: a torch.export archive or TorchScript, as bytes or a path;
            or a module.
        out: Path of the new bundle.
        rows: Features to compare the classifiers on, `[n, d]` in manifest order, not from the
            training data. More than 20,000 are sampled. None: probe rows, which are synthetic.
        source: Source of the rows, for the text.
        model_version: Version of the model in the new bundle.
        replace: Whether to replace an existing bundle.
        compiled: Whether to compile the scoring pass.
        progress: Function that is called with the step, its completed and its total units.

    Raises:
        BundleError: The bundle was not fitted, the classifier does not match it, the classifier or
            its version is the same as before, or the bundle cannot be written.
        FitError: The rows are not usable.
    """
    check_target(Path(out), replace=replace)
    old = bundle if isinstance(bundle, Bundle) else Bundle.read(bundle)
    report = progress or (lambda _step, _done, _total: None)
    with one_thread():
        return _update(
            old, classifier, Path(out), rows, source, model_version, replace, compiled, report
        )


def _update(
    old: Bundle,
    classifier: bytes | Path | str | nn.Module,
    out: Path,
    rows: NDArray[np.float32] | None,
    source: str,
    model_version: str | None,
    replace: bool,  # noqa: FBT001 - passed on
    compiled: bool,  # noqa: FBT001 - passed on
    report: Progress,
) -> UpdateResult:
    # Compiled code of the old classifier is neither run nor kept.
    bare = {name: data for name, data in old.files.items() if not name.startswith("kernel/")}
    judge = Judge.load(with_changes(old, files=bare), warn=False)
    file, contents = _new_classifier(old, classifier)
    spec = _spec(old, file, contents, model_version)
    sensitivity = _with_classifier(judge.sensitivity, contents, spec, classifier)
    features, source = _rows(rows, source, sensitivity)
    # Probe rows are uniform in each feature: the spread on them is not that of production.
    if rows is not None:
        sensitivity.logit_spread = logit_spread(sensitivity.logit, features)
    comparison = _compare(
        judge, sensitivity, features, report, source=source, synthetic=rows is None
    )
    files = {file: contents, **{name: old.files[name] for name in _KEPT}}
    if rows is not None:
        files["maps.npz"] = with_logit_spread(files["maps.npz"], sensitivity.logit_spread)
    kernel, not_compiled = (
        compiled_pass(sensitivity, report) if compiled else ({}, "compilation was disabled")
    )
    dropped = old.files.keys() - files.keys() - {old.manifest.classifier.file}
    return UpdateResult(
        bundle=write_bundle(out, spec, files | kernel, replace=replace),
        comparison=comparison,
        spread=sensitivity.logit_spread,
        spread_kept=rows is None,
        dropped=tuple(sorted(dropped)),
        not_compiled=not_compiled,
    )


def _new_classifier(old: Bundle, classifier: bytes | Path | str | nn.Module) -> tuple[str, bytes]:
    """File name and content of the new classifier, as they will be in the bundle."""
    file, contents = classifier_file(classifier, old.manifest)
    if file.endswith(".pt2"):
        contents = sanitize_archive(contents, file)
    if contents == old.files[old.manifest.classifier.file]:
        raise BundleError(
            f"{_name(classifier)}: the bundle already contains this classifier, byte for byte; "
            "nothing to update"
        )
    return file, contents


def _spec(old: Bundle, file: str, contents: bytes, model_version: str | None) -> BundleSpec:
    """Spec of the new bundle: another classifier, version and note."""
    manifest, digest = old.manifest, hashlib.sha256(contents).hexdigest()
    before = manifest.files[manifest.classifier.file].sha256
    version = manifest.model.version
    if model_version == version:
        raise BundleError(
            f"version {version!r} is that of the old classifier; the traffic log keeps classifiers "
            "apart by version, so choose another"
        )
    if model_version is None:
        # The suffix of an earlier update is replaced.
        base = version.removesuffix(f"-{before[:_DIGITS]}")[: _MAX_NAME - _DIGITS - 1]
        model_version = f"{base}-{digest[:_DIGITS]}"
    today = dt.datetime.now(dt.UTC).date()
    note = (
        f"classifier updated on {today} (was version {version}, sha256 {before[:12]}); baseline "
        "kept"
    )
    notes = f"{manifest.fitted.notes}; {note}" if manifest.fitted.notes else note
    fields = {name: getattr(manifest, name) for name in BundleSpec.model_fields}
    try:
        model = Model(name=manifest.model.name, version=model_version)
    except ValidationError as error:
        raise BundleError(validation_message(error.errors(include_url=False)[0])) from None
    return BundleSpec.model_validate(
        {
            **fields,
            "model": model,
            "classifier": manifest.classifier.model_copy(update={"file": file}),
            "fitted": manifest.fitted.model_copy(update={"notes": notes[-_MAX_NOTES:]}),
        }
    )


def _with_classifier(
    old: Sensitivity,
    contents: bytes,
    spec: BundleSpec,
    classifier: bytes | Path | str | nn.Module,
) -> Sensitivity:
    """The joint pass with another classifier."""
    try:
        loaded = load_classifier(contents, spec)
    except ClassifierError as error:
        raise type(error)(
            f"{_name(classifier)}: {error}. The bundle keeps {spec.width} features and the output "
            f"{spec.classifier.output!r}; a classifier with others needs `evenhand fit`"
        ) from None
    return Sensitivity(
        logit=loaded.logit,
        status=old.status,
        maps=old.maps,
        spec=spec,
        logit_spread=old.logit_spread,
        first_layer=first_layer(loaded),
        inputs=old.inputs,
    )


def _name(classifier: bytes | Path | str | nn.Module) -> str:
    return str(classifier) if isinstance(classifier, Path | str) else "the classifier"


def _rows(
    rows: NDArray[np.float32] | None, source: str, sensitivity: Sensitivity
) -> tuple[NDArray[np.float32], str]:
    """Rows to compare on, without those that would get no scores, and their source in words."""
    spec, inputs = sensitivity.spec, sensitivity.inputs
    if rows is None:
        return probe_features(spec, _PROBE_ROWS), "probe rows, which are synthetic"
    rows = np.ascontiguousarray(rows, np.float32)
    check_features(rows, spec)
    if inputs is not None:
        given, rows = len(rows), rows[inputs.reasons(rows) == Reason.NONE]
        unlike = given - len(rows)
        source += f" without {unlike:,} rows unlike the training rows" if unlike else ""
    if len(rows) < FEWEST_ROWS:
        raise FitError(f"{len(rows)} rows; at least {FEWEST_ROWS} are required for a comparison")
    if len(rows) <= MOST_SCORED:
        return rows, source
    sample = np.random.default_rng(0).choice(len(rows), MOST_SCORED, replace=False)
    return rows[np.sort(sample)], f"{source}, a random sample of {len(rows):,}"


def _compare(
    judge: Judge,
    new: Sensitivity,
    features: NDArray[np.float32],
    report: Progress,
    *,
    source: str,
    synthetic: bool,
) -> Comparison:
    manifest, old = judge.classifier.spec, judge.sensitivity
    before = score_rows(old, features, report, "scoring with the old classifier")
    after = score_rows(new, features, report, "scoring with the new classifier")
    decision = manifest.decision
    granted = [(scores.decision.numpy() == bool(decision.favourable)) for scores in (before, after)]
    unfavourable, favourable = decision.class_names[:: 1 if decision.favourable else -1]
    return Comparison(
        rows=len(features),
        source=source,
        synthetic=synthetic,
        differ=int((granted[0] != granted[1]).sum()),
        gained=int((~granted[0] & granted[1]).sum()),
        favourable=favourable,
        unfavourable=unfavourable,
        favourable_before=int(granted[0].sum()),
        favourable_after=int(granted[1].sum()),
        scale_before=logit_spread(old.logit, features),
        scale_after=logit_spread(new.logit, features),
        attributes=_attributes(judge, before, after),
        fit_days=(dt.datetime.now(dt.UTC) - manifest.fitted.at).days,
        lacks=_lacking_signal(old, new),
    )


def _attributes(judge: Judge, before: Scores, after: Scores) -> dict[str, AttributeComparison]:
    levels = [baseline_of(scores).levels for scores in (before, after)]
    attributes = {}
    for name in before.attributes:
        flips = [s.attributes[name].hard_flips.double().numpy() for s in (before, after)]
        above = [int((judge.p_values(s, name) <= ALPHA).sum()) for s in (before, after)]
        rise, low, high = rise_of(*flips)
        distance, noise = status_distance(judge.drift, before.predictions, name)
        attributes[name] = AttributeComparison(
            before=levels[0][name],
            after=levels[1][name],
            rise=rise,
            rise_low=low,
            rise_high=high,
            above_before=above[0],
            above_after=above[1],
            status_distance=distance,
            status_noise=noise,
        )
    return attributes


def _lacking_signal(old: Sensitivity, new: Sensitivity) -> str:
    if old.missing and not new.missing:
        return "the baseline has no prediction sensitivity, which the new classifier has"
    if new.missing and not old.missing:
        return f"the new classifier has no prediction sensitivity: {new.missing}"
    return ""
