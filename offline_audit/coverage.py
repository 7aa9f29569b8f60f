"""How many groups and labels are unknown, and whether labels are missing alike in two groups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from offline_audit.rendering import p_equals, percent
from offline_audit.validation import UNKNOWN

if TYPE_CHECKING:
    from offline_audit.window.counts import Cell

__all__ = [
    "DECISIONS",
    "LabelCoverage",
    "Unknowns",
    "equal_shares_p_value",
    "known_decisions",
    "one_decision_only",
    "only_labelled_decision",
    "uneven_labels",
]

Int = NDArray[np.integer]

# Level of the test of coverage, and expected count from which it is a z-test instead of Fisher's.
_LEVEL = 0.05
_LARGE_COUNT = 10
# A decision is in effect without labels if fewer than this many rows and less than this share have
# one: the worst case over its other labels then leaves nine tenths of its label rate open.
_FEWEST_LABELLED, _SMALLEST_COVERAGE = 10, 0.1
# Such coverage is selective if that of the other decision is at least this many times as high.
_SELECTIVE_RATIO = 5
# Difference of the labelled shares of the two decisions above which labels are uneven.
_UNEVEN_LABELS = 0.1
# What decisions 0 and 1 are called if the caller has no other words.
DECISIONS = ("with decision 0", "with decision 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknowns:
    """Numbers of rows whose group or label is unknown.

    Attributes:
        rows: Number of rows, with and without a known group.
        groups: Number of rows of unknown group, by protected attribute or crossing.
        labels: Number of rows without a label; None if no labels were given.
    """

    rows: int
    groups: Mapping[str, int]
    labels: int | None = None

    @classmethod
    def of_tables(cls, tables: Mapping[str, Int], *, labels: bool) -> Unknowns:
        """Count tables by group, label and decision, `[groups + 1, 3, 3]`; the last is unknown."""
        first = next(iter(tables.values()))
        return cls(
            rows=int(first.sum()),
            groups={attribute: int(table[-1].sum()) for attribute, table in tables.items()},
            labels=int(first[:, -1].sum()) if labels else None,
        )

    @classmethod
    def of_cells(cls, attribute: str, cells: Sequence[Cell]) -> Unknowns:
        """Count the cells of an attribute or crossing of a window."""
        return cls(
            rows=sum(cell.rows for cell in cells),
            groups={attribute: sum(cell.rows for cell in cells if None in cell.groups)},
            labels=sum(cell.rows for cell in cells if cell.label is None),
        )

    @classmethod
    def joined(cls, parts: Iterable[Unknowns | None]) -> Unknowns | None:
        """Unknowns of several tests of the same rows; None if there are none."""
        known = [part for part in parts if part is not None]
        if not known:
            return None
        labels = [part.labels for part in known if part.labels is not None]
        groups: dict[str, int] = {}
        for part in known:
            # A test of scores leaves out rows without one.
            groups |= {a: max(n, groups.get(a, 0)) for a, n in part.groups.items()}
        rows = max(part.rows for part in known)
        return cls(rows=rows, groups=groups, labels=max(labels) if labels else None)

    def __str__(self) -> str:
        counts = {f"group of {name}": n for name, n in self.groups.items()}
        if list(self.groups) == ["group"]:
            counts = {"group": self.groups["group"]}
        counts |= {} if self.labels is None else {"label": self.labels}
        parts = [f"{name} {n:,} ({percent(n / self.rows)})" for name, n in counts.items() if n > 0]
        return f"Rows: {self.rows:,}; unknown: {', '.join(parts) or 'none'}."


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCoverage:
    """Rows and labelled rows of two groups by decision, and a test of equal coverage.

    H0: within each decision that counts, labels are known equally often in both groups. Fisher's
    exact test for each decision (a z-test of large counts), corrected by Bonferroni. Labels that
    are missing by outcome in one group change its coverage, unless another cause offsets it.

    Attributes:
        groups: Names of the groups.
        rows: Rows of each group with decision 0 and 1.
        labelled: Those of them with a label.
        decisions: Decisions that count.
        p_value: p-value of the test.
    """

    groups: tuple[str, str]
    rows: tuple[tuple[int, int], tuple[int, int]]
    labelled: tuple[tuple[int, int], tuple[int, int]]
    decisions: tuple[int, ...]
    p_value: float

    @classmethod
    def of(
        cls,
        groups: tuple[str, str],
        tables: tuple[Int, Int],
        decisions: Sequence[int] = (0, 1),
        *,
        share_independent: float = 1.0,
    ) -> LabelCoverage:
        """Coverage of two groups from rows by label and decision, `[3, 3]` each.

        Args:
            groups: Names of the groups.
            tables: Rows by label and decision; the last index of each axis is unknown.
            decisions: Decisions that count.
            share_independent: Persons per row; 1 if every row is a person.
        """
        rows, labelled = (
            tuple((int(part[0]), int(part[1])) for part in parts)
            for parts in zip(*map(known_decisions, tables), strict=True)
        )
        p_values = [
            equal_shares_p_value([r[d] for r in rows], [n[d] for n in labelled], share_independent)
            for d in decisions
        ]
        return cls(
            groups=groups,
            rows=(rows[0], rows[1]),
            labelled=(labelled[0], labelled[1]),
            decisions=tuple(decisions),
            p_value=min(1.0, len(p_values) * min(p_values, default=1.0)),
        )

    @property
    def complete(self) -> bool:
        """Whether every row with a decision that counts has a label."""
        cells = [(self.rows[g][d], self.labelled[g][d]) for g in (0, 1) for d in self.decisions]
        return all(rows == labelled for rows, labelled in cells)

    @property
    def differs(self) -> bool:
        """Whether labels are known more often in one group, by more than chance explains."""
        return self.p_value <= _LEVEL

    def share(self, group: int, decision: int) -> float | None:
        """Share of a group's rows with a decision that have a label; None without rows."""
        rows = self.rows[group][decision]
        return self.labelled[group][decision] / rows if rows else None

    def sentence(self, words: tuple[str, str] = DECISIONS) -> str:
        """Group and decision with the largest deficit, in words."""
        gaps = {d: (self.share(0, d) or 0.0) - (self.share(1, d) or 0.0) for d in self.decisions}
        decision = max(gaps, key=lambda d: abs(gaps[d]))
        low = 0 if gaps[decision] < 0 else 1
        shares = percent(self.share(low, decision)), percent(self.share(1 - low, decision))
        return (
            f"labels are known for {shares[0]} of the rows of {self.groups[low]} "
            f"{words[decision]} and {shares[1]} of those of {self.groups[1 - low]} "
            f"(p {p_equals(self.p_value)})"
        )

    def warnings(self, words: tuple[str, str] = DECISIONS) -> Iterator[str]:
        """Warnings about coverage that differs between groups, or between decisions of a group."""
        if self.differs:
            text = self.sentence(words)
            yield f"{text[0].upper()}{text[1:]}: labels are not missing alike in both groups."
        if len(self.decisions) < 2:
            return
        uneven = uneven_labels(np.array(self.rows), np.array(self.labelled), standard_errors=3)
        for group in np.flatnonzero(uneven).tolist():
            shares = percent(self.share(group, 0)), percent(self.share(group, 1))
            yield (
                f"Labels of {self.groups[group]} are known for {shares[1]} of the rows "
                f"{words[1]} and {shares[0]} of those {words[0]}: a rate within labels "
                "describes labelled rows only, which may differ from the rest."
            )


