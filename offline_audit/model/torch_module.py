"""Torch modules as functions from rows to arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.fx import GraphModule

from monitor.bundle import Bundle
from offline_audit.errors import AuditInputError
from offline_audit.model.outputs import Features

__all__ = ["bundle_function", "module_function"]

Scores = Callable[[Features], NDArray[Any]]


def bundle_function(bundle: Bundle) -> Scores:
    """A bundle's classifier, with its own kind of output.

    Raises:
        ClassifierError: It does not do what the manifest says.
    """
    module = bundle.classifier().module

    def scores(rows: Features) -> NDArray[Any]:
        with torch.inference_mode():
            output: Tensor = module(torch.from_numpy(rows))
            return np.asarray(output.numpy())

    return scores


def module_function(module: nn.Module) -> Scores:
    """The caller's own module, where and in what precision its parameters are.

    Raises:
        AuditInputError: It is in training mode.
    """
    # Exported modules say that they train, whatever they do.
    if module.training and not isinstance(module, GraphModule):
        raise AuditInputError("the module is in training mode; call .eval() first")

    def scores(rows: Features) -> NDArray[Any]:
        given = torch.from_numpy(rows)
        like = next((p for p in module.parameters() if p.is_floating_point()), given)
        with torch.inference_mode():
            output: Tensor = module(given.to(like))
            if output.dtype == torch.bfloat16:
                # numpy has no such numbers.
                output = output.float()
            return np.asarray(output.cpu().numpy())

    return scores
