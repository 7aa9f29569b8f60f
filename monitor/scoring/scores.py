"""Scores of predictions, by name, and their columns in the result of the joint pass.

The module imports numpy only, since the drift watch uses it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from monitor.scoring.baseline import Signal

__all__ = [
    "FIRST_OF_REASON",
    "REASON_NAMES",
    "AttributeColumns",
    "AttributeScores",
    "Predictions",
    "Reason",
    "ScoreColumns",
    "Scores",
    "Signals",
]


class Reason(IntEnum):
    """Why a row is unlike the training rows, and has no scores; the largest of several."""

    NONE = 0
    COMBINATION = 1
    RANGE = 2
    VALUE = 3
    ONE_HOT = 4
    NOT_FINITE = 5


# Names by number.
REASON_NAMES = tuple(reason.name.lower() for reason in Reason)
# First code of each reason; codes are whole numbers that float32 represents exactly.
FIRST_OF_REASON = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeColumns:
    """Columns of the joint pass that hold the scores of one protected attribute."""

    log_prediction_sensitivity: int
    flip_probability: int
    hard_flips: int
    expected_change: int
    posterior: slice

    def of_signal(self, signal: Signal) -> int:
        """Column of a signal; prediction sensitivity as its log."""
        match signal:
            case "expected_change":
                return self.expected_change
            case "flip_probability":
                return self.flip_probability
            case "prediction_sensitivity":
                return self.log_prediction_sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreColumns:
    """Columns of the joint pass `[n, w]` by score.

    Attributes:
        logit: Column of the logit.
        signed_margin: Column of the signed margin.
        unlike: Column of the code of why a row is unlike the training rows.
        boundary_distance: Column of the distance to the decision boundary, the first of the scores
            that such rows do not have.
        attributes: Columns of every protected attribute, by name.
        width: Number of columns, w.
    """

    logit: int = 0
    signed_margin: int = 1
    unlike: int = 2
    boundary_distance: int = 3
    attributes: Mapping[str, AttributeColumns]
    width: int

    @classmethod
    def of(cls, groups: Mapping[str, int]) -> Self:
        """Columns for protected attributes, from their numbers of groups in manifest order."""
        start, attributes = 4, {}
        for name, count in groups.items():
            stop = start + 4 + count
            attributes[name] = AttributeColumns(
                log_prediction_sensitivity=start,
                flip_probability=start + 1,
                hard_flips=start + 2,
                expected_change=start + 3,
                posterior=slice(start + 4, stop),
            )
            start = stop
        return cls(attributes=attributes, width=start)

    def reasons(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """`Reason` of each row of scores `[n, w]`, `[n]`; none where nothing was scored."""
        codes: NDArray[np.int64] = np.nan_to_num(scores[:, self.unlike]).astype(np.int64)
        return codes // FIRST_OF_REASON

    def mask_unlike(self, scores: NDArray[np.floating]) -> None:
        """Set the scores of rows unlike the training rows to NaN, in place; the logit stays."""
        unlike = scores[:, self.unlike] > 0
        if unlike.any():
            scores[unlike, self.boundary_distance :] = np.nan

    def unpacked(
        self,
        packed: Tensor,
        contributions: Tensor | None = None,
        *,
        has_gradient: bool = True,
        has_distance: bool = True,
        missing: str = "",
    ) -> Scores:
        """Columns `[n, w]` and contributions `[n, a, d]` of the joint pass by name, as views."""
        columns, attributes = packed.unbind(1), {}
        for index, (name, own) in enumerate(self.attributes.items()):
            log_ps = columns[own.log_prediction_sensitivity]
            known = has_gradient and contributions is not None
            attributes[name] = AttributeScores(
                posterior=packed[:, own.posterior],
                log_prediction_sensitivity=log_ps if has_gradient else None,
                contributions=contributions[:, index] if known else None,  # type: ignore[index]
                flip_probability=columns[own.flip_probability],
                hard_flips=columns[own.hard_flips],
                expected_change=columns[own.expected_change],
            )
        return Scores(
            logit=columns[self.logit],
            signed_margin=columns[self.signed_margin],
            boundary_distance=columns[self.boundary_distance] if has_distance else None,
            unlike=columns[self.unlike],
            attributes=attributes,
            missing=missing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeScores:
    """Scores of n predictions for one protected attribute.

    NaN where a score is unknown, as for a row unlike the training rows.

    Attributes:
        posterior: P(group | x) by the status model, `[n, k]`.
        log_prediction_sensitivity: log Σⱼ |∂A/∂xⱼ|·|∂F/∂xⱼ| (Definition 3.2 of the paper), of the
            group for which it is largest, `[n]`; None where no gradient can be taken.
        contributions: Share of every feature in that sum, `[n, d]`; zeros where the sum is zero.
        flip_probability: Probability that the decision flips for at least one other group, `[n]`.
        hard_flips: The same with a hard threshold; its mean over a stream is the flip share, `[n]`.
        expected_change: E|f(G(x)) − f(x)|, the largest over the other groups, `[n]`.
    """

    posterior: Tensor
    log_prediction_sensitivity: Tensor | None
    contributions: Tensor | None
    flip_probability: Tensor
    hard_flips: Tensor
    expected_change: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Signals of n predictions for one protected attribute, as the drift watch reads them.

    Attributes:
        hard_flips: Values in [0, 1] whose mean is the flip share, `[n]`.
        expected_change: Expected change of the logit, `[n]`.
        posterior: P(group | x), `[n, k]`.
    """

    hard_flips: NDArray[np.float64]
    expected_change: NDArray[np.float64]
    posterior: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """Signals of n predictions, in the order of the stream; the input of the drift watch.

    Attributes:
        margin: f(x) − logit(τ), signed, `[n]`.
        attributes: Signals by protected attribute.
    """

    margin: NDArray[np.float64]
    attributes: Mapping[str, Signals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of n predictions.

    Attributes:
        logit: f(x), not shifted, `[n]`.
        signed_margin: f(x) − logit(τ), `[n]`.
        boundary_distance: |signed margin| / ‖∇f‖, `[n]`; None where no gradient can be taken.
        unlike: Code of why a row is unlike the training rows, `[n]`; 0 if it is not. See
            `InputCheck.codes`.
        attributes: Scores of every protected attribute, by name.
        missing: Reason why some scores are None; empty if none is.
    """

    logit: Tensor
    signed_margin: Tensor
    boundary_distance: Tensor | None
    unlike: Tensor
    attributes: Mapping[str, AttributeScores]
    missing: str

    @property
    def predictions(self) -> Predictions:
        """Input of the drift watch, in the order of the rows."""
        margin = self.signed_margin.double().numpy()
        return Predictions(
            margin=np.where(self.unlike.numpy() > 0, np.nan, margin),
            attributes={
                name: Signals(
                    hard_flips=own.hard_flips.double().numpy(),
                    expected_change=own.expected_change.double().numpy(),
                    posterior=own.posterior.double().numpy(),
                )
                for name, own in self.attributes.items()
            },
        )

    @property
    def decision(self) -> Tensor:
        """Whether the decision is class 1, bool `[n]`."""
        return self.signed_margin >= 0

    @property
    def margin(self) -> Tensor:
        """|f(x) − logit(τ)|, `[n]`."""
        return self.signed_margin.abs()
