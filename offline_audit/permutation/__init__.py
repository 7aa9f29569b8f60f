"""Permutation tests: does a metric differ between protected groups by more than chance explains?

test ─► rows or counts (sources) ─► compare_ratio, auc_test, custom ─► p-value: exact for rates
(ratio_test), else from random permutations (permutations) ─► unknown (p holds for all that unknown
labels and groups leave open) ─► result; power (smallest detectable effects)
"""

from offline_audit.permutation.comparisons import Comparisons
from offline_audit.permutation.correlation import correlation_test
from offline_audit.permutation.counts import ScoreCounts, TableCounts
from offline_audit.permutation.estimates import GroupEstimate
from offline_audit.permutation.impact import SelectionRow
from offline_audit.permutation.metrics import METRICS, GroupRows
from offline_audit.permutation.result import Comparison
from offline_audit.permutation.selection import SelectionTable, scoring_table, selection_table
from offline_audit.permutation.test import permutation_test

__all__ = [
    "METRICS",
    "Comparison",
    "Comparisons",
    "GroupEstimate",
    "GroupRows",
    "ScoreCounts",
    "SelectionRow",
    "SelectionTable",
    "TableCounts",
    "correlation_test",
    "permutation_test",
    "scoring_table",
    "selection_table",
]