def known_decisions(table: Int) -> tuple[Int, Int]:
    """Rows, and labelled rows, with decision 0 and 1 of a table `[..., 3, 3]`, `[..., 2]` each."""
    return table[..., :2].sum(axis=-2), table[..., :2, :2].sum(axis=-2)


def only_labelled_decision(rows: Int, labelled: Int) -> NDArray[np.int64]:
    """The decision whose rows alone have labels, although both decisions occur; -1 if none.

    Labels are then selective, and rates within labels are not identified: among labelled rows they
    are 0 or 1 by construction. So they are if a handful of the other decision's rows have a label:
    fewer than ten and less than a tenth of them, at a fifth of the coverage of the first or less.

    Args:
        rows: Numbers of rows with decision 0 and with decision 1, `[..., 2]`.
        labelled: Numbers of those rows whose label is known, `[..., 2]`.
    """
    coverage = labelled / np.maximum(rows, 1)
    none = labelled == 0
    few = (labelled < _FEWEST_LABELLED) & (coverage < _SMALLEST_COVERAGE)
    few &= _SELECTIVE_RATIO * coverage <= coverage[..., ::-1]
    without = (none | few) & ~none[..., ::-1]
    selective = (rows > 0).all(axis=-1) & without.any(axis=-1)
    return np.where(selective, without.argmin(axis=-1), UNKNOWN)


