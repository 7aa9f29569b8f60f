"""Prediction sensitivity on the paper's own evaluation: sections 5 and 6, Table 2.

A non-member of the match set is a test row on which the classifier F disagrees with F̂: the same
network trained on random genders (section 5) or on data in which everyone also stands with the
other value of the protected attribute (section 6). Every score is judged by its AUC against
non-membership, beside the share of decisions that change when nothing but F's seed does.

`python -m benchmarks.papers.prediction_sensitivity [--data DIR] [--quick] [--json FILE]`
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks.claims import Claim, Say, Scale, report
from benchmarks.papers.datasets import (
    FILES,
    PAPER_SHAPES,
    Data,
    binary_attribute,
    load_adult,
    load_compas,
    shape,
    train_rows,
)
from benchmarks.papers.options import DATA, data_folder
from benchmarks.rival_scores import attribute_flip, linear_change
from monitor import BundleSpec, ClassifierFile, Decision, Feature, Fitted, Model, ProtectedAttribute
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.scores import Scores
from monitor.scoring.sensitivity import Sensitivity
from monitor.scoring.status_model import StatusModel, train_status_model

_EPOCHS = (10, 40)
# The paper names neither batch size nor scaling: a usual size, and inputs as they come.
_BATCH = 64
_TRIALS = 10
_QUICK_ROWS, _SMOKE_ROWS = 800, 200

# Table 2 by case and epochs, each on the original and on the augmented test set.
_PAPER_ACCURACY = {
    ("Adult sex", 10): (0.840, 0.843),
    ("Adult sex", 40): (0.844, 0.851),
    ("Adult race", 10): (0.834, 0.841),
    ("Adult race", 40): (0.846, 0.840),
    ("COMPAS sex", 10): (0.677, 0.668),
    ("COMPAS sex", 40): (0.667, 0.660),
    ("COMPAS race", 10): (0.679, 0.669),
    ("COMPAS race", 40): (0.666, 0.659),
}
_PAPER_AUC = {
    ("Adult sex", 10): (0.574, 0.593),
    ("Adult sex", 40): (0.698, 0.699),
    ("Adult race", 10): (0.575, 0.604),
    ("Adult race", 40): (0.667, 0.663),
    ("COMPAS sex", 10): (0.777, 0.794),
    ("COMPAS sex", 40): (0.764, 0.775),
    ("COMPAS race", 10): (0.792, 0.780),
    ("COMPAS race", 40): (0.748, 0.751),
}
_TEST_SETS = ("original", "augmented")
_SYNTHETIC = "synthetic"
_ACCURACY, _STATUS_ACCURACY, _PAPERS_ACCURACY = "accuracy of F", "accuracy of A", "  paper's A"
# By the status model that `fit` trains, and by one like the paper's.
_PS, _PAPERS_PS = "PS", "PS, paper's A"
_AUC_OF = {
    _PS: "AUC of prediction sensitivity",
    _PAPERS_PS: "AUC of prediction sensitivity by a status model like the paper's",
}
_STATUS_OF = {_PS: _STATUS_ACCURACY, _PAPERS_PS: _PAPERS_ACCURACY}
_PAPER = {_ACCURACY: _PAPER_ACCURACY, _PS: _PAPER_AUC, _PAPERS_PS: _PAPER_AUC}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the tables: a case such as "Adult sex", epochs of training, a test set."""

    case: str
    epochs: int
    test_set: str


class Networks(NamedTuple):
    """The paper's networks of one trial: F, F̂, F with another seed, and A."""

    classifier: nn.Module
    fair: nn.Module
    reseeded: nn.Module
    papers_status: nn.Module


# One network as it stood after each number of epochs.
Trained = Mapping[int, nn.Module]
# The figures of one trial, cell by cell.
Run = Iterator[tuple[Cell, Mapping[str, float]]]
# What each trial measured in each cell, figure by figure.
Measured = Mapping[Cell, Sequence[Mapping[str, float]]]


