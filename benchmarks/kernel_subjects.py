"""Subjects of `benchmarks.kernel` and `benchmarks.serving`: networks on synthetic tables.

Compiled kernels are cached in `.cache/kernels`, since compiling takes half a minute.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.structural_models import StructuralModel
from monitor import (
    BundleSpec,
    ClassifierFile,
    Decision,
    Feature,
    Fitted,
    Model,
    OneHotGroup,
    ProtectedAttribute,
    export_classifier,
)
from monitor.bundle.classifier import load_classifier
from monitor.scoring.compiling import compile_kernel
from monitor.scoring.counterfactual import TransportMaps, fit_transport_maps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.input_check import InputCheck
from monitor.scoring.kernel import Target
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel

__all__ = [
    "LARGE",
    "SMALL",
    "KernelSubject",
    "Shape",
    "compiled_kernel",
    "make_repaired",
    "make_subject",
    "sources_key",
]

_ROWS = 8_000
# Enough to find all pairs that differ in dependence.
_REPAIRED_ROWS = 30_000
_ROOT = Path(__file__).parents[1]
_CACHE = _ROOT / ".cache" / "kernels"
# Files that determine a compiled kernel.
_SOURCES = (
    "benchmarks/kernel_subjects.py",
    "benchmarks/*_models.py",
    "monitor/bundle/*.py",
    "monitor/scoring/*.py",
    "monitor/scoring/counterfactual/*.py",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Widths of a network and columns of its table; every other feature depends on the group.

    Attributes:
        widths: Number of columns, widths of hidden layers and of the output.
        numeric: Number of numeric columns.
        integer: Number of integer columns.
        binary: Number of binary columns.
        one_hot: Number of one-hot groups, and columns per group.
    """

    widths: tuple[int, ...]
    numeric: int
    integer: int
    binary: int
    one_hot: tuple[int, int]

    @property
    def name(self) -> str:
        """Widths, such as 95→32→1."""
        return "→".join(map(str, self.widths))


SMALL = Shape(widths=(95, 32, 1), numeric=3, integer=3, binary=5, one_hot=(7, 12))
LARGE = Shape(widths=(399, 256, 256, 1), numeric=40, integer=20, binary=39, one_hot=(20, 15))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSubject:
    """A network with everything that scoring needs.

    Attributes:
        shape: Shape of the network and its table.
        network: Classifier before export, `[n, d]` to `[n, 1]`.
        status: Status model.
        sensitivity: Scoring of the exported classifier.
        rows: Synthetic rows, `[n, d]`.
        maps: What distinguishes the transport maps of subjects of the same shape.
    """

    shape: Shape
    network: nn.Sequential
    status: StatusModel
    sensitivity: Sensitivity
    rows: Tensor
    maps: str = ""


def make_subject(shape: Shape, *, attributes: int = 1, groups: int = 2) -> KernelSubject:
    """Make a network with random parameters, which do not affect its cost."""
    rng = np.random.default_rng(0)
    members = {
        f"attribute {number}": rng.integers(groups, size=_ROWS).astype(np.int8)
        for number in range(attributes)
    }
    rows, features, one_hot_groups = _table(shape, members, rng)
    protected = tuple(
        ProtectedAttribute(name=name, groups=tuple(f"group {g}" for g in range(groups)))
        for name in members
    )
    maps = {
        name: fit_transport_maps(rows, group, features, one_hot_groups, groups)
        for name, group in members.items()
    }
    return _subject(shape, rows, features, one_hot_groups, protected, maps)


def make_repaired(model: StructuralModel, *, repair: bool) -> KernelSubject:
    """A small network on the columns of a structural model whose groups differ in dependence.

    Args:
        model: The structural model.
        repair: Whether its maps transport features given others.
    """
    people = model.people(_REPAIRED_ROWS, seed=3)
    attribute, width = model.attributes[0], len(model.features)
    maps = fit_transport_maps(
        people.features,
        people.groups[attribute.name],
        model.features,
        model.one_hot_groups,
        len(attribute.groups),
        repair=repair,
    )
    count = sum(map(len, maps.repairs))
    shape = Shape(widths=(width, 32, 1), numeric=width, integer=0, binary=0, one_hot=(0, 0))
    return _subject(
        shape,
        people.features,
        model.features,
        model.one_hot_groups,
        (attribute,),
        {attribute.name: maps},
        f"{model.features[0].name}, orders: {maps.orders}, repairs in all: {count}",
    )


