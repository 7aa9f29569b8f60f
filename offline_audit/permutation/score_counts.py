"""Histograms of scores by group, label and decision, in place of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from offline_audit.checked_arrays import MISSING, finite
from offline_audit.errors import AuditInputError
from offline_audit.group_names import require_names
from offline_audit.permutation.counts import whole_number
from offline_audit.permutation.options import is_whole
from offline_audit.permutation.rows import Expected, expected_of, require_expected_kind, rows_of
from offline_audit.plain_words import count

__all__ = ["ScoreCounts"]

Int = NDArray[np.int64]
Float = NDArray[np.float64]


class Histogram(Protocol):
    """What `offline_audit.score_histogram.ScoreHistogram` has."""

    @property
    def attribute(self) -> str:
        """The protected attribute."""

    @property
    def bars(self) -> tuple[Any, ...]:
        """Counts by bin of each group, label and decision; and `missing`, without a score."""

    @property
    def edges(self) -> tuple[float, ...]:
        """Of the bins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCounts:
    """Scores in bins.

    Attributes:
        attribute: The protected attribute.
        names: Of its groups.
        edges: Of the bins, ascending, `[bins + 1]`.
        counts: Rows by group, label, decision and bin, `[groups + 1, 3, 3, bins]`; the last group,
            label and decision are unknown.
        unscored: Rows without a score.
        warnings: What is odd about them.
    """

    attribute: str
    names: tuple[str, ...]
    edges: Float
    counts: Int
    unscored: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def centres(self) -> Float:
        """Of the bins, `[bins]`."""
        found: Float = (self.edges[1:] + self.edges[:-1]) / 2
        return found

    @classmethod
    def from_histogram(cls, histogram: Histogram, expected: Expected | None = None) -> Self:
        """From a window's `ScoreHistogram`.

        Raises:
            AuditInputError: A count is negative, or a name is not expected.
        """
        bars = histogram.bars
        names = sorted({bar.group for bar in bars if bar.group is not None})
        attribute = histogram.attribute
        require_expected_kind(expected, [attribute])
        warnings = require_names(names, expected_of(expected, attribute), attribute)
        edges = np.array(histogram.edges, dtype=np.float64)
        counts = np.zeros((len(names) + 1, 3, 3, len(edges) - 1), dtype=np.int64)
        for bar in bars:
            group = len(names) if bar.group is None else names.index(bar.group)
            label, decision = (MISSING if v is None else v for v in (bar.label, bar.decision))
            counts[group, label, decision] += [whole_number(n, "scores") for n in bar.counts]
        unscored = sum(whole_number(bar.missing, "scores") for bar in bars)
        return cls(
            attribute=attribute,
            names=tuple(names),
            edges=edges,
            counts=counts,
            unscored=unscored,
            warnings=(*warnings, *_left_out(unscored)),
        )

    @classmethod
    def from_arrays(
        cls,
        *,
        groups: Any,
        scores: Any,
        labels: Any = None,
        decisions: Any = None,
        bins: int = 256,
        attribute: str = "group",
        expected: Expected | None = None,
    ) -> Self:
        """Count rows of arrays in equal bins from 0 to 1.

        Raises:
            AuditInputError: An array is not what it should be.
        """
        if not is_whole(bins) or bins < 2:
            raise AuditInputError("bins: a whole number is needed, at least 2")
        if scores is None:
            raise AuditInputError("scores: one number a row is needed")
        lowest, highest = _extremes(scores)
        if lowest < 0 or highest > 1:
            raise AuditInputError("scores: bins go from 0 to 1; scale the scores into them")
        rows = rows_of(
            groups={attribute: groups},
            scores=scores,
            labels=labels,
            decisions=decisions,
            expected=expected,
        )
        assert rows.scores is not None
        names = rows.crossings[0].names
        codes = np.where(rows.crossings[0].codes < 0, len(names), rows.crossings[0].codes)
        place = np.minimum((rows.scores * bins).astype(np.int64), bins - 1)
        flat = ((codes * 3 + rows.label) * 3 + rows.decision) * bins + place
        shape = (len(names) + 1, 3, 3, bins)
        counts = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape)
        return cls(
            attribute=attribute,
            names=names,
            edges=np.linspace(0, 1, bins + 1),
            counts=counts.astype(np.int64),
            warnings=rows.warnings,
        )


def _extremes(scores: Any) -> tuple[float, float]:
    numbers = finite(scores, "scores")
    return float(numbers.min(initial=0.0)), float(numbers.max(initial=1.0))


def _left_out(unscored: int) -> list[str]:
    """A word about rows without a score."""
    return [f"Left out: {count(unscored, 'row')} without a score."] * bool(unscored)
