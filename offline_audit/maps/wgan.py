"""The paper's map: a Wasserstein GAN whose generator pays for how far it moves people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.draws import draw_uniforms
from offline_audit.maps.transport_map import (
    COSTS,
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
)

__all__ = ["Network", "WganMap", "WganMethod"]

# Of each cost by the change, `[n, d]` to `[n, d]`.
_SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "squared_l2": lambda change: 2 * change,
    # At no distance there is no slope.
    "l2": lambda change: change / change.norm(dim=1, keepdim=True).clamp_min(1e-12),
    "squared_l1": lambda change: 2 * change.abs().sum(1, keepdim=True) * change.sign(),
}
# Appendix C of the paper.
_WIDTH, _RATE, _CLIP, _CRITIC_STEPS = 128, 5e-5, 0.01, 5
_DECAY = 0.9
_REPORTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WganMap:
    """A network on scaled features, settled on the data's kinds.

    Attributes:
        scaling: By which people are scaled.
        generator: From `[n, d]` to `[n, d]`.
    """

    scaling: Scaling
    generator: Network

    @property
    def splits(self) -> bool:
        """Whatever is not numeric is rounded by a draw."""
        return any(v.kind != "numeric" for v in self.scaling.columns.variables)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        # In double precision, so that sums do not depend on the batch.
        scaled = torch.from_numpy(self.scaling.scaled(features))
        moved = self.generator.double().layers(scaled)[-1].numpy()
        count = len(self.scaling.columns.variables)
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [
                self.scaling.settled(moved, draw_uniforms(features, count, draw, n_counterparts))
                for draw in range(n_counterparts)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WganMethod:
    """Generator and critic as in section 3.1 and appendix C of the paper.

    The critic D is trained to be low on the target and high on what the generator G makes, the
    generator to lower D(G(x)) + weight · c(x, G(x)). Both are two dense layers of 128 with ReLU
    and a plain layer on top, so that G has to learn even to leave people as they are. Weights
    start as Keras, which the paper used, starts them (Glorot, biases 0), and RMSProp has its decay.

    Where it ends depends on the seed: hold what it makes against the target before you believe it.

    Attributes:
        steps: Of the generator; the paper calls them epochs. The critic takes five before each.
        batch: People of each group a step.
        weight: Of the cost, λ in the paper.
    """

    name: str = "wgan"
    cost: Cost = SQUARED_L2
    quick: bool = False
    steps: int = 20_000
    batch: int = 64
    weight: float = 1e-4

    def __post_init__(self) -> None:
        if COSTS.get(self.cost.name) is not self.cost:
            raise AuditInputError(
                f"cost: a GAN can be trained with {', '.join(COSTS)}, whose slopes are known, not "
                f"with a cost of your own ({self.cost.name})"
            )
        if self.steps < 1 or self.batch < 1:
            raise AuditInputError(f"steps, batch: {self.steps}, {self.batch}; 1 or more, please")
        if not 0 <= self.weight < float("inf"):
            raise AuditInputError(f"weight: {self.weight:g} is not 0 or more")

    def fit(
        self,
        source: Features,
        target: Features,
        columns: Columns,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> TransportMap:
        """See `MapMethod`."""
        scaling = Scaling.of(source, target, columns)
        here, there = (
            torch.from_numpy(scaling.scaled(group).astype(np.float32)) for group in (source, target)
        )
        with _one_thread(), torch.no_grad():
            generator = self._trained(here, there, torch.Generator().manual_seed(seed), progress)
        return WganMap(scaling=scaling, generator=generator)

    def _trained(
        self, here: Tensor, there: Tensor, random: torch.Generator, progress: Progress | None
    ) -> Network:
        generator = Network.glorot(here.shape[1], here.shape[1], random)
        critic = Network.glorot(here.shape[1], 1, random)
        maker, judge = RmsProp(generator), RmsProp(critic)
        slope = _SLOPES[self.cost.name]
        up = torch.full((self.batch, 1), 1 / self.batch)
        for step in range(1, self.steps + 1):
            people = _drawn(here, (_CRITIC_STEPS + 1) * self.batch, random).split(self.batch)
            made = generator.layers(torch.cat(people[1:]))[-1].split(self.batch)
            for fakes in made:
                # Lower on the target, then higher on what was made: two steps, so that they cancel
                # where both are alike, however RMSProp scales them.
                for rows, slopes in ((_drawn(there, self.batch, random), up), (fakes, -up)):
                    judge.step(critic.gradients(critic.layers(rows), slopes)[0])
                critic.flat.clamp_(-_CLIP, _CLIP)
            layers = generator.layers(people[0])
            towards = critic.gradients(critic.layers(layers[-1]), up)[1]
            towards += self.weight / self.batch * slope(layers[-1] - people[0])
            maker.step(generator.gradients(layers, towards)[0])
            if progress and step % max(1, self.steps // _REPORTS) == 0:
                progress(step, self.steps)
        return generator


class Network:
    """Two dense layers of 128 with ReLU and a plain one on top, with its gradients by hand.

    Batches are so small that automatic differentiation would take more time than the sums do.

    Attributes:
        flat: All weights and biases, of which each is a view.
    """

    def __init__(self, flat: Tensor, inputs: int, outputs: int) -> None:
        self.flat = flat
        self._shapes = [(inputs, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, outputs)]
        pieces = iter(flat.split([size for a, b in self._shapes for size in (a * b, b)]))
        self._parts = [(next(pieces).view(shape), next(pieces)) for shape in self._shapes]

    @classmethod
    def glorot(cls, inputs: int, outputs: int, random: torch.Generator) -> Network:
        """Weights even within √(6/(in + out)), biases 0."""
        count = (inputs + 1 + _WIDTH + 1) * _WIDTH + (_WIDTH + 1) * outputs
        network = cls(torch.zeros(count), inputs, outputs)
        for weight, _ in network._parts:
            weight.uniform_(-1, 1, generator=random).mul_((6 / sum(weight.shape)) ** 0.5)
        return network

    def double(self) -> Network:
        """The same in double precision."""
        return Network(self.flat.double(), self._shapes[0][0], self._shapes[-1][1])

    def layers(self, rows: Tensor) -> list[Tensor]:
        """What goes in, after each layer, and what comes out, four of `[n, ·]`."""
        found = [rows]
        for weight, bias in self._parts:
            found.append(torch.addmm(bias, found[-1], weight))
            if len(found) <= len(self._parts):
                found[-1].relu_()
        return found

    def gradients(self, layers: list[Tensor], slope: Tensor) -> tuple[Tensor, Tensor]:
        """Of a loss with that slope in what comes out: by `flat`, and by what went in `[n, ·]`."""
        pieces: list[Tensor] = []
        for place in reversed(range(len(self._parts))):
            pieces = [(layers[place].T @ slope).flatten(), slope.sum(0), *pieces]
            slope = slope @ self._parts[place][0].T
            if place:
                slope.mul_(layers[place] > 0)
        return torch.cat(pieces), slope


class RmsProp:
    """Steps of one length, whatever the gradients' size, with the decay that Keras has."""

    def __init__(self, network: Network) -> None:
        self._flat = network.flat
        self._squares = torch.zeros_like(network.flat)

    def step(self, gradient: Tensor) -> None:
        """Downhill."""
        self._squares.mul_(_DECAY).addcmul_(gradient, gradient, value=1 - _DECAY)
        self._flat.addcdiv_(gradient, self._squares.sqrt().add_(1e-7), value=-_RATE)


def _drawn(group: Tensor, count: int, random: torch.Generator) -> Tensor:
    return group[torch.randint(len(group), (count,), generator=random)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small batches gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
