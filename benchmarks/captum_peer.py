"""Prediction sensitivity by Captum, in Captum's own environment; see `benchmarks.kernel`.

Reads lines `WIDTHS GROUPS BATCH REPEATS` and prints the seconds per call for each.
"""

import sys
import time
from itertools import pairwise

import torch
from captum.attr import Saliency
from torch import nn


def network(widths: list[int], activation: type[nn.Module]) -> nn.Module:
    """Linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [nn.Linear(n_in, n_out), activation()]
    return nn.Sequential(*layers[:-1]).eval()


def contenders(widths: list[int], groups: int) -> tuple[Saliency, Saliency]:
    """Captum's gradients of a classifier and of a status model, on probabilities."""
    classifier = nn.Sequential(network(widths, nn.ReLU), nn.Sigmoid(), nn.Flatten(0))
    status = nn.Sequential(network([widths[0], 64, 32, groups], nn.Softplus), nn.Softmax(1))
    return Saliency(classifier), Saliency(status)


def sensitivity(classifier: Saliency, status: Saliency, features: torch.Tensor) -> torch.Tensor:
    """Definition 3.2 for one group, as the share of each feature."""
    terms = classifier.attribute(features) * status.attribute(features, target=1)
    return terms / terms.sum(1, keepdim=True).clamp_min(1e-30)


def main() -> None:
    """Time the calls of every line."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        width_list, groups, batch, repeats = line.split()
        widths = [int(width) for width in width_list.split(",")]
        pair, features = contenders(widths, int(groups)), torch.randn(int(batch), widths[0])
        for _ in range(3):
            sensitivity(*pair, features.clone().requires_grad_())
        started = time.perf_counter()
        for _ in range(int(repeats)):
            sensitivity(*pair, features.clone().requires_grad_())
        print((time.perf_counter() - started) / int(repeats), flush=True)


if __name__ == "__main__":
    main()