def measure(
    scale: Scale,
    say: Say,
    data: Path = DATA,
) -> list[Claim]:
    """Repeat the paper's trials, print every score beside its figures, and claim agreement."""
    torch.set_num_threads(1)
    trials = scale.pick(full=_TRIALS, quick=2, smoke=1)
    sets = [load_adult(data), load_compas(data)]
    measured: dict[Cell, list[Mapping[str, float]]] = defaultdict(list)
    for trial in range(trials):
        for name, run in _runs(sets, trial, scale=scale):
            say(f"{name}, trial {trial + 1} of {trials}")
            for cell, figures in run:
                measured[cell].append(figures)
    _print_tables(measured)
    return [
        *(_shape_claim(found) for found in sets),
        *_agreement(measured, _ACCURACY, bar=0.02),
        _status_claim(measured),
        *_agreement(measured, _PS, bar=0.05),
        *_agreement(measured, _PAPERS_PS, bar=0.05),
        _synthetic_claim(measured),
    ]


def _runs(sets: Sequence[Data], trial: int, *, scale: Scale) -> Iterator[tuple[str, Run]]:
    """The synthetic experiment and those on real data, each under its name."""
    yield (
        _SYNTHETIC,
        _synthetic_trial(trial, scale.pick(full=10_000, quick=_QUICK_ROWS, smoke=_SMOKE_ROWS)),
    )
    for data in sets:
        rows = scale.pick(full=len(data.features), quick=_QUICK_ROWS, smoke=_SMOKE_ROWS)
        yield data.name, _real_trial(data, trial, rows)


def _real_trial(data: Data, trial: int, rows: int) -> Run:
    """Section 6: a new split, and F̂ trained on augmented data, one an attribute."""
    order = torch.randperm(len(data.features), generator=torch.Generator().manual_seed(trial))
    order, split = order[:rows], train_rows(rows)
    train, test = data.take(order[:split]), data.take(order[split:])
    classifier, reseeded = (_fit(train, seed=2 * trial + other) for other in (0, 1))
    for attribute in data.attributes:
        fair = _fit(train.augmented(attribute), seed=2 * trial)
        yield from _judge(attribute, train, test, (classifier, fair, reseeded))


def _synthetic_trial(trial: int, rows: int) -> Run:
    """Section 5: gender follows the label for F and is random for F̂; tests are as F's training.

    The paper gives neither the number of rows nor the network; this one is Adult's.
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
    yield from _judge(biased.attributes[0], train, test, (classifier, fair, reseeded))


def _synthetic(features: NDArray[np.float64], labels: NDArray[np.int64]) -> Data:
    numeric = [Feature(name=name, kind="numeric") for name in ("first", "second")]
    return Data(
        name=_SYNTHETIC,
        features=torch.from_numpy(features.astype(np.float32)),
        labels=torch.from_numpy(labels.astype(np.float32)),
        kinds=(*numeric, Feature(name="gender", kind="binary")),
        one_hot_groups=(),
        attributes=(binary_attribute("gender", ("man", "woman")),),
        width=32,
    )


def _fit(train: Data, *, seed: int) -> Trained:
    """The paper's network (section 6.2) as it stands after each number of epochs in `_EPOCHS`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(train)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        kept = {}
        for epoch in range(1, max(_EPOCHS) + 1):
            for rows in torch.randperm(len(train.features)).split(_BATCH):
                optimizer.zero_grad()
                logit = network(train.features[rows])
                binary_cross_entropy_with_logits(logit, train.labels[rows]).backward()
                optimizer.step()
            if epoch in _EPOCHS:
                kept[epoch] = copy.deepcopy(network)
    return kept


def _network(data: Data) -> nn.Module:
    """One hidden layer of ReLUs; the logit, `[n, d]` to `[n]`."""
    first = nn.Linear(data.features.shape[1], data.width)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(data.width, 1), nn.Flatten(0))


