"""The bundle: the files that are deployed with a model, each verified by its hash.

Reading a bundle and its manifest does not import torch; `Bundle.classifier` and
`monitor.bundle.classifier` do.
"""

from monitor.bundle.manifest import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Manifest,
    Model,
    OneHotGroup,
    ProtectedAttribute,
)
from monitor.bundle.reader import Bundle
from monitor.bundle.writer import write_bundle

__all__ = [
    "Bundle",
    "BundleSpec",
    "ClassifierFile",
    "Decision",
    "Feature",
    "Fitted",
    "Manifest",
    "Model",
    "OneHotGroup",
    "ProtectedAttribute",
    "write_bundle",
]
