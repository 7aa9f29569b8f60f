"""Builds responses: the classifier's output, the requested outputs and the response parameters.

Withheld predictions are replaced here, with everything that would reveal their score. Response
parameters are strings, since some servers and clients of the protocol drop other types. Parameters
of a response of several rows describe the row with the most severe action, verdict and p-value;
output tensors hold every row.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import numpy as np

from monitor.errors import BadRequestError, ConfigError, WithheldError
from monitor.logs import without_values
from monitor.policy import ACTION_NAMES, VERDICT_NAMES, Action, Verdict
from monitor.request import InferRequest, InferResponse, OutputTensor
from monitor.scoring.scores import FIRST_OF_REASON, REASON_NAMES, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from monitor.batching import Share
    from monitor.bundle.manifest import BundleSpec
    from monitor.metadata import TensorCard
    from monitor.scoring.scorer import Scorer, ScoringResult
    from monitor.scoring.scores import ScoreColumns
    from monitor.settings import Config, PolicyConfig

    Withheld = NDArray[np.bool_] | None

__all__ = ["ResponseBuilder", "ResponseParameters", "TopFeatures", "UnknownReasons"]

_LOG = logging.getLogger(__name__)

_VERDICTS, _ACTIONS = np.array(VERDICT_NAMES, object), np.array(ACTION_NAMES, object)
_ABOVE, _UNKNOWN, _WITHHOLD = int(Verdict.ABOVE), int(Verdict.UNKNOWN), int(Action.WITHHOLD)
_WITHHELD = "withheld"
# Log-odds of a fallback of exactly 0 or 1; σ(16) is 1 in float32 up to one rounding step.
_CERTAIN = 16.0
# Number of features that a response names.
_TOP = 3


class ResponseBuilder:
    """Builds the responses of one model."""

    def __init__(
        self, spec: BundleSpec, columns: ScoreColumns, scorer: Scorer, config: Config
    ) -> None:
        self._spec, self._columns, self._policy = spec, columns, config.policy
        self._scorer = scorer
        self._output_name, self._datatype = config.server.output_name, scorer.output_datatype
        self._parameters = ResponseParameters(spec, columns, has_gradient=scorer.has_gradient)
        self._fallback = _fallback_row(spec, config.policy, scorer.output_shape)
        self._inline = config.monitoring.mode == "inline"
        self._unknown_reasons = UnknownReasons(spec, columns)
        self._writers = self._further_outputs()
        if self._output_name in self._writers:
            raise ConfigError(
                f"server.output_name: {self._output_name!r} is the name of an output that evenhand "
                f"adds; its names are {', '.join(self._writers)}"
            )

    @property
    def cards(self) -> list[TensorCard]:
        """Name, datatype and shape of every output that can be requested."""
        count, width = len(self._spec.protected_attributes), self._spec.width
        shapes = {
            "decision": ("BYTES", [-1]),
            "verdict": ("BYTES", [-1, count]),
            "likely_flip": ("BYTES", [-1, count]),
            "unusual": ("BYTES", [-1, count]),
            "action": ("BYTES", [-1]),
            "unknown_reason": ("BYTES", [-1]),
            "p_value": ("FP64", [-1, count]),
            "sensitivity": ("FP64", [-1, count]),
            "flip_probability": ("FP32", [-1, count]),
            "expected_change": ("FP32", [-1, count]),
            "contributions": ("FP32", [-1, count, width]),
        }
        output = (self._output_name, self._datatype, [-1, *self._scorer.output_shape])
        return [output, *((name, *shapes[name]) for name in self._writers)]

    def check(self, request: InferRequest) -> None:
        """Check the names of the requested outputs.

        Raises:
            BadRequestError: An output is unknown, or requested twice.
        """
        for name in request.outputs:
            if name != self._output_name and name not in self._writers:
                known = ", ".join([self._output_name, *self._writers])
                raise BadRequestError(f"output {name!r:.120} is unknown; the outputs are {known}")
        if len(set(request.outputs)) < len(request.outputs):
            raise BadRequestError("an output is requested twice")

    def build(self, request: InferRequest, request_id: str, share: Share) -> InferResponse:
        """The response to a request, from its rows of a batch.

        Raises:
            WithheldError: A prediction is withheld and `policy.withheld` is `error`.
        """
        result, start, stop = share
        withheld: Withheld = None
        if result.actions is not None and max(result.row_actions[start:stop]) >= _WITHHOLD:
            withheld = result.actions[start:stop] >= _WITHHOLD
            if self._policy.withheld == "error":
                raise WithheldError(f"the prediction is withheld by policy: rows {_rows(withheld)}")
        parameters = self._safe_parameters(request_id, share, withheld)
        if withheld is not None:
            parameters["evenhand_withheld_rows"] = _rows(withheld)
        if not request.outputs and withheld is None:
            output = OutputTensor(self._output_name, self._datatype, result.output[start:stop])  # type: ignore[arg-type]
            return InferResponse(request.id or request_id, (output,), parameters)
        part = result.rows(start, stop)
        outputs = [
            self._output(name, part, withheld) for name in request.outputs or (self._output_name,)
        ]
        return InferResponse(request.id or request_id, outputs, parameters)

    def _safe_parameters(self, request_id: str, share: Share, withheld: Withheld) -> dict[str, str]:
        try:
            return self._parameters.of(request_id, share, withheld)
        except Exception as error:  # noqa: BLE001 - parameters must not cost a prediction
            _LOG.error("response parameters are missing: %s", without_values(error))
            return {"evenhand_request_id": request_id, "evenhand_fault": "monitoring failed"}

    def _output(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        if name != self._output_name:
            return self._writers[name](name, result, withheld)
        values = result.output
        if withheld is not None:
            values = values.copy()
            values[withheld] = self._fallback
        return OutputTensor(name, self._datatype, values)  # type: ignore[arg-type]

    def _further_outputs(
        self,
    ) -> Mapping[str, Callable[[str, ScoringResult, Withheld], OutputTensor]]:
        """Outputs besides the classifier's own, and the methods that write them."""
        writers: dict[str, Callable[[str, ScoringResult, Withheld], OutputTensor]] = {
            "decision": self._decision
        }
        if self._inline:
            writers |= {
                "verdict": self._verdict,
                "likely_flip": self._statement,
                "unusual": self._statement,
                "action": self._action,
                "unknown_reason": self._unknown_reason,
                "p_value": self._p_value,
                "flip_probability": self._of_column,
                "expected_change": self._of_column,
            }
            if self._scorer.has_gradient:
                writers |= {"sensitivity": self._sensitivity, "contributions": self._contributions}
        return writers

    def _decision(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        classes = np.array(self._spec.decision.class_names, object)
        values = classes[self._scorer.decisions(result.output).astype(int)]
        values[np.isnan(result.output.reshape(len(values), -1)).any(1)] = "unknown"
        if withheld is not None:
            fallback = self._policy.fallback if self._policy.withheld == "fallback" else None
            values[withheld] = _WITHHELD
            if fallback is not None:
                values[withheld] = classes[int(fallback >= self._spec.decision.threshold)]
        return OutputTensor(name, "BYTES", values)

    def _verdict(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        assert result.verdicts is not None
        return OutputTensor(name, "BYTES", _VERDICTS[result.verdicts])

    def _statement(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        assert result.verdicts is not None
        values = np.where(getattr(result, name), "yes", "no").astype(object)
        values[result.verdicts == Verdict.UNKNOWN] = "unknown"
        if withheld is not None:
            values[withheld] = _WITHHELD
        return OutputTensor(name, "BYTES", values)

    def _action(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        assert result.actions is not None
        return OutputTensor(name, "BYTES", _ACTIONS[result.actions])

    def _unknown_reason(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        reasons = [self._unknown_reasons.of(result, row) for row in range(len(result))]
        return OutputTensor(name, "BYTES", np.array(reasons, object))

    def _p_value(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        shape = (len(result), len(self._spec.protected_attributes))
        return OutputTensor(name, "FP64", _masked(result.p_values, shape, withheld))

    def _sensitivity(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        columns = [c.log_prediction_sensitivity for c in self._columns.attributes.values()]
        values = np.exp(self._scored(result, withheld, columns).astype(np.float64))
        return OutputTensor(name, "FP64", values)

    def _of_column(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        columns = [getattr(c, name) for c in self._columns.attributes.values()]
        return OutputTensor(name, "FP32", self._scored(result, withheld, columns))

    def _scored(
        self, result: ScoringResult, withheld: Withheld, columns: list[int]
    ) -> NDArray[np.float32]:
        """Columns of the scores, NaN where they are unknown or withheld."""
        values = None if result.scores is None else result.scores[:, columns]
        return _masked(values, (len(result), len(columns)), withheld).astype(np.float32)

    def _contributions(self, name: str, result: ScoringResult, withheld: Withheld) -> OutputTensor:
        shape = (len(result), len(self._spec.protected_attributes), self._spec.width)
        values = _masked(result.contributions, shape, withheld).astype(np.float32)
        return OutputTensor(name, "FP32", values)


class ResponseParameters:
    """Builds the response parameters of one model."""

    def __init__(self, spec: BundleSpec, columns: ScoreColumns, *, has_gradient: bool) -> None:
        self._has_gradient = has_gradient
        self._attributes = [
            (
                f"evenhand_sensitivity_{name}",
                indices.log_prediction_sensitivity,
                f"evenhand_flip_probability_{name}",
                indices.flip_probability,
            )
            for name, indices in columns.attributes.items()
        ]
        self._names = list(columns.attributes)
        self._top = TopFeatures(spec)
        self._unknown_reasons = UnknownReasons(spec, columns)

    def of(
        self, request_id: str, share: Share, withheld: NDArray[np.bool_] | None
    ) -> dict[str, str]:
        """Parameters of one response; none that would reveal a withheld score."""
        parameters = {"evenhand_request_id": request_id}
        result, start, stop = share
        if result.verdicts is None:
            return parameters
        row = start if stop - start == 1 else _most_severe_row(result, start, stop)
        verdict, action = result.row_verdicts[row], result.row_actions[row]
        parameters["evenhand_verdict"] = VERDICT_NAMES[verdict]
        if action:
            parameters["evenhand_action"] = ACTION_NAMES[action]
        if result.scores is None:
            parameters["evenhand_fault"] = "monitoring failed"
            return parameters
        if verdict == _UNKNOWN and (reason := self._unknown_reasons.of(result, row)):
            parameters["evenhand_unknown_reason"] = reason
        elif withheld is None or not withheld[row - start]:
            self._state(parameters, result, row)
        if action or verdict == _ABOVE:
            self._explain(parameters, result, row)
        return parameters

    def _state(self, parameters: dict[str, str], result: ScoringResult, row: int) -> None:
        """Add the signals, and the attributes for which policy's statements hold."""
        values = result.row_scores[row]
        for sensitivity, log_ps, flip_probability, flip in self._attributes:
            if self._has_gradient:
                parameters[sensitivity] = f"{math.exp(values[log_ps]):.4g}"
            parameters[flip_probability] = f"{values[flip]:.4f}"
        for name, holds in (("likely_flip", result.likely_flip), ("unusual", result.unusual)):
            if holds is not None and (attributes := self._where(holds[row])):
                parameters[f"evenhand_{name}"] = attributes

    def _where(self, holds: NDArray[np.bool_]) -> str:
        """Names of the attributes `[a]` for which something holds, such as `sex,ethnicity`."""
        return ",".join(n for n, h in zip(self._names, holds.tolist(), strict=True) if h)

    def _explain(self, parameters: dict[str, str], result: ScoringResult, row: int) -> None:
        """Add the attribute that calls for the action, and the features it acts through."""
        assert result.p_values is not None
        assert result.verdicts is not None
        assert result.contributions is not None
        above = result.verdicts[row] == Verdict.ABOVE
        if not above.any():
            # Withheld because its scores are unknown.
            return
        p_values = np.nan_to_num(result.p_values[row], nan=1.0)
        index = int(np.where(above, p_values - 1, p_values).argmin())
        parameters["evenhand_attribute"] = self._names[index]
        if self._has_gradient and (top := self._top.in_words(result.contributions[row, index])):
            parameters["evenhand_top_features"] = top


class TopFeatures:
    """The features through which a prediction depends on a group, one-hot groups as one."""

    def __init__(self, spec: BundleSpec) -> None:
        group_of = {name: group.name for group in spec.one_hot_groups for name in group.features}
        names = [group_of.get(feature.name, feature.name) for feature in spec.features]
        self._names = list(dict.fromkeys(names))
        self._unit = np.array([self._names.index(name) for name in names])

    def of(self, contributions: NDArray[np.float32]) -> list[tuple[str, float]]:
        """The largest contributions `[d]` of a row, as names and shares."""
        shares = np.bincount(self._unit, contributions, len(self._names))
        best = np.argsort(-shares, kind="stable")[:_TOP].tolist()
        return [(self._names[unit], float(shares[unit])) for unit in best if shares[unit] > 0]

    def in_words(self, contributions: NDArray[np.float32]) -> str:
        """Text such as `career_gap_months 59%, sector 25%`."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.of(contributions))


class UnknownReasons:
    """Texts such as `range: income`, of why a row is unlike the training rows."""

    def __init__(self, spec: BundleSpec, columns: ScoreColumns) -> None:
        self._columns = columns
        self._features = [feature.name for feature in spec.features]
        self._groups = [group.name for group in spec.one_hot_groups]

    def of(self, result: ScoringResult, row: int) -> str:
        """The reason, and the feature or one-hot group that shows it; empty for other rows."""
        if result.scores is None or not (code := int(result.scores[row, self._columns.unlike])):
            return ""
        reason, index = divmod(code, FIRST_OF_REASON)
        if reason == Reason.COMBINATION:
            return REASON_NAMES[reason]
        names = self._groups if reason == Reason.ONE_HOT else self._features
        return f"{REASON_NAMES[reason]}: {names[index]}"


def _masked(
    values: NDArray[np.floating] | None, shape: tuple[int, ...], withheld: Withheld
) -> NDArray[np.floating]:
    """A copy with NaN for withheld rows; all NaN where the values are unknown."""
    masked = np.full(shape, np.nan) if values is None else values.copy()
    if withheld is not None:
        masked[withheld] = np.nan
    return masked


def _fallback_row(
    spec: BundleSpec, policy: PolicyConfig, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    """The row that replaces a withheld row of the classifier's output."""
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


def _rows(withheld: NDArray[np.bool_]) -> str:
    """Indices of rows, such as 0,3,4; the first hundred."""
    numbers = np.flatnonzero(withheld).tolist()
    more = ",…" if len(numbers) > 100 else ""
    return ",".join(map(str, numbers[:100])) + more


def _most_severe_row(result: ScoringResult, start: int, stop: int) -> int:
    """The row with the strongest action, then the most severe verdict, then the lowest p-value."""
    p_values = np.ones(stop - start)
    if result.p_values is not None:
        p_values = np.nan_to_num(result.p_values[start:stop], nan=1.0).min(1)
    verdicts, actions = result.row_verdicts, result.row_actions
    return max(
        range(start, stop),
        key=lambda row: (actions[row], verdicts[row], -p_values[row - start]),
    )
