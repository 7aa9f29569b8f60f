"""The paper's map: a Wasserstein GAN whose generator is penalized by the transport cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Scaling
from offline_audit.maps.transport_map import (
    COSTS,
    SQUARED_L2,
    Cost,
    Features,
    Progress,
    TransportMap,
    draw_uniforms,
)

__all__ = ["Network", "WganMap", "WganMethod"]

# Gradient of each cost with respect to the displacement, `[n, d]` to `[n, d]`.
_GRADIENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "squared_l2": lambda change: 2 * change,
    # The clamp makes the gradient 0 at displacement 0.
    "l2": lambda change: change / change.norm(dim=1, keepdim=True).clamp_min(1e-12),
    "squared_l1": lambda change: 2 * change.abs().sum(1, keepdim=True) * change.sign(),
}
# Width of layers, learning rate, weight clipping and critic steps: appendix C of the paper.
_WIDTH, _RATE, _CLIP, _CRITIC_STEPS = 128, 5e-5, 0.01, 5
# Decay of RMSProp, the default of Keras.
_DECAY = 0.9
# Number of progress reports.
_REPORTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WganMap:
    """A generator network on scaled features, rounded to valid values.

    Attributes:
        scaling: Scaling of the features.
        generator: Network from `[n, d]` to `[n, d]`.
    """

    scaling: Scaling
    generator: Network

    @property
    def splits(self) -> bool:
        """True if any variable is not numeric, because those are rounded at random."""
        return any(v.kind != "numeric" for v in self.scaling.columns.variables)

    def transport(self, features: Features, n_counterparts: int = 1) -> Features:
        """See `TransportMap`."""
        # In double precision, so that results rounded to float32 do not depend on the batch.
        scaled = torch.from_numpy(self.scaling.scaled(features))
        moved = self.generator.double().layers(scaled)[-1].numpy()
        count = len(self.scaling.columns.variables)
        n_counterparts = n_counterparts if self.splits else 1
        return np.stack(
            [
                self.scaling.unscaled(moved, draw_uniforms(features, count, draw, n_counterparts))
                for draw in range(n_counterparts)
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WganMethod:
    """Generator and critic as in section 3.1 and appendix C of the paper.

    The critic D is trained to be low on the target and high on outputs of the generator G; the
    generator is trained to minimize D(G(x)) + weight · c(x, G(x)). Both have two hidden layers of
    128 units with ReLU and a linear output layer, so that G must learn even the identity. As in
    Keras, which the paper used, weights start with Glorot's distribution, biases with 0, and
    RMSProp has a decay of 0.9.

    The result depends on the seed: validate it against the target before use.

    Attributes:
        steps: Number of generator steps, "epochs" in the paper, each after five critic steps.
        batch: Rows of each group per step.
        weight: Weight of the cost, λ in the paper.
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
                f"cost: wgan requires the gradient of the cost and supports only "
                f"{', '.join(COSTS)}; got the function {self.cost.name}"
            )
        if self.steps < 1 or self.batch < 1:
            raise AuditInputError(
                f"steps, batch: must be at least 1; got {self.steps} and {self.batch}"
            )
        if not 0 <= self.weight < float("inf"):
            raise AuditInputError(f"weight: must be finite and at least 0; got {self.weight:g}")

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
        source_rows, target_rows = (
            torch.from_numpy(scaling.scaled(group).astype(np.float32)) for group in (source, target)
        )
        with _one_thread(), torch.no_grad():
            random = torch.Generator().manual_seed(seed)
            generator = self._trained(source_rows, target_rows, random, progress)
        return WganMap(scaling=scaling, generator=generator)

    def _trained(
        self, source: Tensor, target: Tensor, random: torch.Generator, progress: Progress | None
    ) -> Network:
        generator = Network.glorot(source.shape[1], source.shape[1], random)
        critic = Network.glorot(source.shape[1], 1, random)
        generator_optimizer, critic_optimizer = RmsProp(generator), RmsProp(critic)
        cost_gradient = _GRADIENTS[self.cost.name]
        # Gradient of the mean over a batch.
        mean_gradient = torch.full((self.batch, 1), 1 / self.batch)
        for step in range(1, self.steps + 1):
            batches = _drawn(source, (_CRITIC_STEPS + 1) * self.batch, random).split(self.batch)
            # The generator is fixed during the critic's steps, so all are generated at once.
            generated = generator.layers(torch.cat(batches[1:]))[-1].split(self.batch)
            for fakes in generated:
                # Two separate steps, lower on the target and higher on generated rows: they cancel
                # where the two agree, however RMSProp scales them.
                reals = _drawn(target, self.batch, random)
                for rows, gradient in ((reals, mean_gradient), (fakes, -mean_gradient)):
                    critic_optimizer.step(critic.gradients(critic.layers(rows), gradient)[0])
                critic.flat.clamp_(-_CLIP, _CLIP)
            layers = generator.layers(batches[0])
            gradient = critic.gradients(critic.layers(layers[-1]), mean_gradient)[1]
            gradient += self.weight / self.batch * cost_gradient(layers[-1] - batches[0])
            generator_optimizer.step(generator.gradients(layers, gradient)[0])
            if progress and step % max(1, self.steps // _REPORTS) == 0:
                progress(step, self.steps)
        return generator


class Network:
    """Two hidden layers of 128 units with ReLU and a linear output, with explicit gradients.

    Batches are so small that automatic differentiation would dominate the running time.

    Attributes:
        flat: All weights and biases in one tensor; each layer's are views of it.
    """

    def __init__(self, flat: Tensor, inputs: int, outputs: int) -> None:
        self.flat = flat
        self._shapes = [(inputs, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH, outputs)]
        pieces = iter(flat.split([size for a, b in self._shapes for size in (a * b, b)]))
        self._parts = [(next(pieces).view(shape), next(pieces)) for shape in self._shapes]

    @classmethod
    def glorot(cls, inputs: int, outputs: int, random: torch.Generator) -> Network:
        """Weights uniform within ±√(6/(in + out)), biases 0 (Glorot and Bengio 2010)."""
        count = (inputs + 1 + _WIDTH + 1) * _WIDTH + (_WIDTH + 1) * outputs
        network = cls(torch.zeros(count), inputs, outputs)
        for weight, _ in network._parts:
            weight.uniform_(-1, 1, generator=random).mul_((6 / sum(weight.shape)) ** 0.5)
        return network

    def double(self) -> Network:
        """The network in double precision."""
        return Network(self.flat.double(), self._shapes[0][0], self._shapes[-1][1])

    def layers(self, rows: Tensor) -> list[Tensor]:
        """The input, the outputs of the hidden layers and the output, four tensors `[n, ·]`."""
        outputs = [rows]
        for weight, bias in self._parts:
            outputs.append(torch.addmm(bias, outputs[-1], weight))
            # ReLU on all but the last layer.
            if len(outputs) <= len(self._parts):
                outputs[-1].relu_()
        return outputs

    def gradients(self, layers: list[Tensor], gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of a loss in `flat` and in the input `[n, ·]`, by backpropagation.

        Args:
            layers: Result of `layers`.
            gradient: Gradient of the loss in the output, `[n, ·]`.
        """
        pieces: list[Tensor] = []
        for index in reversed(range(len(self._parts))):
            pieces = [(layers[index].T @ gradient).flatten(), gradient.sum(0), *pieces]
            gradient = gradient @ self._parts[index][0].T
            # ReLU passes gradients where its output is positive; the input has none.
            if index:
                gradient.mul_(layers[index] > 0)
        return torch.cat(pieces), gradient


class RmsProp:
    """RMSProp with the defaults of Keras."""

    def __init__(self, network: Network) -> None:
        self._flat = network.flat
        self._squares = torch.zeros_like(network.flat)

    def step(self, gradient: Tensor) -> None:
        """One step against the gradient."""
        self._squares.mul_(_DECAY).addcmul_(gradient, gradient, value=1 - _DECAY)
        self._flat.addcdiv_(gradient, self._squares.sqrt().add_(1e-7), value=-_RATE)


def _drawn(group: Tensor, count: int, random: torch.Generator) -> Tensor:
    return group[torch.randint(len(group), (count,), generator=random)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """One torch thread, because small batches gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
