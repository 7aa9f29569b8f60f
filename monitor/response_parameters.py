"""Response parameters: verdict, action and scores of a response, as strings.

Strings, since some servers and clients of the protocol drop parameters of other types. A response
of several rows describes the row that depends most on a group; output tensors hold every row.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.batching import Share
from monitor.bundle.manifest import BundleSpec
from monitor.policy import Action, Verdict
from monitor.scoring.scorer import ScoringResult
from monitor.scoring.scores import ScoreColumns

__all__ = ["ResponseParameters", "TopFeatures"]

_TOP = 3
_VERDICTS = [verdict.name.lower() for verdict in Verdict]
_ABOVE = int(Verdict.ABOVE)
_ACTIONS = [action.name.lower() for action in Action]


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
        """Such as `career_gap_months 59%, sector 25%`."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.of(contributions))


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
        parameters["evenhand_verdict"] = _VERDICTS[verdict]
        if action:
            parameters["evenhand_action"] = _ACTIONS[action]
        if result.scores is None:
            parameters["evenhand_fault"] = "monitoring failed"
            return parameters
        if withheld is None or not withheld[row - start]:
            values = result.row_scores[row]
            for sensitivity, log_ps, flip_probability, flip in self._attributes:
                if self._has_gradient:
                    parameters[sensitivity] = f"{math.exp(values[log_ps]):.4g}"
                parameters[flip_probability] = f"{values[flip]:.4f}"
        if action or verdict == _ABOVE:
            self._explain(parameters, result, row)
        return parameters

    def _explain(self, parameters: dict[str, str], result: ScoringResult, row: int) -> None:
        """Add the attribute that calls for the action, and the features it acts through."""
        assert result.p_values is not None
        assert result.called is not None
        assert result.contributions is not None
        verdicts = result.verdicts[row] if result.verdicts is not None else ()
        if not result.called[row].any() and Verdict.ABOVE not in verdicts:
            # Withheld because its scores are unknown.
            return
        p_values = np.nan_to_num(result.p_values[row], nan=1.0)
        index = int(np.where(result.called[row], p_values - 1, p_values).argmin())
        parameters["evenhand_attribute"] = self._names[index]
        if self._has_gradient and (top := self._top.in_words(result.contributions[row, index])):
            parameters["evenhand_top_features"] = top


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
