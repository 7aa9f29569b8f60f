"""Valid classifiers load and are consistent; invalid ones are rejected with clear messages."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from monitor import ClassifierFile, Decision, Feature, export_classifier
from monitor.bundle.classifier import Classifier, load_classifier, probe_features, with_ranges
from monitor.errors import ClassifierError, UnsafeArchiveError
from tests.bundles import WIDTH, exported_classifier, small_module, small_spec


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.last(features + torch.relu(self.inner(features)))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(50, 3), nn.Linear(WIDTH + 2, 1)

    def forward(self, features: Tensor) -> Tensor:
        years = features[:, 1].long().clamp(0, 49)
        rest = torch.cat([features[:, :1], features[:, 2:]], dim=1)
        return self.last(torch.cat([rest, self.table(years)], dim=1))


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(1, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last = nn.Linear(8, 1)

    def forward(self, features: Tensor) -> Tensor:
        tokens = self.lift(features[:, :, None])
        mixed, _ = self.attend(tokens, tokens, tokens, need_weights=False)
        return self.last(mixed.mean(1)).squeeze(-1)


class Ending(nn.Module):
    """The small classifier with another last step."""

    def __init__(self, last) -> None:
        super().__init__()
        self.inner, self.last = small_module(), last

    def forward(self, features: Tensor) -> Tensor:
        return self.last(self.inner(features))


@pytest.mark.parametrize("family", [small_module, Residual, Embedded, Attentive])
def test_every_family_of_networks_can_be_exported_and_loaded(family):
    module = family().eval()
    classifier = load_classifier(export_classifier(module, WIDTH), small_spec())
    features = torch.from_numpy(probe_features(small_spec(), 33))
    assert torch.allclose(classifier.logit(features), module(features).reshape(-1), atol=1e-6)


def test_torchscript_is_accepted():
    module = small_module().eval()
    classifier = load_classifier(
        scripted(module),
        small_spec(classifier=ClassifierFile(file="classifier.pt", output="logit")),
    )
    features = torch.randn(9, WIDTH)
    assert torch.allclose(classifier.logit(features), module(features).reshape(-1), atol=1e-6)


@pytest.mark.parametrize(
    ("output", "last"),
    [
        ("logit", lambda z: z),
        ("probability", lambda z: torch.sigmoid(z)),
        ("two_logits", lambda z: torch.cat([-z / 2, z / 2], dim=1)),
        ("two_probabilities", lambda z: torch.cat([1 - torch.sigmoid(z), torch.sigmoid(z)], dim=1)),
    ],
)
def test_all_output_kinds_give_the_same_logit_and_decision(output, last):
    module = Ending(last).eval()
    spec = small_spec(classifier=ClassifierFile(output=output))
    classifier = load_classifier(export_classifier(module, WIDTH), spec)
    features = torch.randn(50, WIDTH)
    expected = module.inner(features).reshape(-1)
    assert torch.allclose(classifier.logit(features), expected, atol=1e-4)
    assert torch.equal(classifier.decide(features), torch.sigmoid(expected) >= 0.4)


def test_export_does_not_change_the_training_mode():
    module = small_module().train()
    export_classifier(module, WIDTH)
    assert module.training


def test_a_loaded_classifier_is_differentiable():
    features = torch.randn(3, WIDTH, requires_grad=True)
    load_classifier(exported_classifier(), small_spec()).logit(features).sum().backward()
    assert features.grad is not None
    assert features.grad.abs().sum() > 0


class WritingInput(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.mul_(0.5).sum(1)


def constant(value: float):
    return Ending(lambda z: z * 0 + value)


@pytest.mark.parametrize(
    ("module", "output", "message"),
    [
        (nn.Linear(WIDTH + 1, 1), "logit", r"takes 6 columns, but the manifest lists 5 features"),
        (WritingInput(), "logit", r"modifies its input"),
        (constant(float("nan")), "logit", r"NaN or infinite values on 64 of 64 probe rows"),
        (Ending(lambda z: z * 1000), "probability", r"outside \[0, 1\].*if it returns logits"),
        (nn.Linear(WIDTH, 3), "logit", r"returns \[n, 3\].*only binary classifiers"),
        (
            nn.Linear(WIDTH, 2),
            "logit",
            r"returns \[n, 2\]; output 'logit' requires \[n\] or \[n, 1\]",
        ),
        (
            nn.Linear(WIDTH, 1),
            "two_logits",
            r"returns \[n, 1\]; output 'two_logits' requires \[n, 2\]",
        ),
        (Ending(lambda z: z > 0), "logit", r"one floating-point tensor, not torch\.bool"),
        (Ending(lambda z: (z, z)), "logit", r"one floating-point tensor, not tuple"),
        (
            Ending(lambda z: z - z.mean()),
            "logit",
            r"for a row alone and in a batch",
        ),
        (
            Ending(lambda z: z.sigmoid().squeeze(1)),
            "logit",
            r"ends in a sigmoid.*declare 'probability'",
        ),
        (
            Ending(lambda z: torch.cat([-z, z], dim=1).softmax(1)),
            "two_logits",
            r"ends in a softmax.*declare 'two_probabilities'",
        ),
        (
            Ending(lambda z: torch.cat([z, z], dim=1).sigmoid()),
            "two_probabilities",
            r"two probabilities that do not sum to 1",
        ),
        (Ending(lambda z: z.squeeze()), "logit", r"returns shape \[\] for 1 rows.*squeeze\(-1\)"),
        (Ending(lambda z: z.mean()), "logit", r"returns shape \[\] for 64 rows"),
        (Ending(lambda z: z[:1]), "logit", r"returns shape \[1, 1\] for 64 rows"),
        (Ending(lambda z: {"score": z}), "logit", r"one floating-point tensor, not dict"),
    ],
)
def test_an_invalid_classifier_is_rejected_with_a_clear_message(module, output, message):
    width = module.in_features if isinstance(module, nn.Linear) else WIDTH
    spec = small_spec(classifier=ClassifierFile(output=output))
    with pytest.raises(ClassifierError, match=message):
        load_classifier(export_classifier(module, width), spec)


def test_a_classifier_exported_in_training_mode_is_rejected():
    """With active dropout, the same row would have different scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.Dropout(0.5), nn.Linear(64, 1)).train(),
            (torch.zeros(2, WIDTH),),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with pytest.raises(ClassifierError, match=r"different outputs for the same input.*\.eval\(\)"):
        load_classifier(buffer.getvalue(), small_spec())


