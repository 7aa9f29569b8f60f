"""Loads a bundle and scores predictions; makes no verdicts, which `Policy.apply` does."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from monitor.bundle.classifier import Classifier, load_exported, probe_features
from monitor.bundle.manifest import DEFAULT_PROBE_ROWS, Manifest
from monitor.bundle.reader import Bundle
from monitor.drift.reference import DriftReference
from monitor.errors import BundleError, KernelError, first_line
from monitor.npz import damaged_file, read_npz, write_npz
from monitor.scoring.baseline import Baseline, Signal
from monitor.scoring.counterfactual import TransportMaps
from monitor.scoring.counterfactual.draws import MOST_DRAWS
from monitor.scoring.first_layer import first_layer
from monitor.scoring.input_check import InputCheck
from monitor.scoring.kernel import Kernel, Target, load_kernel, matching_targets
from monitor.scoring.sensitivity import Sensitivity

if TYPE_CHECKING:
    from monitor.bundle.manifest import Manifest
    from monitor.scoring.scores import AttributeScores, Scores

__all__ = ["Judge", "maps_to_npz", "signal_values", "with_logit_spread"]

_PROBE_ROWS = 16
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A loaded bundle that scores predictions; verdicts are made by `Policy.apply`, not here.

    `p_values` compares scores with the baseline. The sidecar gives a `Judge` to a `Scorer`, which
    applies the policy to the p-values.

    Attributes:
        classifier: The classifier of the bundle.
        sensitivity: The joint pass, which computes the scores.
        baseline: Calibration scores, which turn scores into p-values.
        drift: Reference of the drift watch.
        kernel: The joint pass as compiled code; None if none can be used.
        no_kernel_reason: Reason why there is no kernel; empty if there is one.
    """

    classifier: Classifier
    sensitivity: Sensitivity
    baseline: Baseline
    drift: DriftReference
    kernel: Kernel | None = None
    no_kernel_reason: str = "no kernel was loaded"

    @classmethod
    def load(
        cls, bundle: Bundle, *, warn: bool = True, probe_rows: int = DEFAULT_PROBE_ROWS
    ) -> Self:
        """Load a bundle that `evenhand fit` wrote.

        Args:
            bundle: The bundle. Its native code runs only if the manifest is pinned.
            warn: Whether to log a warning if no compiled code can be used, or if the audit at the
                fit established no share of flips.
            probe_rows: Number of probe rows that the classifier is tested on.

        Raises:
            BundleError: The status model, maps, baseline or drift reference is missing or does not
                match the manifest.
        """
        manifest = bundle.manifest
        for name in ("status.pt2", "maps.npz", "inputs.npz", "baseline.npz", "drift.npz"):
            if name not in bundle.files:
                raise BundleError(
                    f"the bundle has no {name}, which scoring needs; create the bundle with "
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
            inputs=InputCheck.from_npz(
                bundle.files["inputs.npz"], manifest.width, len(manifest.one_hot_groups)
            ),
        )
        _check_scores(sensitivity)
        drift = DriftReference.from_npz(bundle.files["drift.npz"])
        if drift.layout.groups != {a.name: len(a.groups) for a in manifest.protected_attributes}:
            raise BundleError(
                "drift.npz has other protected attributes or groups than the manifest"
            )
        kernel, no_kernel_reason = _kernel(bundle, sensitivity)
        if bundle.doubt and warn:
            _LOG.warning(
                "the audit of this bundle established no share of flips: %s; see audit.txt in the "
                "bundle before you rely on verdicts",
                bundle.doubt,
            )
        if no_kernel_reason and warn:
            _LOG.warning("predictions are scored by uncompiled code: %s", no_kernel_reason)
        return cls(
            classifier=classifier,
            sensitivity=sensitivity,
            baseline=Baseline.from_npz(bundle.files["baseline.npz"]),
            drift=drift,
            kernel=kernel,
            no_kernel_reason=no_kernel_reason,
        )

    @property
    def code_in_words(self) -> str:
        """Whether compiled code scores predictions, and the reason if not."""
        if self.kernel is None:
            return f"uncompiled code: {self.no_kernel_reason}"
        return f"compiled code, for torch {self.kernel.target.torch} on {self.kernel.target.level}"

    def scores(self, features: torch.Tensor) -> Scores:
        """Scores of n predictions, for features `[n, d]` in float32; NaN for unlike rows.

        Raises:
            ValueError: The features are not a float32 tensor of that shape.
        """
        return self.sensitivity.unpacked(*self.joint(features))

    def joint(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Result of `Sensitivity.joint`, by compiled code if there is a kernel.

        Rows unlike the training rows have no scores but the logit: NaN.

        Raises:
            ValueError: The features are not a float32 tensor `[n, d]`.
        """
        width = self.sensitivity.width
        # getattr, since a caller may pass a numpy array or a list.
        if getattr(features, "dtype", None) != torch.float32 or features.shape[1:] != (width,):
            raise ValueError(_wrong_features(features, width))
        compiled = self.kernel is not None and len(features) > 0
        joint = self.kernel.joint if compiled else self.sensitivity.joint  # type: ignore[union-attr]
        packed, contributions = self.sensitivity.in_parts(joint, features)
        self.sensitivity.columns.mask_unlike(packed.numpy())
        return packed, contributions

    def p_values(
        self, scores: Scores, attribute: str, *, signal: Signal = "expected_change"
    ) -> NDArray[np.float64]:
        """Conformal p-values of scored predictions by one signal, `[n]`; NaN where unknown.

        A prediction is unusual if its p-value is at most `policy.alpha`.

        Raises:
            ValueError: The signal cannot be computed for this classifier.
        """
        values = signal_values(scores.attributes[attribute]).get(signal)
        if values is None:
            raise ValueError(f"{signal} cannot be computed: {scores.missing}")
        return self.baseline.p_values(attribute, signal, values)


def _wrong_features(features: object, width: int) -> str:
    kind, shape = type(features).__name__, list(getattr(features, "shape", ()))
    actual = f"{kind} {getattr(features, 'dtype', '')} {shape}"
    return (
        f"features are {actual}; they must be a float32 tensor [n, {width}] "
        "(torch.from_numpy converts an array)"
    )


def _check_scores(sensitivity: Sensitivity) -> None:
    """Score probe rows, so that a broken bundle fails at the start."""
    features = torch.from_numpy(probe_features(sensitivity.spec, _PROBE_ROWS))
    try:
        packed, _ = sensitivity.joint(features)
    except (RuntimeError, IndexError, ValueError) as error:
        raise BundleError(f"the bundle cannot score probe rows: {first_line(error)}") from None
    if torch.isnan(packed).any():
        raise BundleError("scores of probe rows contain NaN; fit the bundle again")


def _kernel(bundle: Bundle, sensitivity: Sensitivity) -> tuple[Kernel | None, str]:
    """The best kernel of a bundle that this machine can run, or the reason why there is none."""
    machine = Target.here()
    if machine is None:
        return None, "kernels are not available for this kind of processor"
    compiled = [t for t in map(Target.of_file, bundle.files) if t is not None]
    if not compiled:
        return None, "the bundle contains no compiled code; add it with `evenhand bundle compile`"
    targets = matching_targets(bundle.files, machine)
    if not targets:
        stored = ", ".join(f"torch {t.torch} on {t.level}" for t in compiled)
        return None, (
            f"the bundle was compiled for {stored}; this is torch {machine.torch} on "
            f"{machine.level}"
        )
    if not bundle.pinned:
        return None, "native code runs only if the manifest of the bundle is pinned"
    reasons = []
    for target in targets:
        try:
            return load_kernel(bundle.files[target.file], target, sensitivity), ""
        except KernelError as error:
            reasons.append(str(error))
    return None, "; ".join(reasons)


def signal_values(scores: AttributeScores) -> dict[Signal, NDArray[np.float64]]:
    """Values of every signal that could be computed, `[n]` each."""
    values: dict[Signal, NDArray[np.float64]] = {
        "expected_change": scores.expected_change.double().numpy(),
        "flip_probability": scores.flip_probability.double().numpy(),
    }
    if scores.log_prediction_sensitivity is not None:
        values["prediction_sensitivity"] = scores.log_prediction_sensitivity.double().numpy()
    return values


def maps_to_npz(maps: Mapping[str, TransportMaps], logit_spread: float) -> bytes:
    """Contents of `maps.npz`; attributes are numbered as in the manifest.

    The header has the spread of the logits and the number of draws of each attribute's maps.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for index, attribute in enumerate(maps.values()):
        arrays |= {f"{index}/{name}": array for name, array in attribute.to_arrays().items()}
    draws = [attribute.draws for attribute in maps.values()]
    return write_npz({"logit_spread": float(logit_spread), "draws": draws}, arrays)


def with_logit_spread(data: bytes, logit_spread: float) -> bytes:
    """Contents of `maps.npz` with the spread of another classifier's logits, and the same maps.

    Raises:
        BundleError: The contents are damaged.
    """
    try:
        header, arrays = read_npz(data)
    except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
        raise BundleError(damaged_file("maps.npz", error)) from None
    return write_npz({**header, "logit_spread": float(logit_spread)}, arrays)


def _maps_from_npz(data: bytes, manifest: Manifest) -> tuple[dict[str, TransportMaps], float]:
    try:
        header, arrays = read_npz(data)
        draws = _draws(header, len(manifest.protected_attributes))
        maps = {
            attribute.name: TransportMaps.from_arrays(
                {
                    key.removeprefix(f"{index}/"): array
                    for key, array in arrays.items()
                    if key.startswith(f"{index}/")
                },
                draws[index],
            )
            for index, attribute in enumerate(manifest.protected_attributes)
        }
        spread = header["logit_spread"]
    except Exception as error:  # noqa: BLE001 - damaged bytes can raise nearly any exception
        raise BundleError(damaged_file("maps.npz", error)) from None
    if not (isinstance(spread, float) and 0 <= spread < math.inf):
        raise BundleError(damaged_file("maps.npz", f"logit_spread is {spread!r:.40}"))
    for attribute in manifest.protected_attributes:
        attribute_maps = maps[attribute.name]
        if attribute_maps.groups != len(attribute.groups):
            raise BundleError(
                f"maps.npz has {attribute_maps.groups} groups of {attribute.name!r}; the manifest "
                f"has {len(attribute.groups)}"
            )
        if attribute_maps.width != manifest.width:
            raise BundleError(
                f"maps.npz has {attribute_maps.width} columns; the manifest has {manifest.width} "
                "features"
            )
    return maps, spread


def _draws(header: Mapping[str, Any], attributes: int) -> list[int | None]:
    """Number of draws of each attribute's maps; None if the file is older than the choice.

    Raises:
        ValueError: The numbers are not usable.
    """
    draws = header.get("draws")
    if draws is None:
        return [None] * attributes
    # A bool is an int, too.
    usable = isinstance(draws, list) and all(
        type(number) is int and 1 <= number <= MOST_DRAWS for number in draws
    )
    if not usable or len(draws) != attributes:
        raise ValueError(
            f"draws must be {attributes} numbers between 1 and {MOST_DRAWS}, got {draws!r:.40}"
        )
    return list(draws)
