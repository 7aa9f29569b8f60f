"""The classifier of a bundle: export, loading without pickle, and a test on probe rows.

Probe rows are synthetic rows in the range of each feature.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from monitor.bundle.archive import model_format, sanitize_archive
from monitor.bundle.manifest import DEFAULT_PROBE_ROWS, BundleSpec, Feature
from monitor.errors import ClassifierError, first_line

__all__ = [
    "Classifier",
    "columns_in_words",
    "export_classifier",
    "load_classifier",
    "load_exported",
    "probe_features",
    "with_ranges",
]

# Columns that a message names; a model rarely has more that a person reads.
_MOST_NAMED = 40
# Operators that change a tensor's shape but not its values.
_RESHAPING = {"squeeze", "unsqueeze", "view", "reshape", "flatten", "select", "slice", "alias"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier:
    """A binary classifier of any output kind, with one logit per row.

    Attributes:
        module: Loaded module, from features `[n, d]` to an output of `spec.classifier.output`.
        spec: Spec of the bundle.
    """

    module: nn.Module
    spec: BundleSpec

    def logit(self, features: Tensor) -> Tensor:
        """Log-odds of class 1, `[n, d]` to `[n]`, differentiable where the module is."""
        return self.as_logit(self.module(features))

    def as_logit(self, output: Tensor) -> Tensor:
        """Log-odds of class 1 from an output of the module."""
        match self.spec.classifier.output:
            case "logit":
                return output.reshape(-1)
            case "probability":
                return _finite_logit(output.reshape(-1))
            case "two_logits":
                return output[:, 1] - output[:, 0]
            case "two_probabilities":
                return _finite_logit(output[:, 1])

    def decide(self, features: Tensor) -> Tensor:
        """Class of each row, `[n, d]` to bool `[n]`: P(class 1) ≥ threshold."""
        threshold = self.spec.decision.threshold
        output = self.spec.classifier.output
        if output in ("probability", "two_probabilities"):
            # Rounding in the logarithm would break ties with the threshold.
            score: Tensor = self.module(features)
            return (score.reshape(-1) if output == "probability" else score[:, 1]) >= threshold
        return self.logit(features) >= math.log(threshold) - math.log1p(-threshold)


def export_classifier(module: nn.Module, width: int) -> bytes:
    """Export a module to the content of `classifier.pt2`, for any batch size and without pickles.

    Raises:
        ClassifierError: torch cannot export the module, for example because of its width.
    """
    was_training = module.training
    try:
        program = torch.export.export(
            module.eval(),
            (torch.zeros(2, width),),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
    except Exception as error:  # noqa: BLE001 - tracing runs the user's own code
        raise ClassifierError(
            f"the module cannot be exported for a [n, {width}] input: {first_line(error)}"
        ) from None
    finally:
        module.train(was_training)
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return sanitize_archive(buffer.getvalue(), "classifier.pt2")


def load_classifier(
    data: bytes,
    spec: BundleSpec,
    *,
    probe_rows: int = DEFAULT_PROBE_ROWS,
    given_as: str = "",
) -> Classifier:
    """Load a classifier from the content of its file, and test it on probe rows.

    Args:
        data: Content of the file.
        spec: Spec of the bundle.
        probe_rows: Number of probe rows.
        given_as: Name of the model that a user gives for a new bundle; empty for a bundle's own.

    Raises:
        UnsafeArchiveError: The file contains a pickle or other code.
        ClassifierError: Input, output or behaviour contradicts the manifest.
    """
    module = _load_module(data, spec, given_as)
    classifier = Classifier(module=module, spec=spec)
    _probe(classifier, torch.from_numpy(probe_features(spec, probe_rows)))
    return classifier


def load_exported(data: bytes, name: str) -> nn.Module:
    """Load a module with any inputs and outputs from a torch.export archive.

    Raises:
        UnsafeArchiveError: The archive could run code.
        ClassifierError: torch cannot read the archive.
    """
    return _load_program(data, name).module()


def with_ranges(features: Sequence[Feature], rows: NDArray[np.float32]) -> tuple[Feature, ...]:
    """Features with the 1% to 99% quantile range of their values in rows `[n, d]`."""
    lows, highs = np.quantile(rows, [0.01, 0.99], axis=0).tolist()
    return tuple(
        feature.model_copy(update={"low": low, "high": high})
        if feature.kind in ("numeric", "integer")
        else feature
        for feature, low, high in zip(features, lows, highs, strict=True)
    )


def probe_features(spec: BundleSpec, rows: int) -> NDArray[np.float32]:
    """Probe rows: synthetic rows in the range of each feature, float32 `[rows, d]`."""
    rng = np.random.default_rng(0)
    features = np.zeros((rows, spec.width), np.float32)
    for column, feature in enumerate(spec.features):
        low = 0.0 if feature.low is None else feature.low
        high = 1.0 if feature.high is None else feature.high
        if feature.kind == "numeric":
            features[:, column] = rng.uniform(low, high, rows)
        elif feature.kind in ("integer", "binary"):
            features[:, column] = np.round(rng.uniform(low, high, rows))
    columns = {feature.name: column for column, feature in enumerate(spec.features)}
    for group in spec.one_hot_groups:
        members = [columns[name] for name in group.features]
        # One more choice if a category was dropped: all zeros.
        choice = rng.integers(len(members) + (group.dropped is not None), size=rows)
        for index, column in enumerate(members):
            features[:, column] = choice == index
    return features


def _load_program(data: bytes, name: str) -> torch.export.ExportedProgram:
    archive = sanitize_archive(data, name)
    try:
        with _quiet_torch():
            return torch.export.load(io.BytesIO(archive))
    except Exception as error:  # noqa: BLE001 - torch raises every kind on a damaged archive
        raise _unreadable(name, error) from None


def _load_module(data: bytes, spec: BundleSpec, given_as: str) -> nn.Module:
    file = spec.classifier.file
    kind = model_format(data, file)
    expected = {"torch.export": "classifier.pt2", "torchscript": "classifier.pt"}[kind]
    if file != expected:
        raise ClassifierError(f"{file} contains {kind}; name the file {expected}")
    if kind == "torchscript":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                script: nn.Module = torch.jit.load(io.BytesIO(data), map_location="cpu")
        except Exception as error:  # noqa: BLE001 - likewise
            raise _unreadable(file, error) from None
        return script.eval()
    program = _load_program(data, file)
    _check_exported_input(program, spec, given_as)
    _check_exported_output(program, spec)
    return program.module()


def _unreadable(name: str, error: Exception) -> ClassifierError:
    return ClassifierError(
        f"{name} cannot be loaded by torch {torch.__version__}: {first_line(error)}"
    )


@contextmanager
def _quiet_torch() -> Iterator[None]:
    """Raise the error that torch logs about an unreadable archive, instead of logging it."""
    logger, logged = logging.getLogger("torch.export"), list[logging.LogRecord]()
    disabled, logger.disabled = logger.disabled, False

    def capture(record: logging.LogRecord) -> bool:
        logged.append(record)
        return False

    logger.addFilter(capture)
    try:
        yield
    except Exception:
        causes = [record.exc_info[1] for record in logged if record.exc_info]
        if causes and causes[0] is not None:
            raise causes[0] from None
        raise
    finally:
        logger.removeFilter(capture)
        logger.disabled = disabled


def _check_exported_input(
    program: torch.export.ExportedProgram, spec: BundleSpec, given_as: str
) -> None:
    """Check the number of inputs and their shape, with clearer messages than torch's."""
    file, inputs = spec.classifier.file, program.graph_signature.user_inputs
    if len(inputs) != 1:
        raise ClassifierError(f"{file} takes {len(inputs)} inputs; it must take one tensor [n, d]")
    shape = next(n.meta["val"].shape for n in program.graph.nodes if n.name == inputs[0])
    if len(shape) != 2:
        raise ClassifierError(
            f"{file} takes a tensor of {len(shape)} dimensions; it must take [n, d]"
        )
    if isinstance(shape[0], int):
        raise ClassifierError(
            f"{file} was exported for a fixed batch of {shape[0]}; export it with "
            "dynamic_shapes=({0: torch.export.Dim('batch')},)"
        )
    if isinstance(shape[1], int) and shape[1] != spec.width:
        if not given_as:
            raise ClassifierError(
                f"{file} takes {shape[1]} columns, but the manifest lists {spec.width} features"
            )
        raise ClassifierError(f"{given_as} {_other_width(shape[1], spec)}")


