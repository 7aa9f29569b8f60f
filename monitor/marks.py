"""Marks on an answer: what monitoring says of it, as strings, since other kinds get lost.

An answer to several rows is marked by the one that depends most on a group; what holds for each row
is in tensors that can be asked for.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import BundleSpec
from monitor.judging import Judged
from monitor.policy import Action, VerdictCode
from monitor.scores import ScoreColumns

__all__ = ["Marks", "TopFeatures"]

_TOP = 3
_VERDICTS = [code.name.lower() for code in VerdictCode]
_ACTIONS = [action.name.lower() for action in Action]
# Above before unknown before within.
_WORST = np.array([0, 2, 1], np.int8)


class TopFeatures:
    """Names the features through which a prediction depends on a group, one-hot groups as one."""

    def __init__(self, spec: BundleSpec) -> None:
        group_of = {name: group.name for group in spec.one_hot_groups for name in group.features}
        names = [group_of.get(feature.name, feature.name) for feature in spec.features]
        self._names = list(dict.fromkeys(names))
        self._unit = np.array([self._names.index(name) for name in names])

    def of(self, contributions: NDArray[np.float32]) -> list[tuple[str, float]]:
        """The largest and their shares, of one row's contributions `[d]`."""
        shares = np.bincount(self._unit, contributions, len(self._names))
        best = np.argsort(-shares, kind="stable")[:_TOP].tolist()
        return [(self._names[place], float(shares[place])) for place in best if shares[place] > 0]

    def in_words(self, contributions: NDArray[np.float32]) -> str:
        """Such as `career_gap_months 59%, sector 25%`."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.of(contributions))


class Marks:
    """Marks answers of one model."""

    def __init__(self, spec: BundleSpec, columns: ScoreColumns) -> None:
        self._attributes = [
            (
                f"evenhand_sensitivity_{name}",
                places.log_prediction_sensitivity,
                f"evenhand_flip_probability_{name}",
                places.flip_probability,
            )
            for name, places in columns.attributes.items()
        ]
        self._top = TopFeatures(spec)

    def of(self, request_id: str, judged: Judged, held: NDArray[np.bool_] | None) -> dict[str, str]:
        """The marks of one answer; nothing from which a withheld score could be told."""
        marks = {"evenhand_request_id": request_id}
        if judged.verdicts is None or judged.actions is None:
            return marks
        row = self._row_that_counts(judged)
        verdict = int(_WORST[judged.verdicts[row]].max())
        action = int(judged.actions[row])
        marks["evenhand_verdict"] = _VERDICTS[_WORST[verdict]]
        if action:
            marks["evenhand_action"] = _ACTIONS[action]
        if judged.scores is None:
            marks["evenhand_fault"] = "monitoring failed"
            return marks
        if held is None or not held[row]:
            values = judged.scores[row].tolist()
            for sensitivity, log_ps, flip_probability, flip in self._attributes:
                marks[sensitivity] = f"{math.exp(values[log_ps]):.4g}"
                marks[flip_probability] = f"{values[flip]:.4g}"
        if action or verdict == _WORST[VerdictCode.ABOVE]:
            self._explain(marks, judged, row)
        return marks

    @staticmethod
    def _row_that_counts(judged: Judged) -> int:
        """The row with the strongest action, and of those the one furthest above the baseline."""
        if len(judged) == 1:
            return 0
        assert judged.actions is not None
        assert judged.verdicts is not None
        candidates = np.flatnonzero(judged.actions == judged.actions.max())
        worst = _WORST[judged.verdicts[candidates]].max(1)
        candidates = candidates[worst == worst.max()]
        if judged.p_values is None:
            return int(candidates[0])
        p_values = np.nan_to_num(judged.p_values[candidates], nan=1.0).min(1)
        return int(candidates[p_values.argmin()])

    def _explain(self, marks: dict[str, str], judged: Judged, row: int) -> None:
        assert judged.p_values is not None
        assert judged.called is not None
        assert judged.contributions is not None
        p_values = np.nan_to_num(judged.p_values[row], nan=1.0)
        place = int(np.where(judged.called[row], p_values - 1, p_values).argmin())
        marks["evenhand_attribute"] = self._attributes[place][0].removeprefix(
            "evenhand_sensitivity_"
        )
        if top := self._top.in_words(judged.contributions[row, place]):
            marks["evenhand_top_features"] = top
