"""The protected status model: P(group | features), learned where groups are known."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from monitor.bundle.manifest import ProtectedAttribute
from monitor.scoring.robust import OrdinaryRange, without_tails

__all__ = ["StatusModel", "StatusReport", "calibrate", "status_report", "train_status_model"]

# Called after every epoch with the number of epochs done and the maximum.
Progress = Callable[[int, int], None]

_EPOCHS = 30
_PATIENCE = 4
_BATCH = 512
_MIN_STEPS = 1500
# Smallest explained share of the groups' entropy that counts as predictive.
_MIN_SKILL = 0.01
# Largest skill that the data may still allow when groups are reported as not predictable.
_MAX_UNDETECTED = 0.05
# Smallest standard deviation of a binary column, that of 1 one in 100.
_MIN_SPREAD = 0.1


class StatusModel(nn.Module):
    """A shared network with one softmax head per attribute; returns all logits, `[n, Σk]`."""

    mean: Tensor
    scale: Tensor
    least: Tensor
    most: Tensor
    inverse_temperature: Tensor

    def __init__(self, features: Tensor, sizes: Sequence[int]) -> None:
        super().__init__()
        self._range = OrdinaryRange.of(features.numpy())
        centre, far = self._range.centre, self._range.far
        self.register_buffer("least", torch.from_numpy((centre - far).astype(np.float32)))
        self.register_buffer("most", torch.from_numpy((centre + far).astype(np.float32)))
        ordinary = self._range.ordinary(features.numpy())
        self._tails = without_tails(ordinary)
        features = torch.from_numpy(ordinary)
        self.register_buffer("mean", features.mean(0))
        self.register_buffer("scale", _scale(features))
        self.register_buffer("inverse_temperature", torch.ones(sum(sizes)))
        self.layers = nn.Sequential(
            nn.Linear(features.shape[1], 64),
            nn.Softplus(),
            nn.Linear(64, 32),
            nn.Softplus(),
            nn.Linear(32, sum(sizes)),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Calibrated logits of every group of every attribute."""
        bounded = features.clamp(self.least, self.most)
        logits: Tensor = self.layers((bounded - self.mean) * self.scale)
        return logits * self.inverse_temperature

    def ordinary(self, features: Tensor) -> Tensor:
        """Features on which the model is trained: no single row has values far from all others."""
        return torch.from_numpy(self._range.ordinary(features.numpy()).clip(*self._tails))


