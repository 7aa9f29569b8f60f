"""The sidecar: serves a classifier, scores every prediction, acts on policy and logs traffic.

Public names are imported on first use (PEP 562), so `import monitor` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitor.bundle import Bundle as Bundle
    from monitor.bundle import BundleSpec as BundleSpec
    from monitor.bundle import ClassifierFile as ClassifierFile
    from monitor.bundle import Decision as Decision
    from monitor.bundle import Feature as Feature
    from monitor.bundle import Fitted as Fitted
    from monitor.bundle import Manifest as Manifest
    from monitor.bundle import Model as Model
    from monitor.bundle import OneHotGroup as OneHotGroup
    from monitor.bundle import ProtectedAttribute as ProtectedAttribute
    from monitor.bundle import write_bundle as write_bundle
    from monitor.bundle.classifier import export_classifier as export_classifier
    from monitor.bundle.inputs import RawCategory as RawCategory
    from monitor.bundle.inputs import RawNumber as RawNumber
    from monitor.client import AsyncClient as AsyncClient
    from monitor.client import Client as Client
    from monitor.drift.watch import Drift as Drift
    from monitor.errors import EvenhandError as EvenhandError
    from monitor.fitting import FitData as FitData
    from monitor.fitting import FitSpec as FitSpec
    from monitor.fitting import read_data as read_data
    from monitor.fitting import read_spec as read_spec
    from monitor.fitting.run import FitResult as FitResult
    from monitor.fitting.run import fit as fit
    from monitor.fitting.sklearn_encoding import SpecInputs as SpecInputs
    from monitor.fitting.sklearn_encoding import encoding_from_sklearn as encoding_from_sklearn
    from monitor.fitting.update import UpdateResult as UpdateResult
    from monitor.fitting.update import update_bundle as update_bundle
    from monitor.scoring.judge import Judge as Judge
    from monitor.world import Population as Population
    from monitor.world import World as World
    from monitor.world.classifiers import decide as decide
    from monitor.world.classifiers import train_fair as train_fair
    from monitor.world.classifiers import train_proxy_biased as train_proxy_biased
    from monitor.world.classifiers import train_subgroup_biased as train_subgroup_biased

_MODULES = {
    "monitor.bundle": (
        *("Bundle", "BundleSpec", "ClassifierFile", "Decision", "Feature", "Fitted", "Manifest"),
        *("Model", "OneHotGroup", "ProtectedAttribute", "write_bundle"),
    ),
    "monitor.bundle.classifier": ("export_classifier",),
    "monitor.bundle.inputs": ("RawCategory", "RawNumber"),
    "monitor.client": ("AsyncClient", "Client"),
    "monitor.drift.watch": ("Drift",),
    "monitor.errors": ("EvenhandError",),
    "monitor.fitting": ("FitData", "FitSpec", "read_data", "read_spec"),
    "monitor.fitting.run": ("FitResult", "fit"),
    "monitor.fitting.sklearn_encoding": ("SpecInputs", "encoding_from_sklearn"),
    "monitor.fitting.update": ("UpdateResult", "update_bundle"),
    "monitor.scoring.judge": ("Judge",),
    "monitor.world": ("Population", "World"),
    "monitor.world.classifiers": (
        *("decide", "train_fair", "train_proxy_biased", "train_subgroup_biased"),
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
