"""The judge of a bundle: scores of predictions, and their verdicts against the baseline."""

from __future__ import annotations

import io
import logging
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.bundle.classifier import Classifier, load_exported, probe_features
from monitor.bundle.manifest import DEFAULT_PROBE_ROWS, Manifest
from monitor.bundle.reader import Bundle
from monitor.drift import DriftReference
from monitor.errors import BundleError, KernelError, first_line
from monitor.scoring.baseline import Baseline, Signal
from monitor.scoring.counterfactual import TransportMaps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.kernel import Kernel, Target, load_kernel
from monitor.scoring.kernel.target import fitting_targets
from monitor.scoring.scores import AttributeScores, Scores
from monitor.scoring.sensitivity import Sensitivity

__all__ = ["Judge", "maps_to_npz", "signal_values"]

_PROBE_ROWS = 16
_WANTED = "a float32 tensor is wanted (torch.from_numpy makes one of an array)"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a bundle says of predictions.

    Attributes:
        classifier: Whose predictions they are.
        sensitivity: Computes the scores.
        baseline: Compares them.
        drift: What the drift watch of their stream starts from.
        kernel: Computes the scores much faster; None where no compiled code can be used.
        eager_because: Why there is no kernel; empty where there is one.
    """

    classifier: Classifier
    sensitivity: Sensitivity
    baseline: Baseline
    drift: DriftReference
    kernel: Kernel | None = None
    eager_because: str = "nothing compiled was looked for"

    @classmethod
    def load(
        cls, bundle: Bundle, *, warn: bool = True, probe_rows: int = DEFAULT_PROBE_ROWS
    ) -> Self:
        """From a bundle that `evenhand fit` made.

        Args:
            bundle: The bundle; native code in it is run only if it is pinned.
            warn: Whether to log it where nothing compiled can be used.
            probe_rows: Made-up people that the classifier is tried on.

        Raises:
            BundleError: It has no status model, maps, baseline or drift reference, or they do not
                fit the manifest.
        """
        manifest = bundle.manifest
        for name in ("status.pt2", "maps.npz", "baseline.npz", "drift.npz"):
            if name not in bundle.files:
                raise BundleError(
                    f"the bundle has no {name}, so it cannot judge predictions; make it with "
                    "`evenhand fit`"
                )
        classifier = bundle.classifier(probe_rows=probe_rows)
        status = load_exported(bundle.files["status.pt2"], "status.pt2")
        maps, spread = _maps_from_npz(bundle.files["maps.npz"], manifest)
        heads = sum(len(attribute.groups) for attribute in manifest.protected_attributes)
        with torch.inference_mode():
            shape = status(torch.zeros(2, manifest.width)).shape
        if tuple(shape) != (2, heads):
            raise BundleError(f"status.pt2 returns {shape[-1]} logits for {heads} groups")
        sensitivity = Sensitivity(
            logit=classifier.logit,
            status=status,
            maps=maps,
            spec=manifest,
            logit_spread=spread,
            first_layer=first_layer(classifier),
        )
        _try(sensitivity)
        drift = DriftReference.from_npz(bundle.files["drift.npz"])
        if drift.layout.groups != {a.name: len(a.groups) for a in manifest.protected_attributes}:
            raise BundleError("drift.npz is of other attributes than the manifest's")
        kernel, eager_because = _kernel(bundle, sensitivity)
        if eager_because and warn:
            _LOG.warning("predictions are judged by uncompiled code: %s", eager_because)
        return cls(
            classifier=classifier,
            sensitivity=sensitivity,
            baseline=Baseline.from_npz(bundle.files["baseline.npz"]),
            drift=drift,
            kernel=kernel,
            eager_because=eager_because,
        )

    @property
    def code_in_words(self) -> str:
        """Which code judges predictions, and if uncompiled code does, why."""
        if self.kernel is None:
            return f"uncompiled code: {self.eager_because}"
        return f"compiled code, for torch {self.kernel.target.torch} on {self.kernel.target.level}"

    def scores(self, features: torch.Tensor) -> Scores:
        """Judge n predictions, float32 `[n, d]`; the tensor is left as it is.

        Raises:
            ValueError: It is no such tensor.
        """
        return self.sensitivity.unpacked(*self.joint(features))

    def joint(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same as `Sensitivity.joint` returns it, by compiled code where there is some.

        Raises:
            ValueError: The features are no such tensor.
        """
        width = self.sensitivity.spec.width
        # The same words for every mistake, compiled or not; an array has another kind of dtype.
        if getattr(features, "dtype", None) != torch.float32 or features.shape[1:] != (width,):
            kind, shape = type(features).__name__, list(getattr(features, "shape", ()))
            told = f"{kind} {getattr(features, 'dtype', '')} {shape}"
            raise ValueError(f"features are {told}; {_WANTED}: [n, {width}]")
        if self.kernel is None or len(features) == 0:
            return self.sensitivity.in_parts(self.sensitivity.joint, features)
        return self.sensitivity.in_parts(self.kernel.joint, features)

    def p_values(
        self, scores: Scores, attribute: str, *, signal: Signal = "expected_change"
    ) -> NDArray[np.float64]:
        """Conformal p-values of scored predictions by one signal, `[n]`; NaN where unknown.

        The verdict of a prediction is `above` if its p-value is at most `policy.alpha`.

        Raises:
            ValueError: The signal cannot be computed for this classifier.
        """
        values = signal_values(scores.attributes[attribute]).get(signal)
        if values is None:
            raise ValueError(f"{signal} cannot be computed: {scores.missing}")
        return self.baseline.p_values(attribute, signal, values)


