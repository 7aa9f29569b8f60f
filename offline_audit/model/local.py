"""A model that is a function of this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from offline_audit.model.outputs import Codes, DecisionRule, Features, RowsRefusedError

__all__ = ["FunctionModel", "as_function"]


class FunctionModel:
    """A function from rows to decisions or scores.

    Args:
        function: From float32 `[n, d]`, its to keep, to an answer.
        rule: What its answers mean.
        batch_rows: Most rows of a call.
        width: Columns that it takes.
    """

    def __init__(
        self,
        function: Callable[[Features], Any],
        rule: DecisionRule,
        *,
        batch_rows: int,
        width: int | None = None,
    ) -> None:
        self._function, self._rule, self._batch_rows = function, rule, batch_rows
        self.width = width

    def batch_rows(self, width: int) -> int:
        """See `RowModel`."""
        return self._batch_rows

    def answers(self, rows: Features) -> Codes:
        """See `RowModel`."""
        try:
            # A copy, since a function may write to what it is given.
            answer = self._function(rows.copy())
        except Exception as error:  # noqa: BLE001 - a foreign model may raise anything
            raise RowsRefusedError(type(error).__name__) from None
        return self._rule.codes(answer, len(rows))

    def rest(self) -> None:
        """See `RowModel`."""


def as_function(model: Callable[..., Any]) -> Callable[[Features], Any]:
    """A function of arrays, which a torch module is made.

    Raises:
        AuditInputError: The module is in training mode.
    """
    # Whoever has a module has imported torch.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return model
    from offline_audit.model.torch_module import module_function

    return module_function(model)
