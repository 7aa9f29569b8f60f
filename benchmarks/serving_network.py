"""The classifier of `benchmarks.serving`, in a file that every server can read.

Peers load it in environments of their own, so nothing of evenhand is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["read_network", "sequence", "status_network", "write_network"]


def sequence(widths: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers[:-1]).eval()


def status_network(width: int) -> nn.Sequential:
    """As large as a status model of two groups; its cost does not depend on its parameters."""
    return sequence((width, 64, 32, 2), nn.Softplus)


def write_network(path: Path, network: nn.Sequential) -> None:
    """Write the weights as arrays, without a pickle."""
    np.savez(path, **{name: value.numpy() for name, value in network.state_dict().items()})


def read_network(path: Path) -> nn.Sequential:
    """Read the network, on one thread; from `[n, d]` to `[n, 1]`."""
    torch.set_num_threads(1)
    with np.load(path, allow_pickle=False) as arrays:
        state: dict[str, Tensor] = {name: torch.from_numpy(arrays[name]) for name in arrays}
    weights = [value for name, value in state.items() if name.endswith("weight")]
    widths = [weights[0].shape[1], *(weight.shape[0] for weight in weights)]
    network = sequence(widths, nn.ReLU)
    network.load_state_dict(state)
    return network.requires_grad_(requires_grad=False)
