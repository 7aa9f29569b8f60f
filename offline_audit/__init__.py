"""Audits of logged traffic: from a window of the traffic log to findings.

Public names are imported on first use (PEP 562), so `import offline_audit` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offline_audit.errors import AuditInputError as AuditInputError
    from offline_audit.errors import OfflineAuditError as OfflineAuditError
    from offline_audit.finding import Finding as Finding
    from offline_audit.finding import Findings as Findings
    from offline_audit.fliptest import FlipTestResult as FlipTestResult
    from offline_audit.fliptest import flip_test as flip_test
    from offline_audit.maps import Columns as Columns
    from offline_audit.maps import map_method as map_method
    from offline_audit.model.audited_model import AuditedModel as AuditedModel
    from offline_audit.permutation import METRICS as METRICS
    from offline_audit.permutation import GroupRows as GroupRows
    from offline_audit.permutation import ScoreCounts as ScoreCounts
    from offline_audit.permutation import SelectionTable as SelectionTable
    from offline_audit.permutation import TableCounts as TableCounts
    from offline_audit.permutation import correlation_test as correlation_test
    from offline_audit.permutation import permutation_test as permutation_test
    from offline_audit.permutation import scoring_table as scoring_table
    from offline_audit.permutation import selection_table as selection_table
    from offline_audit.projection import BoundaryDistances as BoundaryDistances
    from offline_audit.projection import ProjectionResult as ProjectionResult
    from offline_audit.projection import discrete_distances as discrete_distances
    from offline_audit.projection import kernel_distances as kernel_distances
    from offline_audit.projection import linear_distances as linear_distances
    from offline_audit.projection import projection_test as projection_test
    from offline_audit.projection.network_distances import network_distances as network_distances
    from offline_audit.run import audit_window as audit_window
    from offline_audit.window.engine import Engine as Engine
    from offline_audit.window.window import Window as Window

_MODULES = {
    "offline_audit.errors": ("AuditInputError", "OfflineAuditError"),
    "offline_audit.finding": ("Finding", "Findings"),
    "offline_audit.fliptest": ("FlipTestResult", "flip_test"),
    "offline_audit.maps": ("Columns", "map_method"),
    "offline_audit.model.audited_model": ("AuditedModel",),
    "offline_audit.permutation": (
        *("METRICS", "GroupRows", "ScoreCounts", "SelectionTable", "TableCounts"),
        *("correlation_test", "permutation_test", "scoring_table", "selection_table"),
    ),
    "offline_audit.projection": (
        *("BoundaryDistances", "ProjectionResult", "discrete_distances", "kernel_distances"),
        *("linear_distances", "projection_test"),
    ),
    "offline_audit.projection.network_distances": ("network_distances",),
    "offline_audit.run": ("audit_window",),
    "offline_audit.window.engine": ("Engine",),
    "offline_audit.window.window": ("Window",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
