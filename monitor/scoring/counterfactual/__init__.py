"""Transport maps: what a person's features would be in another group.

For each ordered pair of groups a map carries one group's distribution onto the other's, feature by
feature, so that a person keeps her rank: ordered features (numeric, integer, binary) by their
quantiles, one-hot groups by the coupling of categories that moves the least mass. A feature whose
distribution does not differ between the two groups stays as it is.

Where a value holds more than a point's mass (integers, categories, a peak at zero) the map is a
kernel, not a function, from which draws are taken by a hash of the row: the same row always gets
the same answer, alone or in any batch.
"""

from monitor.scoring.counterfactual.fitting import FeatureDifferences, fit_transport_maps
from monitor.scoring.counterfactual.transport import (
    LayerWeight,
    TransportMaps,
    row_uniforms,
    shifted_uniforms,
)

__all__ = [
    "FeatureDifferences",
    "LayerWeight",
    "TransportMaps",
    "fit_transport_maps",
    "row_uniforms",
    "shifted_uniforms",
]
