"""What `benchmarks.kernel` judges: networks on made-up tables of every kind of feature."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel

__all__ = ["LARGE", "SMALL", "KernelSubject", "Shape", "make_subject"]

_ROWS = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A network's widths, and the columns of its table; every other feature moves between groups.

    Attributes:
        widths: Columns, hidden layers, output.
        numeric: Numeric columns.
        integer: Integer columns.
        binary: Binary columns.
        one_hot: One-hot groups, and columns of each.
    """

    widths: tuple[int, ...]
    numeric: int
    integer: int
    binary: int
    one_hot: tuple[int, int]

    @property
    def name(self) -> str:
        """Such as 95→32→1."""
        return "→".join(map(str, self.widths))


SMALL = Shape(widths=(95, 32, 1), numeric=3, integer=3, binary=5, one_hot=(7, 12))
LARGE = Shape(widths=(399, 256, 256, 1), numeric=40, integer=20, binary=39, one_hot=(20, 15))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSubject:
    """A network with everything that judges it.

    Attributes:
        shape: Its shape.
        network: The classifier as its owner has it, `[n, d]` to `[n, 1]`.
        status: The status model.
        sensitivity: What judges it, as a bundle's classifier is judged.
        rows: People, `[n, d]`.
    """

    shape: Shape
    network: nn.Sequential
    status: StatusModel
    sensitivity: Sensitivity
    rows: Tensor


def make_subject(shape: Shape, *, attributes: int = 1, groups: int = 2) -> KernelSubject:
    """Random parameters: what they are does not change what they cost."""
    rng = np.random.default_rng(0)
    members = {
        f"attribute {number}": rng.integers(groups, size=_ROWS).astype(np.int8)
        for number in range(attributes)
    }
    rows, features, one_hot_groups = _table(shape, members, rng)
    spec = BundleSpec(
        model=Model(name="judged", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=features,
        one_hot_groups=one_hot_groups,
        protected_attributes=tuple(
            ProtectedAttribute(name=name, groups=tuple(f"group {g}" for g in range(groups)))
            for name in members
        ),
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )
    torch.manual_seed(0)
    network = _network(shape.widths)
    status = StatusModel(torch.from_numpy(rows), [groups] * attributes).eval()
    classifier = load_classifier(export_classifier(network, shape.widths[0]), spec)
    with torch.no_grad():
        spread = float(network(torch.from_numpy(rows)).std())
    sensitivity = Sensitivity(
        logit=classifier.logit,
        status=status,
        maps={
            name: fit_transport_maps(rows, group, features, one_hot_groups, groups)
            for name, group in members.items()
        },
        spec=spec,
        logit_spread=spread,
        first_layer=first_layer(classifier),
    )
    return KernelSubject(
        shape=shape,
        network=network,
        status=status,
        sensitivity=sensitivity,
        rows=torch.from_numpy(rows),
    )


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
        """How far along each person is by her groups; every other feature by each attribute."""
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
        names = tuple(f"category {number}={place}" for place in range(size))
        columns += [(drawn == place).astype(float) for place in range(size)]
        features += [Feature(name=name, kind="onehot") for name in names]
        one_hot_groups.append(OneHotGroup(name=f"category {number}", features=names))
    return np.stack(columns, 1).astype(np.float32), tuple(features), tuple(one_hot_groups)
