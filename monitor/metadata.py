"""What the sidecar says of itself and of its model, in the protocol's terms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monitor.bundle.reader import Bundle
    from monitor.settings import ServerConfig

__all__ = ["EXTENSIONS", "NAME", "ModelCard", "TensorCard", "server_version"]

# Name, datatype and shape of a tensor.
TensorCard = tuple[str, str, list[int]]

NAME = "evenhand"
EXTENSIONS = ("binary_tensor_data",)
_PLATFORM = "pytorch"


def server_version() -> str:
    """Of evenhand."""
    return version("evenhand")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What a client may know of the model.

    Attributes:
        name: Of the model.
        version: The one that is served.
        platform: What it runs on.
        inputs: Name, datatype and shape of the one tensor of all features.
        outputs: Of every output that can be asked for; the first comes unasked.
        properties: The rest, in words.
    """

    name: str
    version: str
    inputs: Sequence[TensorCard]
    outputs: Sequence[TensorCard]
    properties: dict[str, str]
    platform: str = _PLATFORM

    @classmethod
    def of(cls, bundle: Bundle, outputs: Sequence[TensorCard], config: ServerConfig) -> ModelCard:
        """For a bundle's model."""
        manifest = bundle.manifest
        return cls(
            name=manifest.model.name,
            version=manifest.model.version,
            inputs=[(config.input_name, "FP32", [-1, manifest.width])],
            outputs=outputs,
            properties={
                "features": json.dumps([feature.name for feature in manifest.features]),
                "inputs": f"{config.input_name!r} with all features in this order, or a tensor "
                "[-1] or [-1, 1] for each, called by its name",
                "protected_attributes": json.dumps([a.name for a in manifest.protected_attributes]),
                "decision": f"{manifest.decision.class_names[1]} if P >= "
                f"{manifest.decision.threshold:g}, else {manifest.decision.class_names[0]}",
                "output": manifest.classifier.output,
                "manifest_sha256": bundle.manifest_sha256,
            },
        )