def _judge(
    attribute: ProtectedAttribute, train: Data, test: Data, trained: Sequence[Trained]
) -> Run:
    """All figures of one trial, after each number of epochs, on both test sets.

    Args:
        attribute: The protected attribute.
        train: What F was trained on, and what A is trained on.
        test: The original test set.
        trained: F, F̂ and F with another seed.
    """
    groups = {attribute.name: train.groups(attribute)}
    # Not calibrated: the paper's A is not, and its own column tells A the group.
    status = train_status_model(train.features.numpy(), groups, (attribute,), seed=0)
    papers = _fit(replace(train, labels=train.features[:, train.column(attribute)]), seed=0)
    case = train.name if train.name == _SYNTHETIC else f"{train.name} {attribute.name}"
    for epochs in _EPOCHS:
        networks = Networks(*(kept[epochs] for kept in (*trained, papers)))
        sensitivity = _sensitivity(train, attribute, networks.classifier, status)
        for name, people in zip(_TEST_SETS, (test, test.augmented(attribute)), strict=True):
            yield Cell(case, epochs, name), _figures(sensitivity, networks, people, attribute)


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
    """Accuracies, the match set, the noise floor, and each score's AUC for non-members."""
    x, truth = people.features, people.labels > 0.5
    group = torch.from_numpy(people.groups(attribute)) == 1
    scores = sensitivity.scores(x)
    papers = replace(sensitivity, status=partial(_two_logits, networks.papers_status))
    with torch.no_grad():
        _, fair, reseeded, papers_group = (network(x) >= 0 for network in networks)
        flipped = sensitivity.logit(people.flipped(attribute))
    mismatch = scores.decision != fair
    shares = {
        _ACCURACY: scores.decision == truth,
        "accuracy of F̂": fair == truth,
        _STATUS_ACCURACY: (scores.attributes[attribute.name].posterior[:, 1] > 0.5) == group,
        _PAPERS_ACCURACY: papers_group == group,
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
    """The logit of the second group as logits of both, `[n, d]` to `[n, 2]`."""
    logit = network(features)
    return torch.stack([torch.zeros_like(logit), logit], 1)


def _sensitivities(
    scores: Scores, papers: Sensitivity, features: Tensor, attribute: ProtectedAttribute
) -> dict[str, Tensor]:
    """Prediction sensitivity by either status model, and by the paper's without log space."""
    ours, by_paper = (
        _there(found.attributes[attribute.name].log_prediction_sensitivity)
        for found in (scores, papers.scores(features))
    )
    printed = _printed_sensitivity(papers, features)
    return {_PS: ours, _PAPERS_PS: by_paper, "  in float32": printed}


def _rankings(
    sensitivity: Sensitivity, features: Tensor, scores: Scores, attribute: str, flipped: Tensor
) -> dict[str, Tensor]:
    """Every other score of each row, the likelier non-member higher.

    The attribute flip and the linear change rank by −sign(f)·f(x′), how far beyond the threshold
    the counterfactual x′ lies; their |Δf| stand beside them.

    Args:
        sensitivity: What judges them.
        features: The rows, `[n, d]`.
        scores: Of the rows.
        attribute: The protected attribute.
        flipped: f of the rows with the attribute's other value, `[n]`.
    """
    judged = scores.attributes[attribute]
    linear = _there(linear_change(sensitivity, features, attribute))
    side = torch.where(scores.decision, 1.0, -1.0)
    return {
        "flip probability": judged.flip_probability,
        "expected change": judged.expected_change,
        "attribute flip": -side * flipped,
        "attribute |Δf|": _there(attribute_flip(sensitivity, features, attribute)),
        "linear change": -side * (scores.logit + linear),
        "linear |Δf|": linear.abs(),
        "margin": -scores.margin,
    }


def _there(score: Tensor | None) -> Tensor:
    """Two groups, the attribute in x and a smooth classifier: every score exists."""
    assert score is not None
    return score


def _printed_sensitivity(sensitivity: Sensitivity, features: Tensor) -> Tensor:
    """Definition 3.2 on float32 probabilities, as printed: exactly 0 where one saturates."""
    tracked = features.clone().requires_grad_()
    outputs = sensitivity.logit(tracked).sigmoid(), sensitivity.status(tracked).softmax(1)[:, 1]
    slopes = [torch.autograd.grad(output.sum(), tracked)[0].abs() for output in outputs]
    return (slopes[0] * slopes[1]).sum(1)


def _auc(score: Tensor, positive: Tensor) -> float:
    """P(a positive's score is the higher), ties half; not a number without both kinds."""
    ranks = rankdata(score.numpy())[positive.numpy()]
    negatives = len(score) - len(ranks)
    pairs = len(ranks) * negatives
    excess = ranks.sum() - len(ranks) * (len(ranks) + 1) / 2
    return float(excess / pairs) if pairs else float("nan")


def _print_tables(measured: Measured) -> None:
    """One table for each number of epochs and test set: figures by cases, mean±deviation."""
    cases = list(dict.fromkeys(cell.case for cell in measured))
    for epochs, (place, test_set) in product(_EPOCHS, enumerate(_TEST_SETS)):
        title = f"{epochs} epochs, {test_set} test set, {_trials(measured)} trials"
        heads = (case.replace(" ", "\n") for case in cases)
        table = Table("", *heads, title=title, box=box.SIMPLE, pad_edge=False)
        cells = [Cell(case, epochs, test_set) for case in cases]
        for name in measured[cells[0]][0]:
            if name == _PS:
                table.add_section()
                table.add_row("[bold]AUC[/bold]")
            table.add_row(name, *(_shown(_values(measured, cell, name)) for cell in cells))
            if name in (_ACCURACY, _PS):
                told = [_PAPER[name].get((case, epochs)) for case in cases]
                table.add_row(
                    "  paper's own", *(_short(pair[place]) if pair else "" for pair in told)
                )
        Console().print(table)


def _trials(measured: Measured) -> int:
    return len(next(iter(measured.values())))


def _values(measured: Measured, cell: Cell, name: str) -> NDArray[np.float64]:
    return np.array([figures[name] for figures in measured[cell]])


def _shown(values: NDArray[np.float64]) -> str:
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    return f"{mean:.0f}±{deviation:.0f}" if mean > 1 else f"{_short(mean)}±{_short(deviation)}"


def _short(share: float) -> str:
    """Four characters: .123 or 1.00."""
    return f"{share:.3f}".removeprefix("0")[:4]


def _shape_claim(data: Data) -> Claim:
    found, told = shape(data), PAPER_SHAPES[data.name]
    return Claim(
        claim=f"{data.name}: rows to train and test on and columns as in Table 1",
        figure=sum(abs(ours - theirs) for ours, theirs in zip(found, told, strict=True)),
        unit="rows or columns off",
        side="at most",
        bar=0,
        rounds=1,
        details={"train × test × columns": found},
    )


def _agreement(measured: Measured, name: str, *, bar: float) -> list[Claim]:
    """For each case the largest distance from Table 2, over epochs and test sets."""
    return [
        _agreement_claim(measured, name, case, bar)
        for case in dict.fromkeys(case for case, _ in _PAPER[name])
    ]


def _agreement_claim(measured: Measured, name: str, case: str, bar: float) -> Claim:
    details, distances = {}, []
    for epochs, (place, test_set) in product(_EPOCHS, enumerate(_TEST_SETS)):
        mean = float(_values(measured, Cell(case, epochs, test_set), name).mean())
        paper = _PAPER[name][case, epochs][place]
        distances.append(abs(mean - paper))
        details[f"{epochs} epochs {test_set}"] = f"{_short(mean)} (paper {_short(paper)})"
    if name in _STATUS_OF:
        # Agreement means nothing where A does not know the group, so its accuracy goes with it.
        cell = Cell(case, max(_EPOCHS), "original")
        details["accuracy of A"] = _short(float(_values(measured, cell, _STATUS_OF[name]).mean()))
    return Claim(
        claim=f"{case}: {_AUC_OF.get(name, name)} as in Table 2",
        figure=max(distances),
        unit="off in the worst cell",
        side="at most",
        bar=bar,
        rounds=_trials(measured),
        details=details,
    )


def _status_claim(measured: Measured) -> Claim:
    """Without this no AUC of prediction sensitivity says anything: the group is a column of x."""
    accuracies = {
        cell.case: float(_values(measured, cell, _STATUS_ACCURACY).mean())
        for cell in measured
        if cell.test_set == "original"
    }
    return Claim(
        claim="the status model tells groups that stand in x",
        figure=min(accuracies.values()),
        unit="accuracy in the worst case",
        side="at least",
        bar=0.95,
        rounds=_trials(measured),
        details=accuracies,
    )


def _synthetic_claim(measured: Measured) -> Claim:
    """The paper draws its synthetic AUC and only says that it is above those on real data."""
    values = _values(measured, Cell(_SYNTHETIC, max(_EPOCHS), "original"), _PS)
    return Claim(
        claim="synthetic: AUC of prediction sensitivity above the paper's best on real data",
        figure=float(values.mean()),
        unit="AUC",
        side="at least",
        bar=max(max(pair) for pair in _PAPER_AUC.values()),
        rounds=_trials(measured),
        details={"lowest": float(values.min()), "highest": float(values.max())},
    )


if __name__ == "__main__":
    report("Prediction sensitivity as in its paper", partial(measure, data=data_folder(FILES)))
