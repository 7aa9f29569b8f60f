"""Trials of the paper on prediction sensitivity: its networks, their scores, and their AUC."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.papers.datasets import Data, binary_attribute, train_rows
from benchmarks.rival_scores import attribute_flip, linear_change
from monitor import BundleSpec, ClassifierFile, Decision, Feature, Fitted, Model, ProtectedAttribute
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel, train_status_model

__all__ = [
    "ACCURACY",
    "EPOCHS",
    "PAPERS_PS",
    "PAPERS_STATUS_ACCURACY",
    "PS",
    "STATUS_ACCURACY",
    "SYNTHETIC",
    "TEST_SETS",
    "Cell",
    "Figures",
    "real_trial",
    "synthetic_trial",
]

EPOCHS = (10, 40)
# The paper names neither batch size nor scaling: a usual size, and unscaled inputs.
_BATCH = 64
TEST_SETS = ("original", "augmented")
SYNTHETIC = "synthetic"
ACCURACY, STATUS_ACCURACY = "accuracy of F", "accuracy of A"
PAPERS_STATUS_ACCURACY = "  paper's A"
# Prediction sensitivity with the status model of `fit`, and with one like the paper's.
PS, PAPERS_PS = "PS", "PS, paper's A"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the tables: a case such as "Adult sex", epochs of training, and a test set."""

    case: str
    epochs: int
    test_set: str


class Networks(NamedTuple):
    """The paper's networks in one trial: F, F̂, F with another seed, and A."""

    classifier: nn.Module
    fair: nn.Module
    reseeded: nn.Module
    papers_status: nn.Module


# One network after each number of epochs.
Trained = Mapping[int, nn.Module]
# The figures of one trial, cell by cell.
Figures = Iterator[tuple[Cell, Mapping[str, float]]]


def real_trial(data: Data, trial: int, rows: int) -> Figures:
    """Section 6: a new split, and one F̂ per attribute, trained on augmented data."""
    order = torch.randperm(len(data.features), generator=torch.Generator().manual_seed(trial))
    order, split = order[:rows], train_rows(rows)
    train, test = data.take(order[:split]), data.take(order[split:])
    classifier, reseeded = (_fit(train, seed=2 * trial + other) for other in (0, 1))
    for attribute in data.attributes:
        fair = _fit(train.augmented(attribute), seed=2 * trial)
        yield from _evaluate(attribute, train, test, (classifier, fair, reseeded))


def synthetic_trial(trial: int, rows: int) -> Figures:
    """Section 5: gender depends on the label for F, is random for F̂, and in the test set as for F.

    The paper gives neither the number of rows nor the network; Adult's network is used.
    """
    points, labels = make_classification(
        rows, n_features=2, n_informative=2, n_redundant=0, random_state=trial
    )
    random = np.random.default_rng(trial)
    by_label = random.random(rows) < np.where(labels == 1, 0.25, 0.75)
    by_coin = random.random(rows) < 0.5
    biased, unbiased = (
        _synthetic(np.column_stack([points, woman]), labels) for woman in (by_label, by_coin)
    )
    learn, hold_out = torch.arange(rows).split([train_rows(rows), rows - train_rows(rows)])
    train, test = biased.take(learn), biased.take(hold_out)
    classifier, reseeded = (_fit(train, seed=2 * trial + other) for other in (0, 1))
    fair = _fit(unbiased.take(learn), seed=2 * trial)
    yield from _evaluate(biased.attributes[0], train, test, (classifier, fair, reseeded))


def _synthetic(features: NDArray[np.float64], labels: NDArray[np.int64]) -> Data:
    numeric = [Feature(name=name, kind="numeric") for name in ("first", "second")]
    return Data(
        name=SYNTHETIC,
        features=torch.from_numpy(features.astype(np.float32)),
        labels=torch.from_numpy(labels.astype(np.float32)),
        kinds=(*numeric, Feature(name="gender", kind="binary")),
        one_hot_groups=(),
        attributes=(binary_attribute("gender", ("man", "woman")),),
        width=32,
    )