def one_decision_only(
    group: str,
    rows: Int,
    labelled: Int,
    words: tuple[str, str] = DECISIONS,
    metric: str = "rates within labels",
) -> str | None:
    """Reason why rates within labels are not identified in a group, `[2]` each; None if they are.

    Args:
        group: Name of the group, with "of"; empty for all rows.
        rows: Numbers of rows with decision 0 and with decision 1.
        labelled: Numbers of those rows whose label is known.
        words: What decisions 0 and 1 are called.
        metric: What is not identified.
    """
    decision = int(only_labelled_decision(rows, labelled))
    if decision == UNKNOWN:
        return None
    few = int(labelled[1 - decision])
    exist = f"exist only for rows{group} {words[decision]}"
    if few:
        exist += f", and for {few:,} of the {int(rows[1 - decision]):,} others"
    verb = "are" if metric.startswith("rates") else "is"
    return (
        f"labels {exist}, so {metric} {verb} not identified: the outcomes of the others are "
        "unknown, and more rows of this kind do not help"
    )


def uneven_labels(rows: Int, labelled: Int, *, standard_errors: float = 0.0) -> NDArray[np.bool_]:
    """Whether the labelled shares of the two decisions differ by more than ten percentage points.

    Rates within labels are then biased, unless labels are missing at random.

    Args:
        rows: Numbers of rows with decision 0 and with decision 1, `[..., 2]`. With no row of a
            decision the result is False.
        labelled: Numbers of those rows whose label is known, `[..., 2]`.
        standard_errors: Number of standard errors that the difference must exceed, too.
    """
    # At least one row, so that empty decisions divide by 1 instead of 0.
    n = np.maximum(rows, 1)
    difference = np.abs(labelled[..., 0] / n[..., 0] - labelled[..., 1] / n[..., 1])
    pooled = labelled.sum(axis=-1) / n.sum(axis=-1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n).sum(axis=-1))
    uneven = (difference > _UNEVEN_LABELS) & (difference > standard_errors * error)
    return np.asarray(uneven & (rows > 0).all(axis=-1))


def equal_shares_p_value(
    rows: Sequence[int], hits: Sequence[int], share_independent: float
) -> float:
    """p-value of equal shares of two samples; 1 if one is empty or nothing varies.

    Fisher's exact test, or a z-test if counts are large.

    Args:
        rows: Rows of each sample.
        hits: Those of them that count.
        share_independent: Persons per row; 1 if every row is a person.
    """
    n, x = np.array(rows) * share_independent, np.array(hits) * share_independent
    if not n.all() or not 0 < x.sum() < n.sum():
        return 1.0
    pooled = x.sum() / n.sum()
    if n.min() * min(pooled, 1 - pooled) < _LARGE_COUNT:
        # Imported here, since windows use this module and scipy.stats is slow to import.
        from scipy import stats

        x, n = np.round(x).astype(int), np.round(n).astype(int)
        return float(stats.fisher_exact([x.tolist(), (n - x).tolist()]).pvalue)
    z = (x[0] / n[0] - x[1] / n[1]) / math.sqrt(pooled * (1 - pooled) * (1 / n).sum())
    return math.erfc(abs(z) / math.sqrt(2))
