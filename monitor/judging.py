"""Judge a batch of predictions: kernel, baseline, policy. The middle of the pipeline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from monitor.baseline import Signal
from monitor.bundle.probe import probe_features
from monitor.errors import PredictionError
from monitor.judge import Judge
from monitor.logs import told_without_values
from monitor.policy import Policy
from monitor.scores import AttributeColumns

__all__ = ["Judged", "Judging", "Listed"]

_LOG = logging.getLogger(__name__)
_PROBE_ROWS, _PROBE_ROUNDS = 64, 20
# By verdict code: above is worse than unknown, unknown worse than within.
_BADNESS = np.array([0, 2, 1], np.int8)

Features = NDArray[np.float32]


class Listed(NamedTuple):
    """Of each row: how bad its worst verdict is, 2 for above, 1 for unknown; action; scores."""

    verdicts: list[int]
    actions: list[int]
    scores: list[list[float]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """n predictions and what was found of them.

    Attributes:
        output: The classifier's own output, `[n]`, `[n, 1]` or `[n, 2]`.
        scores: Columns of the joint pass, `[n, w]`; None where nothing was judged.
        contributions: Each feature's share of prediction sensitivity, `[n, a, d]`; likewise.
        p_values: Of the signal that makes the verdict, `[n, a]`; likewise.
        verdicts: Codes, `[n, a]`; likewise.
        called: Whether an attribute calls for its action, `[n, a]`; likewise.
        actions: Codes, `[n]`; likewise.
        fault: Whether monitoring failed.
    """

    output: NDArray[np.generic]
    scores: NDArray[np.float32] | None = None
    contributions: NDArray[np.float32] | None = None
    p_values: NDArray[np.float64] | None = None
    verdicts: NDArray[np.int8] | None = None
    called: NDArray[np.bool_] | None = None
    actions: NDArray[np.int8] | None = None
    fault: bool = False
    _listed: list[Listed] = field(default_factory=list, repr=False, compare=False)

    @property
    def listed(self) -> Listed:
        """What every answer is marked by, as lists: reading arrays row by row takes long."""
        if not self._listed:
            assert self.verdicts is not None
            assert self.actions is not None
            self._listed.append(
                Listed(
                    verdicts=_BADNESS[self.verdicts].max(1).tolist(),
                    actions=self.actions.tolist(),
                    scores=None if self.scores is None else self.scores.tolist(),
                )
            )
        return self._listed[0]

    def __len__(self) -> int:
        return len(self.output)

    def rows(self, start: int, stop: int) -> Judged:
        """Some of them, as views."""
        if stop - start == len(self.output):
            return self
        found = {name: getattr(self, name) for name in _ARRAYS}
        cut: dict[str, Any] = {n: None if a is None else a[start:stop] for n, a in found.items()}
        return Judged(**cut, fault=self.fault)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Judged:
        """Parts of one request in their order."""
        faulty = any(part.fault for part in parts)
        arrays: dict[str, Any] = {}
        for name in _ARRAYS:
            found = [getattr(part, name) for part in parts]
            missing = any(array is None for array in found)
            arrays[name] = None if missing else np.concatenate(found)
        return Judged(**arrays, fault=faulty)


_ARRAYS = tuple(f.name for f in fields(Judged) if f.name not in ("fault", "_listed"))


class Judging:
    """Predicts, and judges what it predicts. One caller at a time.

    Attributes:
        seconds: Of the last batch, all of it.
    """

    def __init__(self, judge: Judge, policy: Policy) -> None:
        self._judge, self._policy = judge, policy
        self._classifier, self._baseline = judge.classifier, judge.baseline
        spec = self._classifier.spec
        self._columns = judge.sensitivity.columns
        self._flips = [c.flip_probability for c in self._columns.attributes.values()]
        self._signals = [
            (name, rule.signal, _column(self._columns.attributes[name], rule.signal))
            for name, rule in policy.rules.items()
        ]
        self._forward = _forward(self._classifier.module)
        with torch.inference_mode():
            trial = self._forward(torch.zeros(2, spec.width))
        self._output_shape = tuple(trial.shape[1:])
        self._output_is_wide = trial.dtype == torch.float64
        # Its own answer is in the joint pass already, unless that has another kind or precision.
        self._answers_in_pass = spec.classifier.output == "logit" and trial.dtype == torch.float32
        self.seconds = 0.0
        self._bare = self._bare_seconds()

    @property
    def has_gradient(self) -> bool:
        """Whether prediction sensitivity and contributions can be computed."""
        return not self._judge.sensitivity.missing

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of the classifier's own output, without the rows."""
        return self._output_shape

    @property
    def output_datatype(self) -> str:
        """Of the classifier's own output, in the protocol's words."""
        return "FP64" if self._output_is_wide else "FP32"

    def added_seconds(self, rows: int) -> float:
        """Of the last batch, what it took beyond the bare prediction, as measured at the start."""
        fixed, each = self._bare
        return max(self.seconds - fixed - each * rows, 0.0)

    def predict(self, features: Features) -> Judged:
        """The classifier's predictions alone, `[n, d]`.

        Raises:
            PredictionError: The classifier fails on them.
        """
        try:
            with torch.inference_mode():
                output = _as_answer(self._forward(torch.from_numpy(features)))
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            _LOG.warning("the classifier failed: %s", told_without_values(error))
            raise PredictionError("the classifier fails on this input") from None
        return Judged(output=output)

    def margins(self, output: NDArray[np.generic]) -> NDArray[np.float32]:
        """Logit minus that of the threshold, of each row of the classifier's own output, `[n]`."""
        found: NDArray[np.float32] = self._judge.sensitivity.shifted(self._logits(output)).numpy()
        return found

    def logits(self, output: NDArray[np.generic]) -> NDArray[np.float32]:
        """Of each row of the classifier's own output, `[n]`."""
        found: NDArray[np.float32] = self._logits(output).numpy()
        return found

    def decisions(self, output: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Whether each row of the classifier's own output decides for class 1, `[n]`."""
        decided: NDArray[np.bool_] = self.margins(output) >= 0
        return decided

    def _logits(self, output: NDArray[np.generic]) -> torch.Tensor:
        return self._classifier.as_logit(torch.from_numpy(np.ascontiguousarray(output)))

    def judge(self, features: Features) -> Judged:
        """Predictions and what is found of them, `[n, d]`; a fault of monitoring obeys policy.

        Raises:
            PredictionError: The classifier fails on them.
        """
        started = time.perf_counter()
        try:
            judged = self._judged(features)
        except Exception as error:  # noqa: BLE001 - whatever fails here must not hold up an answer
            judged = self._without_monitoring(features, error)
        self.seconds = time.perf_counter() - started
        return judged

    def _judged(self, features: Features) -> Judged:
        packed, contributions = self._judge.joint(torch.from_numpy(features))
        scores = packed.float().numpy()
        p_values = self.p_values(scores)
        flips = scores[:, self._flips] if self._policy.looks_at_flips else p_values
        ruling = self._policy.on(p_values, flips)
        if self._answers_in_pass:
            output = scores[:, self._columns.logit].reshape(len(scores), *self._output_shape)
        else:
            with torch.inference_mode():
                output = _as_answer(self._forward(torch.from_numpy(features)))
        return Judged(
            output=output,
            scores=scores,
            contributions=contributions.float().numpy(),
            p_values=p_values,
            verdicts=ruling.verdicts,
            called=ruling.called,
            actions=ruling.actions,
        )

    def p_values(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """Conformal p-values of the signals that make the verdicts, `[n, a]`."""
        found = np.empty((len(scores), len(self._signals)))
        for place, (name, signal, column) in enumerate(self._signals):
            found[:, place] = self._baseline.p_values(name, signal, scores[:, column])
        return found

    def _without_monitoring(self, features: Features, error: Exception) -> Judged:
        bare = self.predict(features)
        ruling = self._policy.on_fault(len(features))
        _LOG.error("monitoring failed: %s", told_without_values(error))
        return Judged(
            output=bare.output,
            verdicts=ruling.verdicts,
            called=ruling.called,
            actions=ruling.actions,
            fault=True,
        )

    def _bare_seconds(self) -> tuple[float, float]:
        """What the bare prediction takes: for a batch, and for each of its rows."""
        people = probe_features(self._classifier.spec, _PROBE_ROWS)
        alone, together = (
            min(self._seconds_of(rows) for _ in range(_PROBE_ROUNDS))
            for rows in (people[:1], people)
        )
        each = max(together - alone, 0.0) / (_PROBE_ROWS - 1)
        return alone - each, each

    def _seconds_of(self, rows: Features) -> float:
        started = time.perf_counter()
        self.predict(rows)
        return time.perf_counter() - started


def _column(columns: AttributeColumns, signal: Signal) -> int:
    match signal:
        case "expected_change":
            return columns.expected_change
        case "flip_probability":
            return columns.flip_probability
        case "prediction_sensitivity":
            return columns.log_prediction_sensitivity


def _forward(module: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """A module's forward, without torch's checks of the input's shape, which take twice as long."""
    if isinstance(module, fx.GraphModule):
        return fx.GraphModule(module, module.graph).forward
    return module


def _as_answer(output: torch.Tensor) -> NDArray[np.generic]:
    """As an array of float32, or of float64 where the classifier computes in that."""
    wide = output.dtype == torch.float64
    return (output if wide else output.float()).numpy()
