"""Bundles that the servers of `benchmarks.serving` serve, and requests for them.

Bundles are cached in `.cache/bundles`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.kernel_subjects import (
    KernelSubject,
    Shape,
    compiled_kernel,
    make_subject,
    sources_key,
)
from benchmarks.serving_load import framed
from benchmarks.serving_network import read_network, write_network
from benchmarks.serving_servers import Expected
from monitor import Bundle, export_classifier, write_bundle
from monitor.drift.reference import DriftReference
from monitor.scoring.baseline import Baseline
from monitor.scoring.judge import maps_to_npz, signal_values
from monitor.scoring.kernel import Target
from monitor.scoring.scores import Reason
from monitor.wire.open_inference_pb2 import ModelInferRequest

__all__ = ["ServedSubject", "served_subject"]

_ROOT = Path(__file__).parents[1]
_CACHE = _ROOT / ".cache" / "bundles"
# Files that determine the contents of a bundle.
_SOURCES = (
    "benchmarks/kernel_subjects.py",
    "benchmarks/serving_subjects.py",
    "monitor/scoring/*.py",
    "monitor/bundle/*.py",
    "monitor/scoring/counterfactual/*.py",
    "monitor/drift/*.py",
)
_REQUESTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSubject:
    """A classifier to serve.

    Attributes:
        name: Widths of its layers.
        bundle: Bundle for evenhand.
        digest: Digest of the bundle's manifest.
        network: File with the weights, for the peers.
        body: File with the request that the load repeats.
        expected: Requests with their expected scores; the load repeats the first.
    """

    name: str
    bundle: Path
    digest: str
    network: Path
    body: Path
    expected: tuple[Expected, ...]


def served_subject(shape: Shape, folder: Path) -> ServedSubject:
    """Read the bundle from the cache, or make it; write the requests to the folder."""
    subject = make_subject(shape)
    home = _CACHE / f"{'-'.join(map(str, shape.widths))}-{sources_key(_SOURCES, Target.here())}"
    if not home.exists():
        _make(home, subject)
    network, body = folder / "network.npz", folder / "body"
    write_network(network, subject.network)
    with torch.inference_mode():
        rows = subject.rows[:_REQUESTS]
        scores = read_network(network)(rows).numpy()
    expected = tuple(
        Expected(request=_request(rows[i : i + 1], f"request-{i}"), score=scores[i : i + 1])
        for i in range(_REQUESTS)
    )
    body.write_bytes(framed(expected[0].request.SerializeToString()))
    return ServedSubject(
        name=shape.name,
        bundle=home,
        digest=Bundle.read(home).manifest_sha256,
        network=network,
        body=body,
        expected=expected,
    )


def _request(rows: torch.Tensor, name: str) -> ModelInferRequest:
    request = ModelInferRequest(
        model_name="judged", id=name, raw_input_contents=[rows.numpy().tobytes()]
    )
    request.inputs.add(name="features", datatype="FP32", shape=rows.shape)
    return request


def _make(home: Path, subject: KernelSubject) -> None:
    """Write the files that `fit` writes, from the subject's own status model and maps."""
    sensitivity, target = subject.sensitivity, Target.here()
    assert sensitivity.inputs is not None
    ordinary = sensitivity.inputs.reasons(subject.rows.numpy()) == Reason.NONE
    scores = sensitivity.scores(subject.rows[torch.from_numpy(ordinary)])
    predictions = scores.predictions
    baseline = Baseline.from_scores(
        {name: signal_values(own) for name, own in scores.attributes.items()},
        {name: own.hard_flips.double().numpy() for name, own in scores.attributes.items()},
    )
    files = {
        "classifier.pt2": export_classifier(subject.network, sensitivity.spec.width),
        "status.pt2": export_classifier(subject.status, sensitivity.spec.width),
        "maps.npz": maps_to_npz(sensitivity.maps, sensitivity.logit_spread),
        "inputs.npz": sensitivity.inputs.to_npz(),
        "baseline.npz": baseline.to_npz(),
        "drift.npz": DriftReference.from_rows(
            predictions.margin, predictions.attributes, seed=0
        ).to_npz(),
    }
    if target is not None:
        files[target.file] = compiled_kernel(subject, target)
    _CACHE.mkdir(parents=True, exist_ok=True)
    write_bundle(home, sensitivity.spec, files)
