"""Histograms of scores by group, label and decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa

__all__ = ["ScoreBars", "ScoreHistogram", "binned", "histogram_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBars:
    """Scores of predictions that have group, label and decision in common.

    Attributes:
        group: None where it is not known.
        label: None where it is not known.
        decision: None where the log has none.
        counts: In each bin.
        missing: Predictions without a score.
    """

    group: str | None
    label: int | None
    decision: int | None
    counts: tuple[int, ...]
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreHistogram:
    """Scores of a window in equal bins from 0 to 1, each without its upper end but the last.

    Attributes:
        attribute: The protected attribute of the groups.
        bins: How many.
        bars: One of each group, label and decision that occur together.
    """

    attribute: str
    bins: int
    bars: tuple[ScoreBars, ...]

    @property
    def edges(self) -> tuple[float, ...]:
        """Of the bins, one more than there are bins."""
        return tuple(place / self.bins for place in range(self.bins + 1))


def binned(rows: Any, bins: int) -> Any:
    """Counts by group, label, decision and bin; the bin is null where the score is.

    Args:
        rows: An Ibis table of `group`, `label`, `decision` and `score`.
        bins: How many.
    """
    # In doubles, since engines multiply single floats in different ways.
    place = (rows.score.cast("float64") * float(bins)).floor().cast("int64")
    place = ibis.ifelse(place >= bins, bins - 1, ibis.ifelse(place < 0, 0, place))
    found = rows.select("group", "label", "decision", bin=place)
    return found.group_by("group", "label", "decision", "bin").agg(rows=found.count())


def histogram_of(attribute: str, bins: int, counted: pa.Table) -> ScoreHistogram:
    """From the counts that the engine found."""
    bars: dict[tuple[str | None, int | None, int | None], list[int]] = {}
    for row in counted.to_pylist():
        found = bars.setdefault((row["group"], row["label"], row["decision"]), [0] * (bins + 1))
        found[bins if row["bin"] is None else row["bin"]] += row["rows"]
    made = [
        ScoreBars(group=g, label=y, decision=d, counts=tuple(counts[:bins]), missing=counts[bins])
        for (g, y, d), counts in bars.items()
    ]
    made.sort(key=_order)
    return ScoreHistogram(attribute=attribute, bins=bins, bars=tuple(made))


def _order(bars: ScoreBars) -> tuple[bool, str, int, int]:
    """What is not known comes last."""
    label, decision = (2 if value is None else value for value in (bars.label, bars.decision))
    return bars.group is None, bars.group or "", label, decision
