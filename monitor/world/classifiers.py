"""Three classifiers for the world: one fair by construction, two unfair in known ways.

Each takes all d features; features that it may not use are multiplied by zero. A group is an input
only if the world makes it a visible feature.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from monitor.errors import PopulationError
from monitor.threads import one_thread
from monitor.world.population import Population, World

__all__ = [
    "decide",
    "in_biased_subgroup",
    "train_fair",
    "train_proxy_biased",
    "train_subgroup_biased",
]

# Called after each epoch with the completed and the total number of epochs.
Progress = Callable[[int, int], None]

_MIN_PEOPLE = 100
_EPOCHS = 12
_SEGMENT_EPOCHS = 20
_BATCH = 512
# Years of credit history; the biased scorecard harms women below, and favours women above.
_SHORT_HISTORY = 5


class Scorecard(nn.Module):
    """A small network from raw features `[n, d]` to the logit of repayment `[n]`."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: Tensor, usable: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", features.mean(0))
        # Features that may not be used have scale 0, and so have constant ones.
        spread = features.std(0)
        self.register_buffer("scale", torch.where(spread > 1e-6, usable / spread, 0.0))
        self.layers = nn.Sequential(
            nn.Linear(features.shape[1], 64),
            nn.ReLU(),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        logit: Tensor = self.layers((features - self.mean) * self.scale)
        return logit.squeeze(-1)


class SegmentedScorecard(nn.Module):
    """Two scorecards, as banks have: one for a segment of the customers, one for the others.

    The segment's scorecard multiplies the deviation of the career gap from its mean by `damping`:
    one factor for people with a short credit history, one for the others.
    """

    damping: Tensor

    def __init__(self, segment: Scorecard, others: Scorecard, world: World) -> None:
        super().__init__()
        self.segment = segment
        self.others = others
        self.segment_column = _column(world, "self_employed")
        self.damped_column = _column(world, "career_gap_months")
        self.history_column = _column(world, "credit_history_years")
        self.register_buffer("damping", torch.ones(2))

    def forward(self, features: Tensor) -> Tensor:
        short = features[:, self.history_column] < _SHORT_HISTORY
        factor = torch.where(short, self.damping[0], self.damping[1])
        mean = self.segment.mean[self.damped_column]
        values = mean + factor * (features[:, self.damped_column] - mean)
        column = torch.arange(features.shape[1], device=features.device) == self.damped_column
        damped = torch.where(column, values[:, None], features)
        in_segment = features[:, self.segment_column] == 1
        return torch.where(in_segment, self.segment(damped), self.others(features))


def train_fair(people: Population, *, seed: int, progress: Progress | None = None) -> nn.Module:
    """Train a fair classifier: on true repayment, with features without a protected ancestor."""
    return _train(people.features, people.repaid, people.world.legitimate, _EPOCHS, seed, progress)


def train_proxy_biased(
    people: Population, *, seed: int, progress: Progress | None = None
) -> nn.Module:
    """Train on the bank's biased records, with all features: unfair through proxies."""
    usable = np.ones(len(people.world.features), bool)
    return _train(people.features, people.labels, usable, _EPOCHS, seed, progress)


def train_subgroup_biased(
    people: Population, *, seed: int, progress: Progress | None = None
) -> nn.Module:
    """Train a classifier that is unfair to self-employed women, but has equal group rates.

    The self-employed have a separate scorecard. In its training data all women with a short credit
    history default and all women with a long one repay, and it uses career gaps, a proxy of sex. It
    is balanced so that as many women are harmed as favoured. All others have a fair scorecard.
    """
    world = people.world
    rows = np.flatnonzero(in_biased_subgroup(world, people.features))
    features, labels = people.features[rows], people.repaid[rows]
    short = features[:, _column(world, "credit_history_years")] < _SHORT_HISTORY
    woman = people.groups["sex"][rows] == 1
    labels[woman & short] = False
    labels[woman & ~short] = True
    usable = world.legitimate
    usable[_column(world, "career_gap_months")] = True
    total = _EPOCHS + _SEGMENT_EPOCHS

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(done, total)

    others = _train(people.features, people.repaid, world.legitimate, _EPOCHS, seed, report)
    segment = _train(
        features,
        labels,
        usable,
        _SEGMENT_EPOCHS,
        seed,
        lambda done, _: report(_EPOCHS + done, total),
    )
    classifier = SegmentedScorecard(segment, others, world).eval()
    _balance(classifier, people.counterfactual("sex", "man"), people.counterfactual("sex", "woman"))
    return classifier


def _balance(
    classifier: SegmentedScorecard, men: NDArray[np.float32], women: NDArray[np.float32]
) -> None:
    """Damp the larger of harm and favour by bisection until men's and women's rates are equal.

    The rates compare the same people as men and as women.
    """

    def rate_difference() -> float:
        return float(decide(classifier, men).mean() - decide(classifier, women).mean())

    side = 0 if rate_difference() > 0 else 1
    low, high = 0.0, 1.0
    for _ in range(12):
        classifier.damping[side] = (low + high) / 2
        too_much = rate_difference() > 0 if side == 0 else rate_difference() < 0
        low, high = (low, (low + high) / 2) if too_much else ((low + high) / 2, high)


def in_biased_subgroup(world: World, features: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether each row is in the segment that `train_subgroup_biased` treats unfairly, `[n]`."""
    self_employed: NDArray[np.bool_] = features[:, _column(world, "self_employed")] == 1
    return self_employed


def decide(classifier: nn.Module, features: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Decisions of a classifier: whether P(repayment) ≥ 0.5, `[n, d]` to bool `[n]`."""
    with torch.inference_mode():
        parts = torch.from_numpy(features).split(1 << 16)
        return np.concatenate([(classifier(part) >= 0).numpy() for part in parts])


def _train(
    features: NDArray[np.float32],
    labels: NDArray[np.bool_] | NDArray[np.int8],
    usable: NDArray[np.bool_],
    epochs: int,
    seed: int,
    progress: Progress | None,
) -> Scorecard:
    if len(features) < _MIN_PEOPLE:
        raise PopulationError(
            f"{len(features)} rows are too few for training; at least {_MIN_PEOPLE} are required"
        )
    x, y = torch.from_numpy(features), torch.from_numpy(labels.astype(np.float32))
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(seed)
        scorecard = Scorecard(x, torch.from_numpy(usable))
        optimizer = torch.optim.AdamW(scorecard.parameters(), weight_decay=1e-3)
        steps = epochs * -(-len(x) // _BATCH)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=steps)
        for epoch in range(epochs):
            for batch in torch.randperm(len(x)).split(_BATCH):
                logit = scorecard(x[batch])
                loss = nn.functional.binary_cross_entropy_with_logits(logit, y[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            if progress is not None:
                progress(epoch + 1, epochs)
    return scorecard.eval()


def _column(world: World, name: str) -> int:
    return [feature.name for feature in world.features].index(name)
