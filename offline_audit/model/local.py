"""Models that run in this process: functions, torch modules and the classifiers of bundles.

Torch is imported only where a module or a bundle is audited.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from monitor.bundle import Bundle
from offline_audit.errors import AuditInputError
from offline_audit.model.decisions import Codes, DecisionRule, Features, RowsRefusedError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["FunctionModel", "as_function", "bundle_function"]


class FunctionModel:
    """A function from rows to decisions or scores.

    Args:
        function: Function of rows `[n, d]`. It may modify its argument.
        rule: Rule that turns its outputs into decisions.
        batch_rows: Largest number of rows per call.
        width: Number of columns that it accepts; None if that is not known.
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

    def decide(self, rows: Features) -> Codes:
        """See `RowModel`."""
        try:
            # A copy, because the function may write to its argument.
            output = self._function(rows.copy())
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
            raise RowsRefusedError(type(error).__name__) from None
        return self._rule.codes(output, len(rows))

    def close(self) -> None:
        """See `RowModel`."""


def as_function(model: Callable[..., Any]) -> Callable[[Features], Any]:
    """The model as a function of arrays; torch modules are wrapped.

    Raises:
        AuditInputError: The module is in training mode.
    """
    # If torch has not been imported, the model cannot be one of its modules.
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return model
    return _module_function(model)


def bundle_function(bundle: Bundle) -> Callable[[Features], NDArray[Any]]:
    """The classifier of a bundle, with the output that its manifest states; imports torch.

    Raises:
        ClassifierError: The classifier does not match the manifest.
    """
    import torch

    module = bundle.classifier().module

    def scores(rows: Features) -> NDArray[Any]:
        with torch.inference_mode():
            return np.asarray(module(torch.from_numpy(rows)).numpy())

    return scores


def _module_function(module: nn.Module) -> Callable[[Features], NDArray[Any]]:
    """A torch module, called on the device and in the precision of its parameters."""
    import torch
    from torch.fx import GraphModule

    # Exported modules report training mode whatever they compute.
    if module.training and not isinstance(module, GraphModule):
        raise AuditInputError("the module is in training mode; call .eval() first")

    def scores(rows: Features) -> NDArray[Any]:
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.zeros(0))
        with torch.inference_mode():
            output = module(torch.from_numpy(rows).to(like))
            if output.dtype == torch.bfloat16:
                # NumPy has no bfloat16.
                output = output.float()
            return np.asarray(output.cpu().numpy())

    return scores
