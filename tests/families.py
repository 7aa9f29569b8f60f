"""Classifiers of common architectures, for the 25 features of the lending world."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from monitor import ClassifierFile, ProtectedAttribute, World, export_classifier
from monitor.bundle.classifier import Classifier, load_classifier
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.first_layer import first_layer
from monitor.scoring.input_check import InputCheck
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel
from tests.bundles import small_spec

WORLD = World()
PEOPLE = WORLD.people(6_000, seed=71)
_ROWS = torch.from_numpy(PEOPLE.features)
_INTEGERS = [i for i, feature in enumerate(WORLD.features) if feature.kind == "integer"]


class Standardise(nn.Module):
    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", _ROWS.mean(0))
        self.register_buffer("scale", 1 / _ROWS.std(0))

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.mean) * self.scale


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(25, 16), nn.Linear(16, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
            for _ in range(2)
        )

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.start(features)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.end(hidden)


class Embedded(nn.Module):
    """Integer features as categories, embedded without scaling."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Standardise()
        self.tables = nn.ModuleList(nn.Embedding(12, 3) for _ in _INTEGERS)
        self.layers = nn.Sequential(
            nn.Linear(25 + 3 * len(_INTEGERS), 12), nn.SiLU(), nn.Linear(12, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        parts = [self.scale(features)]
        for column, table in zip(_INTEGERS, self.tables, strict=True):
            parts.append(table(features[:, column].clamp(0, 11).long()))
        return self.layers(torch.cat(parts, 1))


class Attention(nn.Module):
    """One token per feature, one transformer layer, and the mean of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(25, 8)), nn.Parameter(torch.randn(25, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.end = nn.Linear(8, 1)

    def forward(self, features: Tensor) -> Tensor:
        tokens = features[:, :, None] * self.weight + self.bias
        return self.end(self.layer(tokens).mean(1))


def _mlp() -> nn.Module:
    return nn.Sequential(Standardise(), nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 1))


def _normalised() -> nn.Module:
    module = nn.Sequential(
        *(Standardise(), nn.Linear(25, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)),
    )
    for _ in range(5):  # to set the running statistics
        module(_ROWS[:512])
    return module


FAMILIES = {
    "MLP": _mlp,
    "batch norm and dropout": _normalised,
    "residual blocks": lambda: nn.Sequential(Standardise(), Residual()),
    "embeddings": Embedded,
    "attention over features": lambda: nn.Sequential(Standardise(), Attention()),
}


def seeded(family: str, seed: int = 0) -> nn.Module:
    """A classifier with random parameters, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[family]().eval()


def spec(attributes: tuple[str, ...] = ("sex",)):
    chosen: tuple[ProtectedAttribute, ...] = tuple(
        a for a in WORLD.attributes if a.name in attributes
    )
    return small_spec(
        features=WORLD.features,
        one_hot_groups=WORLD.one_hot_groups,
        protected_attributes=chosen,
        classifier=ClassifierFile(output="logit"),
    )


def loaded(module: nn.Module, attributes: tuple[str, ...] = ("sex",)) -> Classifier:
    """The classifier as loaded from a bundle."""
    return load_classifier(export_classifier(module, 25), spec(attributes))


def sensitivity(classifier: Classifier, *, cut: bool = True) -> Sensitivity:
    """The sensitivity of a classifier, with a status model of random parameters."""
    attributes = classifier.spec.protected_attributes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        status = StatusModel(_ROWS, [len(a.groups) for a in attributes]).eval()
    with torch.no_grad():
        spread = float(classifier.logit(_ROWS).std())
    return Sensitivity(
        logit=classifier.logit,
        status=status,
        maps={
            a.name: fit_transport_maps(
                PEOPLE.features,
                PEOPLE.groups[a.name],
                WORLD.features,
                WORLD.one_hot_groups,
                len(a.groups),
            )
            for a in attributes
        },
        spec=classifier.spec,
        logit_spread=spread,
        first_layer=first_layer(classifier) if cut else None,
        inputs=InputCheck.fit(PEOPLE.features, WORLD.features, WORLD.one_hot_groups),
    )