def _try(sensitivity: Sensitivity) -> None:
    """Judge made-up people, before anything real depends on it."""
    features = torch.from_numpy(probe_features(sensitivity.spec, _PROBE_ROWS))
    try:
        packed, _ = sensitivity.joint(features)
    except (RuntimeError, IndexError, ValueError) as error:
        told = first_line(error)
        raise BundleError(f"the bundle cannot judge made-up people: {told}") from None
    if torch.isnan(packed).any():
        raise BundleError("the bundle judges made-up people by what is not a number")


def _kernel(bundle: Bundle, sensitivity: Sensitivity) -> tuple[Kernel | None, str]:
    """The best compiled pass of a bundle that this machine can run, or why there is none."""
    machine = Target.here()
    if machine is None:
        return None, "nothing is compiled for this kind of processor"
    compiled = [t for t in map(Target.of_file, bundle.files) if t is not None]
    if not compiled:
        return None, "the bundle holds no compiled code; `evenhand bundle compile` adds it"
    targets = fitting_targets(bundle.files, machine)
    if not targets:
        made = ", ".join(f"torch {t.torch} on {t.level}" for t in compiled)
        return None, f"it was compiled for {made}; this is torch {machine.torch} on {machine.level}"
    if not bundle.pinned:
        return None, "native code runs only from a bundle whose manifest is pinned"
    reasons = []
    for target in targets:
        try:
            return load_kernel(bundle.files[target.file], target, sensitivity), ""
        except KernelError as error:
            reasons.append(str(error))
    return None, "; ".join(reasons)


def signal_values(scores: AttributeScores) -> dict[Signal, NDArray[np.float64]]:
    """The three signals of the baseline, as far as they could be computed, `[n]` each."""
    values: dict[Signal, NDArray[np.float64]] = {
        "expected_change": scores.expected_change.double().numpy(),
        "flip_probability": scores.flip_probability.double().numpy(),
    }
    if scores.log_prediction_sensitivity is not None:
        values["prediction_sensitivity"] = scores.log_prediction_sensitivity.double().numpy()
    return values


def maps_to_npz(maps: Mapping[str, TransportMaps], logit_spread: float) -> bytes:
    """As the bytes of `maps.npz`, attributes by their place in the manifest."""
    arrays: dict[str, NDArray[Any]] = {"logit_spread": np.array(logit_spread)}
    for index, attribute in enumerate(maps.values()):
        arrays |= {f"{index}/{name}": array for name, array in attribute.to_arrays().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def _maps_from_npz(data: bytes, manifest: Manifest) -> tuple[dict[str, TransportMaps], float]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            maps = {
                attribute.name: TransportMaps.from_arrays(
                    {
                        key.removeprefix(f"{index}/"): file[key]
                        for key in file.files
                        if key.startswith(f"{index}/")
                    }
                )
                for index, attribute in enumerate(manifest.protected_attributes)
            }
            spread = float(file["logit_spread"])
            if not 0 <= spread < math.inf:
                raise ValueError(f"logit_spread is {spread}")
    except (
        *(ValueError, KeyError, TypeError, IndexError, RuntimeError),
        *(OSError, EOFError, zipfile.BadZipFile),
    ) as error:
        raise BundleError(f"maps.npz cannot be read: {error}") from None
    for attribute in manifest.protected_attributes:
        if maps[attribute.name].groups != len(attribute.groups):
            raise BundleError(f"maps.npz has other groups of {attribute.name!r}")
        if maps[attribute.name].width != manifest.width:
            raise BundleError(f"maps.npz is of {maps[attribute.name].width} columns")
    return maps, spread
