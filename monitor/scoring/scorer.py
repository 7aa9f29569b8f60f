"""Score a batch of predictions and apply policy: joint pass, baseline, policy.

`Scorer` is what the pipeline calls; it combines a `Judge` (the bundle) with a `Policy` (the
config), and returns a `ScoringResult` per batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from monitor.bundle.classifier import probe_features
from monitor.errors import PredictionError
from monitor.logs import without_values

if TYPE_CHECKING:
    from monitor.policy import Policy, PolicyResult
    from monitor.scoring.judge import Judge

__all__ = ["Scorer", "ScoringResult"]

_LOG = logging.getLogger(__name__)
_PROBE_ROWS, _PROBE_ROUNDS = 64, 20

Features = NDArray[np.float32]


@dataclass(kw_only=True)
class ScoringResult:
    """Predictions of a batch of n rows with their scores, verdicts and actions.

    Everything but `output` is None where monitoring is off, has not run yet or failed.

    Attributes:
        output: The classifier's own output, `[n]`, `[n, 1]` or `[n, 2]`.
        scores: Columns of the joint pass, `[n, w]`.
        contributions: Share of every feature in prediction sensitivity, `[n, a, d]`.
        p_values: Conformal p-values of the rule's signal, `[n, a]`.
        likely_flip: Whether the decision likely flips for another group, `[n, a]`, set by
            `Scorer.apply_policy`.
        unusual: Whether the score is unusual compared with the baseline, `[n, a]`, set likewise.
        verdicts: `Verdict` codes, `[n, a]`, set likewise.
        actions: `Action` codes, `[n]`, set likewise.
        fault: Whether monitoring failed.
    """

    output: NDArray[np.generic]
    scores: NDArray[np.float32] | None = None
    contributions: NDArray[np.float32] | None = None
    p_values: NDArray[np.float64] | None = None
    likely_flip: NDArray[np.bool_] | None = None
    unusual: NDArray[np.bool_] | None = None
    verdicts: NDArray[np.int8] | None = None
    actions: NDArray[np.int8] | None = None
    fault: bool = False

    # Lists, since responses read them row by row, which is slow for arrays.
    @cached_property
    def row_verdicts(self) -> list[int]:
        """The most severe verdict of every row, `[n]`."""
        assert self.verdicts is not None
        verdicts: list[int] = self.verdicts.max(1).tolist()
        return verdicts

    @cached_property
    def row_actions(self) -> list[int]:
        """The action of every row, `[n]`."""
        assert self.actions is not None
        actions: list[int] = self.actions.tolist()
        return actions

    @cached_property
    def row_scores(self) -> list[list[float]]:
        """The scores of every row, `[n, w]`."""
        assert self.scores is not None
        scores: list[list[float]] = self.scores.tolist()
        return scores

    def __len__(self) -> int:
        return len(self.output)

    def rows(self, start: int, stop: int) -> ScoringResult:
        """Rows from `start` to `stop`, as views."""
        if stop - start == len(self.output):
            return self
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        cut: dict[str, Any] = {n: None if a is None else a[start:stop] for n, a in arrays.items()}
        return ScoringResult(**cut, fault=self.fault)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> ScoringResult:
        """Parts of one request, in their order."""
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            pieces = [getattr(part, name) for part in parts]
            missing = any(piece is None for piece in pieces)
            arrays[name] = None if missing else np.concatenate(pieces)
        return ScoringResult(**arrays, fault=any(part.fault for part in parts))


_ARRAYS = tuple(f.name for f in fields(ScoringResult) if f.name != "fault")


class Scorer:
    """Predicts, scores and applies policy. One caller at a time.

    Attributes:
        columns: Columns of the scores.
        seconds: Time that the last batch took, from the start of `score` to the end of
            `apply_policy`.
    """

    def __init__(self, judge: Judge, policy: Policy) -> None:
        self._judge, self._policy = judge, policy
        self._classifier, self._baseline = judge.classifier, judge.baseline
        spec = self._classifier.spec
        self.columns = judge.sensitivity.columns
        self._flips = [c.flip_probability for c in self.columns.attributes.values()]
        self._signals = [
            (name, rule.signal, self.columns.attributes[name].of_signal(rule.signal))
            for name, rule in policy.rules.items()
        ]
        self._forward = _forward(self._classifier.module)
        with torch.inference_mode():
            output = self._forward(torch.zeros(2, spec.width))
        self._output_shape = tuple(output.shape[1:])
        self._output_is_wide = output.dtype == torch.float64
        # A logit in float32 is a column of the joint pass; any other output needs a forward pass.
        self._output_in_pass = spec.classifier.output == "logit" and output.dtype == torch.float32
        self.seconds, self._started = 0.0, 0.0
        self._forward_seconds = self._measured_forward_seconds()

    @property
    def has_gradient(self) -> bool:
        """Whether prediction sensitivity and contributions can be computed."""
        return not self._judge.sensitivity.missing

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the classifier's own output, without the rows."""
        return self._output_shape

    @property
    def output_datatype(self) -> str:
        """Datatype of the classifier's own output, as the protocol names it."""
        return "FP64" if self._output_is_wide else "FP32"

    def added_seconds(self, rows: int) -> float:
        """Time of the last batch beyond the classifier's forward pass, measured at the start."""
        per_batch, per_row = self._forward_seconds
        return max(self.seconds - per_batch - per_row * rows, 0.0)

    def predict(self, features: Features) -> ScoringResult:
        """Predictions without scores, for features `[n, d]`.

        Raises:
            PredictionError: The classifier fails on them.
        """
        try:
            with torch.inference_mode():
                output = _as_output(self._forward(torch.from_numpy(features)))
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            _LOG.warning("the classifier failed: %s", without_values(error))
            raise PredictionError("the classifier fails on this input") from None
        return ScoringResult(output=output)

    def margins(self, output: NDArray[np.generic]) -> NDArray[np.float32]:
        """Logit minus the logit of the threshold, for rows of the classifier's output, `[n]`."""
        shifted = self._judge.sensitivity.shifted(self._logits(output))
        margins: NDArray[np.float32] = shifted.numpy()
        return margins

    def logits(self, output: NDArray[np.generic]) -> NDArray[np.float32]:
        """Logits, for rows of the classifier's own output, `[n]`."""
        logits: NDArray[np.float32] = self._logits(output).numpy()
        return logits

    def decisions(self, output: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Whether the decision is class 1, for rows of the classifier's own output, `[n]`."""
        decided: NDArray[np.bool_] = self.margins(output) >= 0
        return decided

    def _logits(self, output: NDArray[np.generic]) -> torch.Tensor:
        return self._classifier.as_logit(torch.from_numpy(np.ascontiguousarray(output)))

    def score(self, features: Features) -> ScoringResult:
        """Predictions with their scores and p-values, for features `[n, d]`.

        If monitoring fails, the result holds the predictions only, and `fault` is true.

        Raises:
            PredictionError: The classifier fails on them.
        """
        self._started = time.perf_counter()
        try:
            return self._scored(features)
        except Exception as error:  # noqa: BLE001 - monitoring must not delay a prediction
            result = self.predict(features)
            _LOG.error("monitoring failed: %s", without_values(error))
            result.fault = True
            return result

    def apply_policy(self, result: ScoringResult) -> ScoringResult:
        """Set the verdicts and actions of a result; after a fault as `policy.on_fault` says."""
        try:
            policy = self._policy_result(result)
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.error("monitoring failed: %s", without_values(error))
            result.scores = result.contributions = result.p_values = None
            result.fault = True
            policy = self._policy.on_fault(len(result))
        result.likely_flip, result.unusual = policy.likely_flip, policy.unusual
        result.verdicts, result.actions = policy.verdicts, policy.actions
        self.seconds = time.perf_counter() - self._started
        return result

    def _scored(self, features: Features) -> ScoringResult:
        packed, contributions = self._judge.joint(torch.from_numpy(features))
        scores = packed.float().numpy()
        if self._output_in_pass:
            output = scores[:, self.columns.logit].reshape(len(scores), *self._output_shape)
        else:
            with torch.inference_mode():
                output = _as_output(self._forward(torch.from_numpy(features)))
        return ScoringResult(
            output=output,
            scores=scores,
            contributions=contributions.float().numpy(),
            p_values=self.p_values(scores),
        )

    def _policy_result(self, result: ScoringResult) -> PolicyResult:
        p_values, scores = result.p_values, result.scores
        if p_values is None or scores is None:
            return self._policy.on_fault(len(result))
        return self._policy.apply(p_values, scores[:, self._flips])

    def p_values(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Conformal p-values of the signals behind the verdicts, `[n, a]`."""
        p_values = np.empty((len(scores), len(self._signals)))
        for index, (name, signal, column) in enumerate(self._signals):
            p_values[:, index] = self._baseline.p_values(name, signal, scores[:, column])
        return p_values

    def _measured_forward_seconds(self) -> tuple[float, float]:
        """Time of the classifier's forward pass: constant part, and part per row."""
        probe = probe_features(self._classifier.spec, _PROBE_ROWS)
        alone, together = (
            min(self._seconds_of(rows) for _ in range(_PROBE_ROUNDS)) for rows in (probe[:1], probe)
        )
        per_row = max(together - alone, 0.0) / (_PROBE_ROWS - 1)
        return alone - per_row, per_row

    def _seconds_of(self, rows: Features) -> float:
        started = time.perf_counter()
        self.predict(rows)
        return time.perf_counter() - started


def _forward(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """Forward of a module without torch's shape checks, which take as long as a small network."""
    if isinstance(module, fx.GraphModule):
        return fx.GraphModule(module, module.graph).forward
    return module


def _as_output(output: torch.Tensor) -> NDArray[np.generic]:
    """Output as an array of float32, or of float64 if the classifier computes in float64."""
    wide = output.dtype == torch.float64
    return (output if wide else output.float()).numpy()
