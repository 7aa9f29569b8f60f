"""Transport maps: what a person's features would be in another group, by several methods.

joint_quantile (the default) ─ quantile ─ gaussian ─ sliced ─ entropic ─ exact ─ wgan
"""

from offline_audit.maps.columns import Columns, Variable
from offline_audit.maps.transport_map import MAPS, Cost, MapMethod, TransportMap, map_method

__all__ = ["MAPS", "Columns", "Cost", "MapMethod", "TransportMap", "Variable", "map_method"]
