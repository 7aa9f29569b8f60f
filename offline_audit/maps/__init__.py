"""Transport maps: one group's people as members of another, by several methods, one interface.

joint_quantile (the default) ─ quantile ─ gaussian ─ sliced ─ entropic ─ exact ─ wgan
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from offline_audit.errors import AuditInputError
from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.costs import COSTS, SQUARED_L2, Cost, cost_of
from offline_audit.maps.transport_map import MapMethod, TransportMap

__all__ = ["MAPS", "Columns", "Cost", "MapMethod", "TransportMap", "Variable", "map_method"]

# Those that any cost can be given to; the others are the maps of squared L2.
_BY_COST = ("entropic", "exact", "wgan")
MAPS = ("joint_quantile", "quantile", "gaussian", "sliced", *_BY_COST)


def map_method(
    method: str | MapMethod = "joint_quantile", cost: str | Cost | Callable[..., Any] = SQUARED_L2
) -> MapMethod:
    """A method by its name.

    Args:
        method: One of `MAPS`, or a method with options of its own, which is returned as it is, and
            knows its cost.
        cost: For entropic, exact and wgan: `squared_l2`, `l2`, `squared_l1`, or a function of
            scaled features `[n, d]` and `[m, d]` to costs `[n, m]`.

    Raises:
        AuditInputError: There is no such method, or it does not take the cost.
    """
    if not isinstance(method, str):
        if not hasattr(method, "fit"):
            raise AuditInputError(f"map: a name or a method is needed, not {type(method).__name__}")
        if cost_of(cost) not in (SQUARED_L2, method.cost):
            raise AuditInputError(
                f"cost: the method that was given has a cost of its own, {method.cost.name}"
            )
        return method
    if method not in MAPS:
        raise AuditInputError(f"map: {method!r} is none of {', '.join(MAPS)}")
    wanted = cost_of(cost)
    if method in _BY_COST:
        return _method(method)(cost=wanted)
    if wanted is not COSTS["squared_l2"]:
        raise AuditInputError(
            f"cost: {method} is the map of squared_l2; for {wanted.name} take one of "
            f"{', '.join(_BY_COST)}"
        )
    return _method(method)()


def _method(name: str) -> Callable[..., MapMethod]:
    """Loaded when it is asked for: POT and torch take a while."""
    module = import_module(f"offline_audit.maps.{name}")
    words = "".join(word.capitalize() for word in name.split("_"))
    method: Callable[..., MapMethod] = getattr(module, f"{words}Method")
    return method
