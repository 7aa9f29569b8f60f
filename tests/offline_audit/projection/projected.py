"""The projection test for tests that read optional fields of its result."""

from __future__ import annotations

from typing import Any

from offline_audit import projection_test


def projected(decisions: Any, distances: Any, groups: Any, **options: Any) -> Any:
    """The result as `Any`, so that tests need no narrowing of optional fields."""
    return projection_test(groups=groups, decisions=decisions, distances=distances, **options)
