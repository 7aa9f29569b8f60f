"""Which flips turn back if one variable alone is put back to the person's own value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from offline_audit.errors import AuditInputError
from offline_audit.fliptest.feature_changes import FeatureChange
from offline_audit.fliptest.flipset import Side
from offline_audit.fliptest.weighted_flips import WeightedFlips
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import Features

__all__ = ["Decide", "with_undoing"]

# Whether each row has the favourable decision: 1, 0, or −1 where there is no answer, `[n]`.
Decide = Callable[[Features], NDArray[np.int8]]


def with_undoing(
    changes: Sequence[FeatureChange],
    flips: WeightedFlips,
    side: Side,
    columns: Columns,
    decide: Decide,
    level: float,
) -> tuple[tuple[FeatureChange, ...], float | None]:
    """Changes with the share of flips that each undoes, and the share that none undoes alone.

    Args:
        changes: Of the variables, in their order.
        flips: That the model is asked about, once for each variable that differs.
        side: Which flips these are.
        columns: What the columns are.
        decide: The model.
        level: Of the intervals.

    Raises:
        AuditInputError: The model's answers are none.
    """
    undone = np.stack([_undone(flips, variable, side, decide) for variable in columns.variables])
    told = tuple(
        _with_undone(change, each, flips, level)
        for change, each in zip(changes, undone, strict=True)
    )
    answered = (undone >= 0).all(0)
    none = float((undone[:, answered] == 0).all(0).mean()) if answered.any() else None
    return told, none


def _undone(
    flips: WeightedFlips, variable: Variable, side: Side, decide: Decide
) -> NDArray[np.int8]:
    """Whether each flip turns back with the person's own value: 1, 0, −1 without answer, `[r]`."""
    at = list(variable.columns)
    differs = (flips.own[:, at] != flips.other[:, at]).any(1)
    found = np.zeros(len(differs), np.int8)
    if not differs.any():
        return found
    rows = flips.other[differs]
    rows[:, at] = flips.own[differs][:, at]
    answers = np.asarray(decide(rows))
    if answers.shape != (len(rows),) or not np.isin(answers, (-1, 0, 1)).all():
        raise AuditInputError(
            f"decide: for {len(rows)} rows as many answers of 1, 0 or -1 are needed, not an array "
            f"of shape {answers.shape}"
        )
    if (answers < 0).all():
        # What does not differ would make it look as if nothing were undone.
        return np.full(len(differs), -1, np.int8)
    back = 1 if side == "advantaged" else 0
    found[differs] = np.where(answers < 0, -1, answers == back)
    return found


def _with_undone(
    change: FeatureChange, undone: NDArray[np.int8], asked: WeightedFlips, level: float
) -> FeatureChange:
    answered = undone >= 0
    if not answered.any():
        return replace(change, unanswered=len(undone))
    told, hits = asked.take(answered), undone[answered] == 1
    return replace(
        change,
        undone=float(hits.mean()),
        undone_interval=told.share_interval(hits, level),
        unanswered=int((~answered).sum()),
    )
