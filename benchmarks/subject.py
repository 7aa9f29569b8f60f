"""Subjects of `benchmarks.detection`: a classifier, and what evenhand fits to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

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
    decide,
)
from monitor.fitting.draws import with_chosen_draws
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.robust import robust_spread
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import calibrate, train_status_model
from monitor.world.classifiers import Scorecard

__all__ = [
    "People",
    "Society",
    "Subject",
    "audited",
    "fine_tune",
    "fit_subject",
    "train_classifier",
]

Float = NDArray[np.float32]
Bool = NDArray[np.bool_]

_EPOCHS = 12
_BATCH = 512


class People(Protocol):
    """People drawn from a society, as `monitor.world.Population` is from the world."""

    @property
    def features(self) -> Float:
        """Input of the classifier, `[n, d]`."""

    @property
    def groups(self) -> dict[str, NDArray[np.int8]]:
        """Index of each person's group, `[n]`, by protected attribute."""

    @property
    def labels(self) -> NDArray[np.int8]:
        """Recorded labels, `[n]`."""

    def counterfactual(self, attribute: str, group: str) -> Float:
        """Features of everyone as a member of a group, with the same noise, `[n, d]`."""

    def true_flips(self, decide: Callable[[Float], Bool], attribute: str) -> Bool:
        """Whether each decision would change for at least one other group, `[n]`."""


class Society(Protocol):
    """A structural causal model: the lending world, or one of `benchmarks.structural_models`."""

    @property
    def features(self) -> tuple[Feature, ...]:
        """The encoded columns, in order."""

    @property
    def one_hot_groups(self) -> tuple[OneHotGroup, ...]:
        """One-hot groups of the columns."""

    @property
    def attributes(self) -> tuple[ProtectedAttribute, ...]:
        """The protected attributes."""

    def people(self, n: int, *, seed: int) -> People:
        """Draw n people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A classifier and its scoring.

    Attributes:
        classifier: From features `[n, d]` to logits `[n]`.
        sensitivity: Scoring with the status model and maps of the original classifier.
    """

    classifier: nn.Module
    sensitivity: Sensitivity

    def scores(self, features: Float) -> Scores:
        """Score n predictions with unknown groups."""
        return self.sensitivity.scores(torch.from_numpy(features))

    def scores_knowing(self, features: Float, groups: dict[str, NDArray[np.int8]]) -> Scores:
        """Score n predictions of people with known groups."""
        heads = [
            torch.from_numpy(groups[attribute.name][:, None] == np.arange(len(attribute.groups)))
            for attribute in self.sensitivity.spec.protected_attributes
        ]
        certain = 60.0 * torch.cat(heads, dim=1)
        # A status model sees features only, so every batch gets one that returns its groups.
        size = self.sensitivity.max_rows
        parts = zip(torch.from_numpy(features).split(size), certain.split(size), strict=True)
        knowing = [(replace(self.sensitivity, status=_constant(c)), rows) for rows, c in parts]
        packed = [sensitivity.joint(rows) for sensitivity, rows in knowing]
        columns, contributions = map(torch.cat, zip(*packed, strict=True))
        return knowing[0][0].unpacked(columns, contributions)

    def true_flips(self, people: People, attribute: str) -> Bool:
        """Whether each decision would truly change in another group, `[n]`."""
        return people.true_flips(partial(decide, self.classifier), attribute)

    def replaced(self, classifier: nn.Module) -> Subject:
        """Replace the classifier; status model and maps stay."""
        return Subject(
            classifier=classifier, sensitivity=replace(self.sensitivity, logit=classifier)
        )


def fit_subject(
    society: Society,
    classifier: nn.Module,
    people: People,
    *,
    seed: int,
    attributes: Sequence[ProtectedAttribute] | None = None,
) -> Subject:
    """Fit status model and maps to people of known groups; the last sixth calibrates the model."""
    protected = tuple(society.attributes if attributes is None else attributes)
    cut = len(people.features) * 5 // 6
    first = {name: groups[:cut] for name, groups in people.groups.items()}
    last = {name: groups[cut:] for name, groups in people.groups.items()}
    status = train_status_model(people.features[:cut], first, protected, seed=seed)
    calibrate(status, people.features[cut:], last, protected)
    maps = {
        attribute.name: fit_transport_maps(
            people.features,
            people.groups[attribute.name],
            society.features,
            society.one_hot_groups,
            len(attribute.groups),
            repair=True,
            seed=seed,
        )
        for attribute in protected
    }
    with torch.no_grad():
        spread = robust_spread(classifier(torch.from_numpy(people.features)).numpy())
    sensitivity = Sensitivity(
        logit=classifier,
        status=status,
        maps=maps,
        spec=_spec(society, protected),
        logit_spread=spread,
    )
    sensitivity = with_chosen_draws(sensitivity, people.features[cut:], last, seed=seed)
    return Subject(classifier=classifier, sensitivity=sensitivity)


def audited(
    society: Society,
    classifier: nn.Module,
    features: Float,
    groups: NDArray[np.int8],
    attribute: ProtectedAttribute,
) -> Sensitivity:
    """Maps of one attribute, fitted to people of known groups, with an uninformed status model."""
    maps = fit_transport_maps(
        features,
        groups,
        society.features,
        society.one_hot_groups,
        len(attribute.groups),
        repair=True,
    )
    with torch.no_grad():
        spread = robust_spread(classifier(torch.from_numpy(features)).numpy())
    return Sensitivity(
        logit=classifier,
        status=lambda rows: torch.zeros(len(rows), len(attribute.groups)),
        maps={attribute.name: maps},
        spec=_spec(society, (attribute,)),
        logit_spread=spread,
    )


def train_classifier(people: People, *, seed: int) -> nn.Module:
    """Train on the recorded labels and all features, as the world's proxy-biased classifier."""
    torch.manual_seed(seed)
    features = torch.from_numpy(people.features)
    scorecard = Scorecard(features, torch.ones(features.shape[1]))
    optimizer = torch.optim.AdamW(scorecard.parameters(), weight_decay=1e-3)
    steps = _EPOCHS * -(-len(features) // _BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
    for _ in range(_EPOCHS):
        _epoch(scorecard, optimizer, features, people.labels, schedule.step)
    return scorecard.eval()


def fine_tune(
    classifier: nn.Module, features: Float, labels: NDArray[np.int8], *, seed: int
) -> nn.Module:
    """Train a copy for one epoch on other people."""
    torch.manual_seed(seed)
    tuned = copy.deepcopy(classifier).train()
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=1e-3, weight_decay=1e-3)
    _epoch(tuned, optimizer, torch.from_numpy(features), labels, lambda: None)
    return tuned.eval()


def _constant(values: Tensor) -> Callable[[Tensor], Tensor]:
    """A status model that returns the same logits whatever the features are."""
    return lambda _: values


def _epoch(
    classifier: nn.Module,
    optimizer: torch.optim.Optimizer,
    features: Tensor,
    labels: NDArray[np.int8],
    after: Callable[[], None],
) -> None:
    targets = torch.from_numpy(labels.astype(np.float32))
    for batch in torch.randperm(len(features)).split(_BATCH):
        logit = classifier(features[batch])
        loss = nn.functional.binary_cross_entropy_with_logits(logit, targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after()


def _spec(society: Society, attributes: tuple[ProtectedAttribute, ...]) -> BundleSpec:
    return BundleSpec(
        model=Model(name="judged", version="1"),
        classifier=ClassifierFile(output="logit"),
        features=society.features,
        one_hot_groups=society.one_hot_groups,
        protected_attributes=attributes,
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=0),
    )
