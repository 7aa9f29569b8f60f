"""Metadata of the server and of its model, as the protocol defines them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from monitor.codec import takes_encoded

if TYPE_CHECKING:
    from monitor.bundle.inputs import RawCategory, RawNumber
    from monitor.bundle.manifest import Manifest
    from monitor.bundle.reader import Bundle
    from monitor.settings import ServerConfig

__all__ = ["EXTENSIONS", "NAME", "ModelCard", "TensorCard", "server_version"]

# Name, datatype and shape of a tensor.
TensorCard = tuple[str, str, list[int]]

NAME = "evenhand"
EXTENSIONS = ("binary_tensor_data",)
_PLATFORM = "pytorch"


def server_version() -> str:
    """Version of evenhand."""
    return version("evenhand")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Metadata of the model.

    Attributes:
        name: Name of the model.
        version: Version that is served.
        inputs: The tensor of all features, or a tensor per raw input.
        outputs: Every output that can be requested; the first is the default.
        properties: Further metadata as text.
        platform: Framework of the model.
    """

    name: str
    version: str
    inputs: Sequence[TensorCard]
    outputs: Sequence[TensorCard]
    properties: dict[str, str]
    platform: str = _PLATFORM

    @classmethod
    def of(cls, bundle: Bundle, outputs: Sequence[TensorCard], config: ServerConfig) -> ModelCard:
        """Metadata of a bundle's model."""
        manifest = bundle.manifest
        encoded = (config.input_name, "FP32", [-1, manifest.width])
        return cls(
            name=manifest.model.name,
            version=manifest.model.version,
            inputs=[_raw_tensor(raw) for raw in manifest.inputs] or [encoded],
            outputs=outputs,
            properties={
                "features": json.dumps([feature.name for feature in manifest.features]),
                **_how_to_send(manifest, config),
                "protected_attributes": json.dumps([a.name for a in manifest.protected_attributes]),
                "decision": f"{manifest.decision.class_names[1]} if P >= "
                f"{manifest.decision.threshold:g}, else {manifest.decision.class_names[0]}",
                "output": manifest.classifier.output,
                "manifest_sha256": bundle.manifest_sha256,
            },
        )


def _raw_tensor(raw: RawNumber | RawCategory) -> TensorCard:
    return raw.name, "FP64" if raw.kind == "number" else "BYTES", [-1]


def _how_to_send(manifest: Manifest, config: ServerConfig) -> dict[str, str]:
    """Properties about the tensors of a request."""
    if not manifest.inputs:
        return {
            "inputs": f"one tensor {config.input_name!r} with all features in this order, or "
            "one tensor [-1] or [-1, 1] per feature, with the feature's name"
        }
    inputs = (
        "one tensor [-1] or [-1, 1] per raw input, with its name: text for categories, numbers "
        "for numbers; an empty text, NaN or null is a missing value"
    )
    if not takes_encoded(manifest, config):
        return {"inputs": inputs}
    return {
        "inputs": f"{inputs}; or one tensor {config.input_name!r} with all features in this order",
        "encoded_input": config.input_name,
    }
