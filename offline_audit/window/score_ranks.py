"""How well scores rank labels within a group: the AUC and its variance, from sums of integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa

__all__ = ["GroupRanks", "ScoreRanks", "rank_sums", "ranks_of"]

# Squares are summed in two halves, so that no engine's 64-bit integers overflow below 2³⁰ rows.
_HALF = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRanks:
    """Ranks of one group's labelled rows by logit.

    The placement of a positive is the number of negatives below it, ties counting a half; that of a
    negative the number of positives above it. AUC = Σ placements of positives / (P N). Its variance
    is DeLong's (Biometrics 44, 1988, eq. 4 and 6): S₁₀/P + S₀₁/N, with S₁₀ and S₀₁ the sample
    variances of the placements, each divided by the size of the other class.

    Attributes:
        group: None for rows of which it is not known.
        positives: Rows with label 1, P.
        negatives: Rows with label 0, N.
        doubled_sum: Sum of twice the placement, over the positives or over the negatives.
        positive_squares: Sum of the squares of twice the placement of the positives.
        negative_squares: The same of the negatives.
    """

    group: str | None
    positives: int
    negatives: int
    doubled_sum: int
    positive_squares: int
    negative_squares: int

    @property
    def rank_sum(self) -> float:
        """Sum of the mid-ranks of the positives among all labelled rows of the group."""
        return (self.doubled_sum + self.positives * (self.positives + 1)) / 2

    @property
    def auc(self) -> float | None:
        """Chance that a positive has a higher logit than a negative; None without either."""
        pairs = self.positives * self.negatives
        return self.doubled_sum / (2 * pairs) if pairs else None

    @property
    def variance(self) -> float | None:
        """DeLong's, of the AUC; None with fewer than two positives or two negatives."""
        p, n = self.positives, self.negatives
        if p < 2 or n < 2:
            return None
        # p Σx² − (Σx)² of integers: exact, where floats would cancel.
        among_positives = p * self.positive_squares - self.doubled_sum**2
        among_negatives = n * self.negative_squares - self.doubled_sum**2
        return among_positives / ((2 * n * p) ** 2 * (p - 1)) + among_negatives / (
            (2 * n * p) ** 2 * (n - 1)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRanks:
    """Ranks of a window by the groups of one protected attribute.

    Attributes:
        attribute: Its name.
        groups: Those with a labelled row that has a logit; unknown comes last.
    """

    attribute: str
    groups: tuple[GroupRanks, ...]

    def of(self, group: str | None) -> GroupRanks | None:
        """One group's."""
        return next((found for found in self.groups if found.group == group), None)


def rank_sums(rows: Any) -> Any:
    """Sums for each group.

    Args:
        rows: An Ibis table of `group`, `label` and `logit`.
    """
    scored = rows.filter(rows.label.isin([0, 1]) & rows.logit.notnull())
    # Zero has two signs, which engines may or may not tell apart.
    logit = ibis.ifelse(scored.logit == 0, 0.0, scored.logit.cast("float64"))
    tied = scored.group_by(group=scored.group, logit=logit).agg(
        positives=(scored.label == 1).cast("int64").sum(),
        negatives=(scored.label == 0).cast("int64").sum(),
    )
    below = ibis.window(group_by="group", order_by="logit", rows=(None, 0))
    whole = ibis.window(group_by="group")
    # Twice the placements, so that they are integers.
    placed = tied.select(
        "group",
        "positives",
        "negatives",
        of_positive=2 * tied.negatives.sum().over(below) - tied.negatives,
        of_negative=2 * tied.positives.sum().over(whole)
        - 2 * tied.positives.sum().over(below)
        + tied.positives,
    )
    upper, lower = {}, {}
    for name in ("positive", "negative"):
        square = placed[f"of_{name}"] * placed[f"of_{name}"]
        weight = placed[f"{name}s"]
        upper[f"{name}_upper"] = (weight * (square >> _HALF)).sum()
        lower[f"{name}_lower"] = (weight * (square & ((1 << _HALF) - 1))).sum()
    return placed.group_by("group").agg(
        positives=placed.positives.sum(),
        negatives=placed.negatives.sum(),
        doubled_sum=(placed.positives * placed.of_positive).sum(),
        **upper,
        **lower,
    )


def ranks_of(attribute: str, sums: pa.Table) -> ScoreRanks:
    """From the sums that the engine found."""
    groups = [
        GroupRanks(
            group=row["group"],
            positives=row["positives"],
            negatives=row["negatives"],
            doubled_sum=row["doubled_sum"],
            positive_squares=(row["positive_upper"] << _HALF) + row["positive_lower"],
            negative_squares=(row["negative_upper"] << _HALF) + row["negative_lower"],
        )
        for row in sums.to_pylist()
    ]
    groups.sort(key=lambda found: (found.group is None, found.group or ""))
    return ScoreRanks(attribute=attribute, groups=tuple(groups))