def _fit(train: Data, *, seed: int) -> Trained:
    """Train the paper's network (section 6.2); return it after each number of epochs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(train)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        snapshots = {}
        for epoch in range(1, max(EPOCHS) + 1):
            for rows in torch.randperm(len(train.features)).split(_BATCH):
                optimizer.zero_grad()
                logit = network(train.features[rows])
                binary_cross_entropy_with_logits(logit, train.labels[rows]).backward()
                optimizer.step()
            if epoch in EPOCHS:
                snapshots[epoch] = copy.deepcopy(network)
    return snapshots


def _network(data: Data) -> nn.Module:
    """One hidden layer with ReLU; from features `[n, d]` to logits `[n]`."""
    first = nn.Linear(data.features.shape[1], data.width)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(data.width, 1), nn.Flatten(0))


def _evaluate(
    attribute: ProtectedAttribute, train: Data, test: Data, trained: Sequence[Trained]
) -> Figures:
    """Figures of one trial, after each number of epochs, on both test sets.

    Args:
        attribute: Protected attribute.
        train: Training rows of F and A.
        test: Original test set.
        trained: F, F̂ and F with another seed.
    """
    groups = {attribute.name: train.groups(attribute)}
    # Not calibrated, as in the paper; the group is a column of the features.
    status = train_status_model(train.features.numpy(), groups, (attribute,), seed=0)
    papers = _fit(replace(train, labels=train.features[:, train.column(attribute)]), seed=0)
    case = train.name if train.name == SYNTHETIC else f"{train.name} {attribute.name}"
    for epochs in EPOCHS:
        networks = Networks(*(snapshots[epochs] for snapshots in (*trained, papers)))
        sensitivity = _sensitivity(train, attribute, networks.classifier, status)
        for name, rows in zip(TEST_SETS, (test, test.augmented(attribute)), strict=True):
            yield Cell(case, epochs, name), _figures(sensitivity, networks, rows, attribute)


def _sensitivity(
    train: Data, attribute: ProtectedAttribute, classifier: nn.Module, status: StatusModel
) -> Sensitivity:
    rows = train.features.numpy()
    maps = fit_transport_maps(rows, train.groups(attribute), train.kinds, train.one_hot_groups, 2)
    with torch.no_grad():
        spread = float(classifier(train.features).std())
    return Sensitivity(
        logit=classifier,
        status=status,
        maps={attribute.name: maps},
        spec=_spec(train, attribute),
        logit_spread=spread,
    )


def _spec(train: Data, attribute: ProtectedAttribute) -> BundleSpec:
    return BundleSpec(
        model=Model(name=train.name, version="1"),
        classifier=ClassifierFile(output="logit"),
        features=train.kinds,
        one_hot_groups=train.one_hot_groups,
        protected_attributes=(attribute,),
        decision=Decision(),
        fitted=Fitted.now(seed=0, rows=len(train.features)),
    )


def _figures(
    sensitivity: Sensitivity, networks: Networks, people: Data, attribute: ProtectedAttribute
) -> dict[str, float]:
    """Accuracies, size of the match set, noise floor, and AUC of each score outside it."""
    x, truth = people.features, people.labels > 0.5
    group = torch.from_numpy(people.groups(attribute)) == 1
    scores = sensitivity.scores(x)
    papers = replace(sensitivity, status=partial(_two_logits, networks.papers_status))
    with torch.no_grad():
        _, fair, reseeded, papers_group = (network(x) >= 0 for network in networks)
        flipped = sensitivity.logit(people.flipped(attribute))
    mismatch = scores.decision != fair
    shares = {
        ACCURACY: scores.decision == truth,
        "accuracy of F̂": fair == truth,
        STATUS_ACCURACY: (scores.attributes[attribute.name].posterior[:, 1] > 0.5) == group,
        PAPERS_STATUS_ACCURACY: papers_group == group,
        "mismatch share": mismatch,
        "reseeded classifier": scores.decision != reseeded,
    }
    rankings = {
        **_sensitivities(scores, papers, x, attribute),
        **_rankings(sensitivity, x, scores, attribute.name, flipped),
    }
    return {
        **{name: float(share.float().mean()) for name, share in shares.items()},
        "match set": float((~mismatch).sum()),
        **{name: _auc(score, mismatch) for name, score in rankings.items()},
    }


def _two_logits(network: nn.Module, features: Tensor) -> Tensor:
    """Logits of both groups from a network with one output, `[n, d]` to `[n, 2]`."""
    logit = network(features)
    return torch.stack([torch.zeros_like(logit), logit], 1)


def _sensitivities(
    scores: Scores, papers: Sensitivity, features: Tensor, attribute: ProtectedAttribute
) -> dict[str, Tensor]:
    """Prediction sensitivity with either status model, and with the paper's in plain float32."""
    ours, by_paper = (
        _present(either.attributes[attribute.name].log_prediction_sensitivity)
        for either in (scores, papers.scores(features))
    )
    printed = _printed_sensitivity(papers, features)
    return {PS: ours, PAPERS_PS: by_paper, "  in float32": printed}


def _rankings(
    sensitivity: Sensitivity, features: Tensor, scores: Scores, attribute: str, flipped: Tensor
) -> dict[str, Tensor]:
    """Every other score of each row; higher for rows more likely outside the match set.

    The attribute flip and the linear change rank by −sign(f)·f(x′), the distance of the
    counterfactual x′ beyond the threshold; their |Δf| are ranked as well.

    Args:
        sensitivity: Scoring of the classifier.
        features: Rows, `[n, d]`.
        scores: Scores of the rows.
        attribute: Protected attribute.
        flipped: Logits of the rows with the other value of the attribute, `[n]`.
    """
    own = scores.attributes[attribute]
    linear = _present(linear_change(sensitivity, features, attribute))
    side = torch.where(scores.decision, 1.0, -1.0)
    return {
        "flip probability": own.flip_probability,
        "expected change": own.expected_change,
        "attribute flip": -side * flipped,
        "attribute |Δf|": _present(attribute_flip(sensitivity, features, attribute)),
        "linear change": -side * (scores.logit + linear),
        "linear |Δf|": linear.abs(),
        "margin": -scores.margin,
    }


def _present(score: Tensor | None) -> Tensor:
    """With two groups, the attribute in x and a smooth classifier, every score exists."""
    assert score is not None
    return score


def _printed_sensitivity(sensitivity: Sensitivity, features: Tensor) -> Tensor:
    """Definition 3.2 on float32 probabilities, as printed: exactly 0 where one saturates."""
    tracked = features.clone().requires_grad_()
    outputs = sensitivity.logit(tracked).sigmoid(), sensitivity.status(tracked).softmax(1)[:, 1]
    slopes = [torch.autograd.grad(output.sum(), tracked)[0].abs() for output in outputs]
    return (slopes[0] * slopes[1]).sum(1)


def _auc(score: Tensor, positive: Tensor) -> float:
    """P(score of a positive > score of a negative), ties count half; NaN without both kinds."""
    ranks = rankdata(score.numpy())[positive.numpy()]
    negatives = len(score) - len(ranks)
    pairs = len(ranks) * negatives
    excess = ranks.sum() - len(ranks) * (len(ranks) + 1) / 2
    return float(excess / pairs) if pairs else float("nan")
