"""What is known of predictions once they are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from torch import Tensor

__all__ = ["AttributeColumns", "AttributeScores", "ScoreColumns", "Scores"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeColumns:
    """Where the scores of one protected attribute stand among the columns of the joint pass."""

    log_prediction_sensitivity: int
    flip_probability: int
    hard_flips: int
    expected_change: int
    posterior: slice


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreColumns:
    """Where each score stands among the columns of the joint pass, `[n, w]`.

    Attributes:
        attributes: By the name of the protected attribute.
        width: How many columns there are, w.
    """

    logit: int = 0
    signed_margin: int = 1
    boundary_distance: int = 2
    attributes: Mapping[str, AttributeColumns]
    width: int

    @classmethod
    def of(cls, groups: Mapping[str, int]) -> Self:
        """For protected attributes with so many groups, in the order of the manifest."""
        place, attributes = 3, {}
        for name, count in groups.items():
            ends = place + 4 + count
            attributes[name] = AttributeColumns(
                log_prediction_sensitivity=place,
                flip_probability=place + 1,
                hard_flips=place + 2,
                expected_change=place + 3,
                posterior=slice(place + 4, ends),
            )
            place = ends
        return cls(attributes=attributes, width=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeScores:
    """What is known of n predictions as to one protected attribute.

    NaN stands where nothing can be said, as of a person of whom a feature is not a finite number.

    Attributes:
        posterior: P(group | x) by the status model, `[n, k]`.
        log_prediction_sensitivity: log Σⱼ |∂A/∂xⱼ|·|∂F/∂xⱼ| (Definition 3.2 of the paper), of the
            group for which it is largest, `[n]`; None where no gradient can be taken.
        contributions: Each feature's share of that sum, `[n, d]`; zeros where the sum is zero.
        flip_probability: Chance that the decision flips for another group, `[n]`.
        hard_flips: The same without softening: its mean over a stream is the flip share, `[n]`.
        expected_change: E|f(G(x)) − f(x)|, the larger over other groups, `[n]`.
    """

    posterior: Tensor
    log_prediction_sensitivity: Tensor | None
    contributions: Tensor | None
    flip_probability: Tensor
    hard_flips: Tensor
    expected_change: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What is known of n predictions.

    Attributes:
        logit: f(x), not shifted, `[n]`.
        signed_margin: f(x) − logit(τ), `[n]`.
        boundary_distance: |signed margin| / ‖∇f‖, `[n]`; None where no gradient can be taken.
        attributes: The scores of each protected attribute by name.
        missing: Why some scores are None; empty when none is.
    """

    logit: Tensor
    signed_margin: Tensor
    boundary_distance: Tensor | None
    attributes: Mapping[str, AttributeScores]
    missing: str

    @property
    def decision(self) -> Tensor:
        """Class 1 or not, bool `[n]`."""
        return self.signed_margin >= 0

    @property
    def margin(self) -> Tensor:
        """|f(x) − logit(τ)|, `[n]`."""
        return self.signed_margin.abs()
