"""From judged predictions to an answer: the classifier's output, what was asked for, and marks.

What is withheld is replaced here, and everything from which its score could be told goes with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from monitor.batching import Share
from monitor.bundle.manifest import BundleSpec
from monitor.call import Answer, Call, OutputTensor
from monitor.errors import BadRequestError, ConfigError, WithheldError
from monitor.judging import Judged, Judging
from monitor.logs import told_without_values
from monitor.marks import Marks
from monitor.policy import Action, VerdictCode
from monitor.scores import ScoreColumns
from monitor.settings import Config, PolicyConfig

__all__ = ["Answers", "TensorCard"]

_LOG = logging.getLogger(__name__)

Held = NDArray[np.bool_] | None
TensorCard = tuple[str, str, list[int]]

_VERDICTS = np.array([code.name.lower() for code in VerdictCode], object)
_ACTIONS = np.array([action.name.lower() for action in Action], object)
_WITHHELD = "withheld"
_WITHHOLD = int(Action.WITHHOLD)
# As certain as float32 can be of a class, in log-odds.
_CERTAIN = 16.0


class Answers:
    """Answers calls to one model."""

    def __init__(
        self, spec: BundleSpec, columns: ScoreColumns, judging: Judging, config: Config
    ) -> None:
        self._spec, self._columns, self._policy = spec, columns, config.policy
        self._judging = judging
        self._own, self._datatype = config.server.output_name, judging.output_datatype
        self._marks = Marks(spec, columns, has_gradient=judging.has_gradient)
        self._fallback = _fallback_row(spec, config.policy, judging.output_shape)
        self._inline = config.monitoring.mode == "inline"
        self._writers = self._further_outputs()
        if self._own in self._writers:
            raise ConfigError(
                f"server.output_name: {self._own!r} is what a tensor of evenhand's own is called; "
                f"these are {', '.join(self._writers)}"
            )

    @property
    def cards(self) -> list[TensorCard]:
        """Name, datatype and shape of every output that can be asked for."""
        count, width = len(self._spec.protected_attributes), self._spec.width
        shapes = {
            "decision": ("BYTES", [-1]),
            "verdict": ("BYTES", [-1, count]),
            "action": ("BYTES", [-1]),
            "p_value": ("FP64", [-1, count]),
            "sensitivity": ("FP64", [-1, count]),
            "flip_probability": ("FP32", [-1, count]),
            "expected_change": ("FP32", [-1, count]),
            "contributions": ("FP32", [-1, count, width]),
        }
        own = (self._own, self._datatype, [-1, *self._judging.output_shape])
        return [own, *((name, *shapes[name]) for name in self._writers)]

    def check(self, call: Call) -> None:
        """Whether all that a call wants can be had.

        Raises:
            BadRequestError: It cannot.
        """
        for name in call.outputs:
            if name != self._own and name not in self._writers:
                known = ", ".join([self._own, *self._writers])
                raise BadRequestError(f"output {name!r:.120} is not known; there are {known}")
        if len(set(call.outputs)) < len(call.outputs):
            raise BadRequestError("an output is wanted twice")

    def answer(self, call: Call, request_id: str, share: Share) -> Answer:
        """What a call gets.

        Raises:
            WithheldError: Policy holds a prediction back, and says so by an error.
        """
        judged, start, stop = share
        held: Held = None
        if judged.actions is not None and max(judged.listed.actions[start:stop]) >= _WITHHOLD:
            held = judged.actions[start:stop] >= _WITHHOLD
            if self._policy.withheld == "error":
                raise WithheldError(f"the prediction is withheld by policy: rows {_rows(held)}")
        marks = self._marked(request_id, share, held)
        if held is not None:
            marks["evenhand_withheld_rows"] = _rows(held)
        if not call.outputs and held is None:
            output = OutputTensor(self._own, self._datatype, judged.output[start:stop])  # type: ignore[arg-type]
            return Answer(call.id or request_id, (output,), marks)
        part = judged.rows(start, stop)
        outputs = [self._output(name, part, held) for name in call.outputs or (self._own,)]
        return Answer(call.id or request_id, outputs, marks)

    def _marked(self, request_id: str, share: Share, held: Held) -> dict[str, str]:
        try:
            return self._marks.of(request_id, share, held)
        except Exception as error:  # noqa: BLE001 - a mark is not worth a prediction
            _LOG.error("an answer was not marked: %s", told_without_values(error))
            return {"evenhand_request_id": request_id, "evenhand_fault": "monitoring failed"}

    def _output(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        if name != self._own:
            return self._writers[name](name, judged, held)
        values = judged.output
        if held is not None:
            values = values.copy()
            values[held] = self._fallback
        return OutputTensor(name, self._datatype, values)  # type: ignore[arg-type]

    def _further_outputs(self) -> Mapping[str, Callable[[str, Judged, Held], OutputTensor]]:
        """What else can be asked for, and what writes it."""
        found: dict[str, Callable[[str, Judged, Held], OutputTensor]] = {"decision": self._decision}
        if self._inline:
            found |= {
                "verdict": self._verdict,
                "action": self._action,
                "p_value": self._p_value,
                "flip_probability": self._of_column,
                "expected_change": self._of_column,
            }
            if self._judging.has_gradient:
                found |= {"sensitivity": self._sensitivity, "contributions": self._contributions}
        return found

    def _decision(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        classes = np.array(self._spec.decision.class_names, object)
        values = classes[self._judging.decisions(judged.output).astype(int)]
        values[np.isnan(judged.output.reshape(len(values), -1)).any(1)] = "unknown"
        if held is not None:
            fallback = self._policy.fallback if self._policy.withheld == "fallback" else None
            values[held] = _WITHHELD
            if fallback is not None:
                values[held] = classes[int(fallback >= self._spec.decision.threshold)]
        return OutputTensor(name, "BYTES", values)

    def _verdict(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        assert judged.verdicts is not None
        return OutputTensor(name, "BYTES", _VERDICTS[judged.verdicts])

    def _action(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        assert judged.actions is not None
        return OutputTensor(name, "BYTES", _ACTIONS[judged.actions])

    def _p_value(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        shape = (len(judged), len(self._spec.protected_attributes))
        return OutputTensor(name, "FP64", _masked(judged.p_values, shape, held))

    def _sensitivity(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        columns = [c.log_prediction_sensitivity for c in self._columns.attributes.values()]
        values = np.exp(self._scored(judged, held, columns).astype(np.float64))
        return OutputTensor(name, "FP64", values)

    def _of_column(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        columns = [getattr(c, name) for c in self._columns.attributes.values()]
        return OutputTensor(name, "FP32", self._scored(judged, held, columns))

    def _scored(self, judged: Judged, held: Held, columns: list[int]) -> NDArray[np.float32]:
        """Columns of the scores, NaN where nothing is known, or nothing is to be told."""
        found = None if judged.scores is None else judged.scores[:, columns]
        return _masked(found, (len(judged), len(columns)), held).astype(np.float32)

    def _contributions(self, name: str, judged: Judged, held: Held) -> OutputTensor:
        shape = (len(judged), len(self._spec.protected_attributes), self._spec.width)
        values = _masked(judged.contributions, shape, held).astype(np.float32)
        return OutputTensor(name, "FP32", values)


def _masked(
    values: NDArray[np.floating] | None, shape: tuple[int, ...], held: Held
) -> NDArray[np.floating]:
    """A copy with NaN for what is withheld; all of it where nothing is known."""
    found = np.full(shape, np.nan) if values is None else values.copy()
    if held is not None:
        found[held] = np.nan
    return found


def _fallback_row(
    spec: BundleSpec, policy: PolicyConfig, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """What stands in a row of the classifier's output that is withheld."""
    if policy.withheld != "fallback" or policy.fallback is None:
        return np.full(shape, np.nan)
    p = policy.fallback
    certain = _CERTAIN if p >= 0.5 else -_CERTAIN
    logit = certain if p in (0, 1) else math.log(p) - math.log1p(-p)
    row = {
        "logit": [logit],
        "probability": [p],
        "two_logits": [0.0, logit],
        "two_probabilities": [1 - p, p],
    }[spec.classifier.output]
    return np.array(row).reshape(shape)


def _rows(held: NDArray[np.bool_]) -> str:
    """Numbers of rows, such as 0,3,4; not more than can be read."""
    numbers = np.flatnonzero(held).tolist()
    more = ",…" if len(numbers) > 100 else ""
    return ",".join(map(str, numbers[:100])) + more
