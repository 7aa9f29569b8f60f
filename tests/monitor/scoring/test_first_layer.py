"""A classifier that is split after its first layer gives the same scores."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from monitor import ClassifierFile, export_classifier
from monitor.bundle.classifier import load_classifier
from monitor.scoring.first_layer import first_layer
from tests.families import FAMILIES, PEOPLE, Standardise, loaded, seeded, sensitivity, spec

ROWS = torch.from_numpy(PEOPLE.features[:200])
WITHOUT_A_FIRST_LAYER = {"embeddings", "attention over features"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_family_is_split_if_it_starts_with_a_linear_layer(family):
    assert (first_layer(loaded(seeded(family))) is None) == (family in WITHOUT_A_FIRST_LAYER)


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - WITHOUT_A_FIRST_LAYER))
def test_both_parts_together_equal_the_classifier_bitwise(family):
    classifier = loaded(seeded(family))
    split = first_layer(classifier)
    assert split is not None
    with torch.no_grad():
        assert torch.equal(split.tail(split.head(ROWS)), classifier.logit(ROWS))


class Steps(nn.Module):
    """Common steps of preprocessing, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Buffer(ROWS.amin(0)), nn.Buffer(ROWS.amax(0) + 1)
        self.drop, self.layer, self.end = nn.Dropout(), nn.Linear(25, 6), nn.Linear(6, 1)

    def forward(self, features: Tensor) -> Tensor:
        scaled = (features - self.low) / (self.high - self.low)
        hidden = self.layer(self.drop(1 - 2 * scaled) * 0.5)
        # Depends on the batch size, also of the input.
        return self.end(hidden.relu().reshape(features.shape[0], 6)).squeeze(-1)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(25, 6))

    def forward(self, features: Tensor) -> Tensor:
        return (features @ self.weight).tanh().sum(1)


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return kind().eval()


class Expanded(nn.Module):
    """The bias depends on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.bias, self.weight = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(25, 6))

    def forward(self, features: Tensor) -> Tensor:
        bias = self.bias.expand(features.shape[0], -1)
        return torch.addmm(bias, features * 0.01, self.weight).tanh().sum(1)


@pytest.mark.parametrize("kind", [Steps, Weighted, Expanded], ids=lambda kind: kind.__name__)
def test_the_weight_is_the_derivative_of_the_first_layer(kind):
    """Computed as the derivative of the head, which is linear."""
    split = first_layer(loaded(made(kind)))
    assert split is not None
    slopes = torch.autograd.functional.jacobian(split.head, ROWS[:1])[0, :, 0]
    assert torch.allclose(split.weight, slopes.T, rtol=1e-5, atol=1e-9)


class Skipping(nn.Module):
    """The input also bypasses the first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(25, 6)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features).relu().sum(1) + features[:, 0]


class Logarithmic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(25, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features.abs().log1p())


class Columns(nn.Module):
    """Scales rows instead of columns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(25, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features * features[:, :1])


class InPlace(nn.Module):
    """An in-place operator that runs twice would give another result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(25, 1)

    def forward(self, features: Tensor) -> Tensor:
        logit = self.layer(features * 0.01)
        logit -= 0.7
        return logit


class InPlaceActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            Standardise(), nn.Linear(25, 6), nn.ReLU(inplace=True), nn.Linear(6, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)


class OwnBias(nn.Module):
    """A residual layer: the input is added to the output."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(25, 25) * 0.1)

    def forward(self, features: Tensor) -> Tensor:
        scaled = features * 0.01
        return torch.addmm(scaled, scaled, self.weight).tanh().sum(1)


@pytest.mark.parametrize(
    "kind",
    [Skipping, Logarithmic, Columns, InPlace, InPlaceActivation, OwnBias],
    ids=lambda kind: kind.__name__,
)
def test_a_classifier_that_uses_its_input_elsewhere_is_not_split(kind):
    classifier = loaded(made(kind))
    assert first_layer(classifier) is None
    # It is scored nevertheless.
    scores = sensitivity(classifier).scores(ROWS)
    assert torch.isfinite(scores.attributes["sex"].flip_probability).all()


def test_torchscript_is_not_split():
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(seeded("MLP"), ROWS[:2]), stream)
    torchscript = spec().model_copy(
        update={"classifier": ClassifierFile(file="classifier.pt", output="logit")}
    )
    assert first_layer(load_classifier(stream.getvalue(), torchscript)) is None


@pytest.mark.parametrize("output", ["probability", "two_logits", "two_probabilities"])
def test_classifiers_of_every_output_kind_are_split(output):
    ends: dict[str, list[nn.Module]] = {
        "probability": [nn.Linear(6, 1), nn.Sigmoid()],
        "two_logits": [nn.Linear(6, 2)],
        "two_probabilities": [nn.Linear(6, 2), nn.Softmax(1)],
    }
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(25, 6), nn.Tanh(), *ends[output]).eval()
    described = spec().model_copy(update={"classifier": ClassifierFile(output=output)})
    classifier = load_classifier(export_classifier(module, 25), described)
    split = first_layer(classifier)
    assert split is not None
    with torch.no_grad():
        assert torch.equal(split.tail(split.head(ROWS)), classifier.logit(ROWS))


def test_rows_that_are_not_one_hot_get_the_same_scores_with_and_without_the_split():
    """Smoothed, repeated or missing categories have one interpretation."""
    malformed = ROWS[:60].clone()
    columns = [i for i, f in enumerate(spec().features) if f.kind == "onehot"]
    malformed[:20, columns] = 1.0
    malformed[20:40, columns] *= 0.5
    malformed[40:, columns] = 0.0
    classifier = loaded(seeded("MLP"))
    whole, split = (
        sensitivity(classifier, cut=split).joint(malformed)[0] for split in (False, True)
    )
    assert torch.allclose(whole, split, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("attributes", [("sex",), ("sex", "ethnicity")])
def test_scores_are_the_same_with_and_without_the_split(attributes):
    classifier = loaded(seeded("residual blocks"), attributes)
    whole, split = (sensitivity(classifier, cut=split).joint(ROWS)[0] for split in (False, True))
    # A flip score multiplies the rounding error of a logit by up to 12 / spread.
    assert torch.allclose(whole, split, rtol=1e-5, atol=2e-5)