def test_a_module_that_cannot_be_exported_is_a_clear_error():
    with pytest.raises(ClassifierError, match=r"cannot be exported for a \[n, 4\] input"):
        export_classifier(nn.Linear(WIDTH, 1), WIDTH - 1)


class TwoInputs(nn.Module):
    def forward(self, features: Tensor, more: Tensor) -> Tensor:
        return (features + more).sum(1)


def test_a_classifier_of_two_inputs_is_rejected():
    batch = torch.export.Dim("batch")
    inputs = (torch.zeros(2, WIDTH), torch.zeros(2, WIDTH))
    program = torch.export.export(TwoInputs(), inputs, dynamic_shapes=({0: batch}, {0: batch}))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with pytest.raises(ClassifierError, match="takes 2 inputs; it must take one tensor"):
        load_classifier(buffer.getvalue(), small_spec())


class OddNames(nn.Module):
    """Parameter names that are valid in a graph but not in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a b": nn.Linear(WIDTH, 2), "größe-1": nn.Linear(2, 1)})

    def forward(self, metadata: Tensor) -> Tensor:
        return self.parts["größe-1"](self.parts["a b"](metadata))


def test_unusual_parameter_names_are_accepted():
    load_classifier(export_classifier(OddNames(), WIDTH), small_spec())


@pytest.mark.parametrize("output", ["probability", "two_probabilities"])
def test_a_score_equal_to_the_threshold_is_class_1(output):
    class Fixed(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            score = features[:, :1]
            return score if output == "probability" else torch.cat([1 - score, score], dim=1)

    for threshold in np.linspace(0.01, 0.99, 99).astype(np.float32).tolist():
        spec = small_spec(
            classifier=ClassifierFile(output=output),
            decision=Decision(threshold=threshold),
            features=(Feature(name="score", kind="numeric"), *small_spec().features[1:]),
        )
        classifier = Classifier(module=Fixed(), spec=spec)
        features = torch.full((1, WIDTH), threshold)
        assert classifier.decide(features).all()
        assert not classifier.decide(features - 1e-4).any()


def test_a_logit_equal_to_the_threshold_is_class_1():
    classifier = Classifier(module=nn.Identity(), spec=small_spec(decision=Decision()))
    assert classifier.decide(torch.zeros(3, 1)).all()


def test_a_saturated_probability_has_a_finite_logit():
    spec = small_spec(classifier=ClassifierFile(output="probability"))
    classifier = Classifier(module=nn.Identity(), spec=spec)
    assert torch.isfinite(classifier.logit(torch.tensor([[0.0], [1.0]]))).all()


class Writing(nn.Module):
    """TorchScript that writes a file whenever it is called."""

    def forward(self, features: Tensor) -> Tensor:
        torch.save(features, "written-by-the-model")
        return features.sum(1)


def test_torchscript_that_writes_files_is_rejected_before_it_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = small_spec(classifier=ClassifierFile(file="classifier.pt", output="logit"))
    with pytest.raises(UnsafeArchiveError, match=r"its TorchScript calls 'save\('"):
        load_classifier(scripted(Writing()), spec)
    assert list(tmp_path.iterdir()) == []


def test_a_classifier_for_one_batch_size_is_rejected():
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(small_module().eval(), (torch.zeros(4, WIDTH),)), buffer)
    with pytest.raises(ClassifierError, match=r"fixed batch of 4; export it with dynamic_shapes"):
        load_classifier(buffer.getvalue(), small_spec())


def test_a_torchscript_of_another_width_is_rejected():
    spec = small_spec(classifier=ClassifierFile(file="classifier.pt", output="logit"))
    with pytest.raises(ClassifierError, match=r"classifier\.pt fails on a \[64, 5\] input"):
        load_classifier(scripted(nn.Linear(WIDTH + 2, 1)), spec)


def test_a_file_name_of_the_other_format_is_rejected():
    with pytest.raises(
        ClassifierError, match=r"contains torchscript; name the file classifier\.pt"
    ):
        load_classifier(scripted(small_module().eval()), small_spec())


def scripted(module: nn.Module) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module), buffer)
    return buffer.getvalue()


def test_probe_rows_have_the_kind_and_range_of_each_feature():
    income, years, owner, car, home = probe_features(small_spec(), 2000).T
    assert ((income >= 0.5) & (income <= 3)).all()
    assert len(np.unique(income)) > 1000
    assert set(np.unique(years)) == set(range(41))
    assert set(np.unique(owner)) == {0, 1}
    assert set(np.unique(car + home)) == {0, 1}  # 0: the dropped category


def test_ranges_cover_most_values_and_are_unset_for_categories():
    rows = np.tile(np.arange(101, dtype=np.float32)[:, None], (1, WIDTH))
    income, years, owner, *_ = with_ranges(small_spec().features, rows)
    assert (income.low, income.high) == (1, 99)
    assert (years.low, years.high) == (1, 99)
    assert owner.low is None
