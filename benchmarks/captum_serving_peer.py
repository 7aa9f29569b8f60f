"""A bare server with Captum, in Captum's own environment; see `benchmarks.serving`.

`python -m benchmarks.captum_serving_peer PORT FILE`: for each request, one forward pass of the
classifier, and Captum's gradients of the classifier and of a status model.
"""

import sys
from pathlib import Path

import torch
from captum.attr import Saliency
from torch import nn

from benchmarks.serving_bare import Scorer, respond_with, serve
from benchmarks.serving_network import read_network, status_network


def captum(file: Path) -> Scorer:
    """Prediction sensitivity by two calls of Captum."""
    network = read_network(file)
    status = status_network(next(network.parameters()).shape[1]).requires_grad_(requires_grad=False)
    of_f = Saliency(nn.Sequential(network, nn.Sigmoid(), nn.Flatten(0)))
    of_a = Saliency(nn.Sequential(status, nn.Softmax(1)))

    def score(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            scores = network(features)
        tracked = features.requires_grad_()
        terms = of_f.attribute(tracked) * of_a.attribute(tracked, target=1)
        return scores, terms.sum(1)

    return score


if __name__ == "__main__":
    serve(int(sys.argv[1]), respond_with(captum(Path(sys.argv[2]))))
