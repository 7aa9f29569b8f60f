"""Three classifiers for the world: one fair by construction, two unfair in known ways.

Each takes all d features; which of them it can use is fixed by its scaling. None is ever given a
group, except through a feature that the world makes visible.
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

# Called after each epoch: epochs done, epochs in all.
Progress = Callable[[int, int], None]

_FEWEST_PEOPLE = 100
_EPOCHS = 12
_SEGMENT_EPOCHS = 20
_BATCH = 512
# Years of credit history below which the biased scorecard harms, and above which it favours.
_SHORT_HISTORY = 5


class Scorecard(nn.Module):
    """A small network from raw features `[n, d]` to the logit of repayment `[n]`."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: Tensor, usable: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", features.mean(0))
        # A feature that may not be used is scaled to nothing, so no value of it can count.
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
    """Two scorecards, as banks keep them: one for a segment of the customers, one for the rest.

    `damping` holds two factors by which the segment's scorecard hears of a column: that of people
    below a value of another column, and that of the others.
    """

    damping: Tensor

    def __init__(self, segment: Scorecard, rest: Scorecard, world: World) -> None:
        super().__init__()
        self.segment = segment
        self.rest = rest
        self.chooses = _column(world, "self_employed")
        self.damped = _column(world, "career_gap_months")
        self.divides = _column(world, "credit_history_years")
        self.register_buffer("damping", torch.ones(2))

    def forward(self, features: Tensor) -> Tensor:
        short = features[:, self.divides] < _SHORT_HISTORY
        factor = torch.where(short, self.damping[0], self.damping[1])
        mean = self.segment.mean[self.damped]
        heard = mean + factor * (features[:, self.damped] - mean)
        column = torch.arange(features.shape[1], device=features.device) == self.damped
        damped = torch.where(column, heard[:, None], features)
        in_segment = features[:, self.chooses] == 1
        return torch.where(in_segment, self.segment(damped), self.rest(features))


def train_fair(people: Population, *, seed: int, progress: Progress | None = None) -> nn.Module:
    """Fair by construction: learns true repayment from features without a protected ancestor."""
    return _train(people.features, people.repaid, people.world.legitimate, _EPOCHS, seed, progress)


def train_proxy_biased(
    people: Population, *, seed: int, progress: Progress | None = None
) -> nn.Module:
    """Unfair through proxies: learns the bank's biased records from all features."""
    usable = np.ones(len(people.world.features), bool)
    return _train(people.features, people.labels, usable, _EPOCHS, seed, progress)


def train_subgroup_biased(
    people: Population, *, seed: int, progress: Progress | None = None
) -> nn.Module:
    """Unfair to self-employed women while women and men are granted loans equally often.

    The self-employed have a scorecard of their own. Its records write off women with a short
    credit history and forgive women with a long one, and it sees career gaps, from which sex can be
    told. It is balanced so that as many women are harmed as favoured. Everyone else is judged by a
    fair scorecard.
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

    rest = _train(people.features, people.repaid, world.legitimate, _EPOCHS, seed, report)
    segment = _train(
        features,
        labels,
        usable,
        _SEGMENT_EPOCHS,
        seed,
        lambda done, _: report(_EPOCHS + done, total),
    )
    classifier = SegmentedScorecard(segment, rest, world).eval()
    _balance(classifier, people.counterfactual("sex", "man"), people.counterfactual("sex", "woman"))
    return classifier


def _balance(
    classifier: SegmentedScorecard, men: NDArray[np.float32], women: NDArray[np.float32]
) -> None:
    """Damp whichever of harm and favour is larger until the same people fare alike as both."""

    def excess_of_men() -> float:
        return float(decide(classifier, men).mean() - decide(classifier, women).mean())

    side = 0 if excess_of_men() > 0 else 1
    low, high = 0.0, 1.0
    for _ in range(12):
        classifier.damping[side] = (low + high) / 2
        too_much = excess_of_men() > 0 if side == 0 else excess_of_men() < 0
        low, high = (low, (low + high) / 2) if too_much else ((low + high) / 2, high)


def in_biased_subgroup(world: World, features: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Who belongs to the segment that `train_subgroup_biased` treats unfairly, bool `[n]`."""
    self_employed: NDArray[np.bool_] = features[:, _column(world, "self_employed")] == 1
    return self_employed


def decide(classifier: nn.Module, features: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Grant the loan iff repayment is at least as likely as not, `[n, d]` to bool `[n]`."""
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
    if len(features) < _FEWEST_PEOPLE:
        raise PopulationError(f"{len(features)} people are too few to learn from; draw more")
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
