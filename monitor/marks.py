"""Marks on an answer: what monitoring says of it, as strings, since other kinds get lost.

An answer to several rows is marked by the one that depends most on a group; what holds for each row
is in tensors that can be asked for.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor.batching import Share
from monitor.bundle.manifest import BundleSpec
from monitor.judging import Judged, Listed
from monitor.policy import Action, VerdictCode
from monitor.scores import ScoreColumns

__all__ = ["Marks", "TopFeatures"]

_TOP = 3
# By how bad it is.
_VERDICTS = ["within", "unknown", "above"]
_ABOVE = _VERDICTS.index("above")
_ACTIONS = [action.name.lower() for action in Action]


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

    def __init__(self, spec: BundleSpec, columns: ScoreColumns, *, has_gradient: bool) -> None:
        self._has_gradient = has_gradient
        self._attributes = [
            (
                f"evenhand_sensitivity_{name}",
                places.log_prediction_sensitivity,
                f"evenhand_flip_probability_{name}",
                places.flip_probability,
            )
            for name, places in columns.attributes.items()
        ]
        self._names = list(columns.attributes)
        self._top = TopFeatures(spec)

    def of(self, request_id: str, share: Share, held: NDArray[np.bool_] | None) -> dict[str, str]:
        """The marks of one answer; nothing from which a withheld score could be told."""
        marks = {"evenhand_request_id": request_id}
        judged, start, stop = share
        if judged.verdicts is None:
            return marks
        listed = judged.listed
        row = start if stop - start == 1 else self._row_that_counts(listed, judged, start, stop)
        verdict, action = listed.verdicts[row], listed.actions[row]
        marks["evenhand_verdict"] = _VERDICTS[verdict]
        if action:
            marks["evenhand_action"] = _ACTIONS[action]
        if listed.scores is None:
            marks["evenhand_fault"] = "monitoring failed"
            return marks
        if held is None or not held[row - start]:
            values = listed.scores[row]
            for sensitivity, log_ps, flip_probability, flip in self._attributes:
                if self._has_gradient:
                    marks[sensitivity] = f"{math.exp(values[log_ps]):.4g}"
                marks[flip_probability] = f"{values[flip]:.4f}"
        if action or verdict == _ABOVE:
            self._explain(marks, judged, row)
        return marks

    @staticmethod
    def _row_that_counts(listed: Listed, judged: Judged, start: int, stop: int) -> int:
        """The row with the strongest action, then the worst verdict, then the lowest p-value."""
        p_values = np.ones(stop - start)
        if judged.p_values is not None:
            p_values = np.nan_to_num(judged.p_values[start:stop], nan=1.0).min(1)
        return max(
            range(start, stop),
            key=lambda row: (listed.actions[row], listed.verdicts[row], -p_values[row - start]),
        )

    def _explain(self, marks: dict[str, str], judged: Judged, row: int) -> None:
        """Name the attribute that calls for the action, and the features through which."""
        assert judged.p_values is not None
        assert judged.called is not None
        assert judged.contributions is not None
        verdicts = judged.verdicts[row] if judged.verdicts is not None else ()
        if not judged.called[row].any() and VerdictCode.ABOVE not in verdicts:
            # Held back since nothing is known of it.
            return
        p_values = np.nan_to_num(judged.p_values[row], nan=1.0)
        place = int(np.where(judged.called[row], p_values - 1, p_values).argmin())
        marks["evenhand_attribute"] = self._names[place]
        if self._has_gradient and (top := self._top.in_words(judged.contributions[row, place])):
            marks["evenhand_top_features"] = top
