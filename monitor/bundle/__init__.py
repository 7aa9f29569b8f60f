"""The bundle: what is deployed beside a model, checked to the last byte.

Reading one and looking at its manifest needs no torch; `Bundle.classifier` and
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