def _subject(
    shape: Shape,
    rows: NDArray[np.float32],
    features: tuple[Feature, ...],
    one_hot_groups: tuple[OneHotGroup, ...],
    attributes: tuple[ProtectedAttribute, ...],
    maps: dict[str, TransportMaps],
    name: str = "",
) -> KernelSubject:
    spec = BundleSpec(
        model=Model(name="judged", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=features,
        one_hot_groups=one_hot_groups,
        protected_attributes=attributes,
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )
    torch.manual_seed(0)
    network = _network(shape.widths)
    status = StatusModel(torch.from_numpy(rows), [len(a.groups) for a in attributes]).eval()
    classifier = load_classifier(export_classifier(network, shape.widths[0]), spec)
    with torch.no_grad():
        spread = float(network(torch.from_numpy(rows)).std())
    sensitivity = Sensitivity(
        logit=classifier.logit,
        status=status,
        maps=maps,
        spec=spec,
        logit_spread=spread,
        first_layer=first_layer(classifier),
        inputs=InputCheck.fit(rows, features, one_hot_groups),
    )
    return KernelSubject(
        shape=shape,
        network=network,
        status=status,
        sensitivity=sensitivity,
        rows=torch.from_numpy(rows),
        maps=name,
    )


def compiled_kernel(subject: KernelSubject, target: Target) -> bytes:
    """The compiled joint pass of a subject, from the cache or newly compiled."""
    groups = [len(a.groups) for a in subject.sensitivity.spec.protected_attributes]
    file = _CACHE / f"{sources_key(_SOURCES, subject.shape, subject.maps, groups, target)}.pt2"
    if not file.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(compile_kernel(subject.sensitivity, target))
        draft.replace(file)
    return file.read_bytes()


def sources_key(patterns: tuple[str, ...], *values: object) -> str:
    """Cache key from the contents of source files and further values."""
    digest = hashlib.sha256(f"{sys.version} {values}".encode())
    for pattern in patterns:
        for file in sorted(_ROOT.glob(pattern)):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _network(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for here, there in pairwise(widths):
        layers += [nn.Linear(here, there), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def _table(
    shape: Shape, members: dict[str, NDArray[np.int8]], rng: np.random.Generator
) -> tuple[NDArray[np.float32], tuple[Feature, ...], tuple[OneHotGroup, ...]]:
    columns: list[NDArray[np.float64]] = []
    features: list[Feature] = []
    one_hot_groups = []

    def moved(number: int) -> NDArray[np.float64]:
        """Shift of a feature per row; each attribute shifts every other feature."""
        shifts = [g for i, g in enumerate(members.values()) if (number + i) % 2 == 0]
        return np.sum(shifts, axis=0).astype(float) if shifts else np.zeros(_ROWS)

    for number in range(shape.numeric):
        columns.append(rng.normal(0.6 * moved(number), 1))
        features.append(Feature(name=f"numeric {number}", kind="numeric", low=-3, high=4))
    for number in range(shape.integer):
        columns.append(rng.poisson(np.exp(1.2 + 0.3 * moved(number))).astype(float))
        features.append(Feature(name=f"integer {number}", kind="integer", low=0, high=20))
    for number in range(shape.binary):
        columns.append((rng.random(_ROWS) < 0.3 + 0.1 * moved(number)).astype(float))
        features.append(Feature(name=f"binary {number}", kind="binary"))
    groups, size = shape.one_hot
    for number in range(groups):
        drawn = (rng.integers(size, size=_ROWS) * (1 - 0.15 * moved(number))).astype(int)
        names = tuple(f"category {number}={value}" for value in range(size))
        columns += [(drawn == value).astype(float) for value in range(size)]
        features += [Feature(name=name, kind="onehot") for name in names]
        one_hot_groups.append(OneHotGroup(name=f"category {number}", features=names))
    return np.stack(columns, 1).astype(np.float32), tuple(features), tuple(one_hot_groups)
