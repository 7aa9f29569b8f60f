"""Permutation tests: does a metric differ between protected groups by more than chance explains?"""

from offline_audit.permutation.correlation import correlation_test
from offline_audit.permutation.counts import TableCounts
from offline_audit.permutation.custom import GroupRows
from offline_audit.permutation.metrics import METRICS
from offline_audit.permutation.outcome import Comparison, Comparisons, Side
from offline_audit.permutation.run import permutation_test
from offline_audit.permutation.score_counts import ScoreCounts
from offline_audit.permutation.selection import SelectionRow, SelectionTable, selection_table

__all__ = [
    "METRICS",
    "Comparison",
    "Comparisons",
    "GroupRows",
    "ScoreCounts",
    "SelectionRow",
    "SelectionTable",
    "Side",
    "TableCounts",
    "correlation_test",
    "permutation_test",
    "selection_table",
]