def _other_width(width: int, spec: BundleSpec) -> str:
    """How the number of columns of a model differs from that of a spec, and what to do."""
    entry = "inputs" if spec.inputs else "features"
    advice = (
        f"remove {entry} that the classifier does not have"
        if width < spec.width
        else f"add the {entry} that are missing"
    )
    listed = columns_in_words(spec.features, are_written=bool(spec.inputs))
    return f"takes {width} columns, but {listed}; {advice}"


def columns_in_words(features: Sequence[Feature], *, are_written: bool) -> str:
    """Number and names of the columns that a spec lists, or that its raw inputs write."""
    names = [feature.name for feature in features]
    listed = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return f"the spec {'writes' if are_written else 'lists'} {len(names)}: {listed}"


def _check_exported_output(program: torch.export.ExportedProgram, spec: BundleSpec) -> None:
    """Reject logits from a final sigmoid or softmax, which are probabilities."""
    kind, node = spec.classifier.output, program.graph.output_node().args[0][0]
    while _operator(node) in _RESHAPING:
        node = node.args[0]
    if kind.endswith(("logit", "logits")) and _operator(node) in ("sigmoid", "softmax", "_softmax"):
        correct = kind.replace("logits", "probabilities").replace("logit", "probability")
        raise ClassifierError(
            f"{spec.classifier.file} ends in a {_operator(node).strip('_')}, so it returns "
            f"probabilities, but its output is declared as {kind!r}; declare {correct!r}"
        )


