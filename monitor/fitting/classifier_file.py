"""The classifier's file in a bundle, which takes the features of a spec.

Features hold categories as one-hot columns, and a number with a code for missing as the number and
whether it is missing. A classifier that takes codes is wrapped in a module that combines features
into the classifier's own columns; the codes are constants of the exported program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, fx, nn

from monitor.bundle.archive import model_format
from monitor.bundle.classifier import columns_in_words, export_classifier, load_exported
from monitor.bundle.encoding import apply_steps
from monitor.bundle.foreign_formats import read_model_file
from monitor.bundle.inputs import RawCategory, RawNumber, classifier_columns
from monitor.bundle.manifest import BundleSpec
from monitor.errors import ClassifierError
from monitor.fitting.spec import FitSpec

__all__ = ["classifier_file"]


def classifier_file(
    classifier: bytes | Path | str | nn.Module, spec: BundleSpec | FitSpec
) -> tuple[str, bytes]:
    """File name in the bundle, and content, of a classifier that takes the features of a spec.

    Raises:
        BundleError: The file is not a model, or the module cannot be exported.
    """
    coded = bool(classifier_columns(spec.inputs))
    if not isinstance(classifier, nn.Module):
        name = "the classifier"
        if isinstance(classifier, Path | str):
            name = str(classifier)
            classifier = read_model_file(Path(classifier))
        if not isinstance(classifier, bytes):
            raise ClassifierError(
                f"the classifier is a {type(classifier).__name__}; pass a torch module, or the "
                "path or content of an exported one. `encoding_from_sklearn` writes the encoding "
                "of a ColumnTransformer into the spec: see "
                "docs/fit.md#what-to-do-with-the-model-that-i-have"
            )
        exported = model_format(classifier, name) == "torch.export"
        if not coded:
            return "classifier.pt2" if exported else "classifier.pt", classifier
        if not exported:
            raise ClassifierError(
                f"{name} is TorchScript; a classifier with inputs of encoding `code` or with "
                "`missing_code` must be a module or a torch.export archive"
            )
        classifier = load_exported(classifier, name)
    try:
        content = export_classifier(_with_coded_input(classifier, spec), len(spec.features))
    except ClassifierError as error:
        listed = columns_in_words(spec.features, are_written=bool(spec.inputs))
        raise ClassifierError(f"{error}; {listed}") from None
    return "classifier.pt2", content


def _with_coded_input(classifier: nn.Module, spec: BundleSpec | FitSpec) -> nn.Module:
    """The classifier as a module of a spec's features; itself if it takes the features."""
    coded = classifier_columns(spec.inputs)
    if not coded:
        return classifier
    position = {feature.name: index for index, feature in enumerate(spec.features)}
    # The features of one classifier column stand together, in the place of that column.
    place = {name: min(position[f] for f in features) for name, (_, features) in coded.items()}
    combined = {f for _, features in coded.values() for f in features}
    place |= {name: index for name, index in position.items() if name not in combined}
    columns: list[nn.Module] = []
    for name in sorted(place, key=lambda name: place[name]):
        if name not in coded:
            columns.append(_Copy(position[name]))
            continue
        raw, features = coded[name]
        indices = [position[feature] for feature in features]
        if isinstance(raw, RawCategory):
            columns.append(_Code(indices, raw.classifier_codes))
        else:
            number, missing = indices
            columns.append(_NumberOrCode(number, missing, _encoded_code(raw)))
    return _CodedInput(classifier, columns)


def _encoded_code(raw: RawNumber) -> float:
    """The code for missing after the steps of its number."""
    assert raw.missing_code is not None
    values = torch.tensor([raw.missing_code], dtype=torch.float64).numpy()
    return float(apply_steps(values, raw.steps)[0])


class _CodedInput(nn.Module):
    def __init__(self, classifier: nn.Module, columns: Sequence[nn.Module]) -> None:
        super().__init__()
        self.classifier, self.columns = classifier, nn.ModuleList(columns)
        self.training = classifier.training

    def train(self, mode: bool = True) -> Self:  # noqa: FBT001, FBT002 - the parent's signature
        # A module that was loaded from an archive has no modes.
        if not isinstance(self.classifier, fx.GraphModule):
            self.classifier.train(mode)
        self.training = mode
        return self

    def forward(self, features: Tensor) -> Tensor:
        output: Tensor = self.classifier(
            torch.cat([column(features) for column in self.columns], 1)
        )
        return output


class _Copy(nn.Module):
    def __init__(self, column: int) -> None:
        super().__init__()
        self.column = column

    def forward(self, features: Tensor) -> Tensor:
        return features[:, self.column, None]


class _Code(nn.Module):
    codes: Tensor

    def __init__(self, columns: Sequence[int], codes: Sequence[float]) -> None:
        super().__init__()
        self.columns = list(columns)
        self.register_buffer("codes", torch.tensor(codes, dtype=torch.float32))

    def forward(self, features: Tensor) -> Tensor:
        # A sum of codes would be no code in a row that is not one-hot.
        return self.codes[features[:, self.columns].argmax(1), None]


class _NumberOrCode(nn.Module):
    def __init__(self, number: int, missing: int, code: float) -> None:
        super().__init__()
        self.number, self.missing, self.code = number, missing, code

    def forward(self, features: Tensor) -> Tensor:
        number, missing = features[:, self.number], features[:, self.missing]
        return torch.where(missing > 0.5, self.code, number)[:, None]