def _scale(features: Tensor) -> Tensor:
    """Factor that standardizes every column, `[d]`.

    A constant column gets 0, and the factor of a rare category is limited: otherwise such columns
    would dominate all others on new rows.
    """
    spread = features.std(0)
    flags = ((features == 0) | (features == 1)).all(0)
    limited = torch.where(flags, spread.clamp_min(_MIN_SPREAD), spread)
    return torch.where(spread > 1e-6, 1 / limited.clamp_min(1e-6), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """How well the features predict the groups of one attribute, on held-out rows.

    Attributes:
        attribute: Name of the attribute.
        rows: Number of held-out rows with a known group.
        accuracy: Share of rows whose likeliest group is the true one.
        majority: Accuracy of always predicting the largest group.
        skill: Share of the groups' entropy that the model explains; 0 for no information.
        skill_error: Standard error of the skill.
        calibration_error: Expected calibration error of the likeliest group's probability.
        reliability: Mean predicted and observed probability in bins of equal counts.
    """

    attribute: str
    rows: int
    accuracy: float
    majority: float
    skill: float
    skill_error: float
    calibration_error: float
    reliability: tuple[tuple[float, float], ...]

    @property
    def predictable(self) -> bool:
        """Whether the features predict the groups better than chance."""
        return self.skill > max(_MIN_SKILL, 3 * self.skill_error)

    @property
    def conclusive(self) -> bool:
        """Whether the rows suffice to decide if the groups are predictable."""
        return self.predictable or self.skill + 3 * self.skill_error < _MAX_UNDETECTED


def train_status_model(
    features: NDArray[np.float32],
    groups: Mapping[str, NDArray[np.int8]],
    attributes: Sequence[ProtectedAttribute],
    *,
    seed: int,
    progress: Progress | None = None,
) -> StatusModel:
    """Train the model on all attributes; a negative group code means unknown.

    Early stopping: a tenth of the rows is held out, and the parameters with the lowest loss on them
    are returned.

    Args:
        features: Features, `[n, d]`.
        groups: Group codes `[n]` by attribute; rows with a negative code are ignored for it.
        attributes: Protected attributes, in manifest order.
        seed: Seed of the random generator.
        progress: Called after every epoch.
    """
    x = torch.from_numpy(features)
    targets = [torch.from_numpy(groups[a.name].astype(np.int64)) for a in attributes]
    sizes = [len(attribute.groups) for attribute in attributes]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        order = torch.randperm(len(x))
        held_out, learn = order[: len(x) // 10], order[len(x) // 10 :]
        batch_size, epochs = _pace(len(learn))
        model = StatusModel(x[learn], sizes)
        # A wild row would dominate the gradients, and the loss by which training stops.
        x = model.ordinary(x)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        best, best_loss, waited = copy.deepcopy(model.state_dict()), float("inf"), 0
        for epoch in range(epochs):
            model.train()
            for batch in learn[torch.randperm(len(learn))].split(batch_size):
                loss = _loss(model(x[batch]), [t[batch] for t in targets], sizes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
            with torch.no_grad():
                held_out_targets = [t[held_out] for t in targets]
                loss_now = float(_loss(model(x[held_out]), held_out_targets, sizes))
            if progress is not None and epoch + 1 < epochs:
                progress(epoch + 1, epochs)
            if loss_now < best_loss - 1e-4:
                best, best_loss, waited = copy.deepcopy(model.state_dict()), loss_now, 0
            elif (waited := waited + 1) >= epochs * _PATIENCE // _EPOCHS:
                break
    if progress is not None:
        progress(epochs, epochs)
    model.load_state_dict(best)
    return model.eval()


def _pace(rows: int) -> tuple[int, int]:
    """Batch size and maximum number of epochs; fewer rows get more epochs."""
    batch_size = min(_BATCH, max(32, rows // 16))
    return batch_size, max(_EPOCHS, min(8 * _EPOCHS, _MIN_STEPS * batch_size // max(rows, 1)))


def calibrate(
    model: StatusModel,
    features: NDArray[np.float32],
    groups: Mapping[str, NDArray[np.int8]],
    attributes: Sequence[ProtectedAttribute],
) -> None:
    """Set the temperature of every head to its maximum-likelihood value on held-out rows."""
    with torch.no_grad():
        logits = model(model.ordinary(torch.from_numpy(features)))
    start = 0
    for attribute in attributes:
        heads = slice(start, start := start + len(attribute.groups))
        target = torch.from_numpy(groups[attribute.name].astype(np.int64))
        known = target >= 0
        log_scale = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.LBFGS([log_scale], max_iter=50)
        head, truth = logits[known, heads], target[known]

        def closure(
            head: Tensor = head,
            truth: Tensor = truth,
            log_scale: Tensor = log_scale,
            optimizer: torch.optim.LBFGS = optimizer,
        ) -> Tensor:
            optimizer.zero_grad()
            loss = cross_entropy(head * log_scale.exp(), truth)
            loss.backward()
            return loss

        optimizer.step(closure)
        model.inverse_temperature[heads] *= log_scale.detach().clamp(-3, 3).exp()


def status_report(
    logits: Tensor, groups: NDArray[np.int8], attribute: ProtectedAttribute
) -> StatusReport:
    """Report on one attribute, from logits `[n, k]` and true groups `[n]` of held-out rows."""
    known = groups >= 0
    posterior = logits.softmax(1).numpy()[known].astype(float)
    truth = groups[known]
    counts = np.bincount(truth, minlength=len(attribute.groups))
    prior = counts / counts.sum()
    surprise = -np.log(np.maximum(posterior[np.arange(len(truth)), truth], 1e-12))
    entropy = -(prior[prior > 0] * np.log(prior[prior > 0])).sum()
    gain = (-np.log(prior[truth]) - surprise) / entropy
    predicted, right = posterior.max(1), posterior.argmax(1) == truth
    bins = [b for b in np.array_split(np.argsort(predicted, kind="stable"), 10) if len(b)]
    reliability = tuple((float(predicted[b].mean()), float(right[b].mean())) for b in bins)
    error = sum(abs(s - o) * len(b) for (s, o), b in zip(reliability, bins, strict=True))
    return StatusReport(
        attribute=attribute.name,
        rows=len(truth),
        accuracy=float(right.mean()),
        majority=float(prior.max()),
        skill=float(gain.mean()),
        skill_error=float(gain.std() / np.sqrt(len(gain))),
        calibration_error=float(error / len(truth)),
        reliability=reliability,
    )


def _loss(logits: Tensor, targets: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """Sum over heads of the mean cross entropy on rows with a known group."""
    total, start = logits.sum() * 0, 0
    for target, size in zip(targets, sizes, strict=True):
        known = target >= 0
        if known.any():
            total = total + cross_entropy(logits[known, start : start + size], target[known])
        start += size
    return total
