"""Fairness criteria: the labels within which the decision rates of groups are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from offline_audit.errors import AuditInputError

__all__ = ["CRITERIA", "Criterion", "check_criterion", "needs_labels"]

Criterion = Literal[
    "statistical_parity", "equal_opportunity", "predictive_equality", "equalized_odds"
]
# Labels within which rates must be equal; None: all rows, whatever their label.
CRITERIA: Mapping[str, tuple[int | None, ...]] = {
    "statistical_parity": (None,),
    "equal_opportunity": (1,),
    "predictive_equality": (0,),
    "equalized_odds": (1, 0),
}


def check_criterion(value: Any, name: str = "criterion") -> None:
    """Check the name of a criterion.

    Raises:
        AuditInputError: There is no such criterion.
    """
    if not isinstance(value, str) or value not in CRITERIA:
        raise AuditInputError(
            f"{name}: unknown criterion {value!r}; use one of {', '.join(CRITERIA)}"
        )


def needs_labels(criterion: Criterion) -> bool:
    """Whether the criterion compares rows within labels."""
    return CRITERIA[criterion] != (None,)