def _operator(node: object) -> str:
    """Name of the operator that a node of the graph calls, such as `sigmoid`."""
    target = getattr(node, "target", None)
    return str(target).removeprefix("aten.").partition(".")[0]


def _probe(classifier: Classifier, features: Tensor) -> None:
    file = classifier.spec.classifier.file
    before = features.clone()
    outputs = _call(classifier, features)
    if not torch.equal(features, before):
        raise ClassifierError(f"{file} modifies its input; do not use in-place operators")
    _check_output(outputs, classifier.spec)
    if not torch.equal(outputs, _call(classifier, features)):
        raise ClassifierError(
            f"{file} returns different outputs for the same input, as dropout in training mode "
            "does; call .eval() before exporting it"
        )
    alone = torch.cat([_call(classifier, row[None]) for row in features[:8]])
    if not torch.allclose(alone, outputs[:8], rtol=1e-3, atol=1e-4):
        raise ClassifierError(
            f"{file} returns different outputs for a row alone and in a batch, as batch norm in "
            "training mode does; call .eval() before exporting it"
        )


def _call(classifier: Classifier, features: Tensor) -> Tensor:
    file, (rows, width) = classifier.spec.classifier.file, features.shape
    try:
        with torch.inference_mode():
            output = classifier.module(features)
    except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
        raise ClassifierError(
            f"{file} fails on a [{rows}, {width}] input: {first_line(error)}"
        ) from None
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise ClassifierError(f"{file} must return one floating-point tensor, not {_kind(output)}")
    if output.dim() == 0 or len(output) != rows:
        raise ClassifierError(
            f"{file} returns shape {list(output.shape)} for {rows} rows; expected one output per "
            "row (use squeeze(-1): squeeze() also drops a batch dimension of 1)"
        )
    return output


def _check_output(output: Tensor, spec: BundleSpec) -> None:
    file, kind, rows = spec.classifier.file, spec.classifier.output, len(output)
    shape = list(output.shape)
    allowed = ([rows, 2],) if kind.startswith("two") else ([rows], [rows, 1])
    if shape not in allowed:
        hint = ""
        if len(shape) == 2 and shape[1] > 2:
            hint = "; only binary classifiers are supported"
        expected = " or ".join(str(s).replace(str(rows), "n") for s in allowed)
        got = str(shape).replace(str(rows), "n", 1)
        raise ClassifierError(f"{file} returns {got}; output {kind!r} requires {expected}{hint}")
    bad = int((~torch.isfinite(output)).reshape(rows, -1).any(1).sum())
    if bad:
        raise ClassifierError(
            f"{file} returns NaN or infinite values on {bad} of {rows} probe rows; if it takes "
            "logarithms or divides, set low and high of each feature"
        )
    if kind.endswith(("probability", "probabilities")):
        if bool(((output < 0) | (output > 1)).any()):
            raise ClassifierError(
                f"{file} returns values outside [0, 1], but its output is declared as {kind!r}; "
                "if it returns logits, declare them"
            )
        if kind == "two_probabilities" and not torch.allclose(
            output.sum(1), torch.ones(rows, dtype=output.dtype), atol=1e-3
        ):
            raise ClassifierError(f"{file} returns two probabilities that do not sum to 1")


def _finite_logit(probability: Tensor) -> Tensor:
    """Log-odds; probabilities 0 and 1 of a saturated model give finite values."""
    return torch.logit(probability, eps=torch.finfo(probability.dtype).eps)


def _kind(output: object) -> str:
    return f"{output.dtype}" if isinstance(output, Tensor) else type(output).__name__
