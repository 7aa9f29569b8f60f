"""Cost of verifying a bundle: hashes, loading without pickles, and probe rows."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import torch
from torch import nn

from benchmarks.claims import Claim, Say, Scale, paired_ratio, report
from monitor import (
    Bundle,
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    ProtectedAttribute,
    export_classifier,
    write_bundle,
)

_SIZES = {"small": (95, 32), "large": (399, 256)}


def measure(scale: Scale, say: Say) -> list[Claim]:
    """Time to read and probe a bundle, relative to torch's unchecked loading of the same file."""
    torch.set_num_threads(1)
    rounds = scale.pick(full=51, quick=11, smoke=1)
    claims = []
    for size, (width, hidden) in _SIZES.items():
        say(f"{size} classifier")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bundle")
            write_bundle(path, _spec(width), {"classifier.pt2": _export(width, hidden)})
            file = path / "classifier.pt2"
            ratio = paired_ratio(
                lambda path=path: Bundle.read(path).classifier(),  # type: ignore[misc]
                lambda file=file: torch.export.load(io.BytesIO(file.read_bytes())).module(),  # type: ignore[misc]
                rounds=rounds,
            )
        claims.append(
            Claim(
                claim=f"read, verify and probe a bundle, {size} classifier",
                figure=ratio.median,
                unit="× torch.export.load",
                side="at most",
                bar=2,
                rounds=rounds,
                details=ratio.details,
            )
        )
    return claims


def _export(width: int, hidden: int) -> bytes:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    return export_classifier(layers, width)


def _spec(width: int) -> BundleSpec:
    return BundleSpec(
        model=Model(name="benchmark", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=tuple(Feature(name=f"x{i}", kind="numeric") for i in range(width)),
        protected_attributes=(ProtectedAttribute(name="sex", groups=("man", "woman")),),
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )


if __name__ == "__main__":
    report("Verifying a bundle", measure)
