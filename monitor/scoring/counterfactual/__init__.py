"""Transport maps: what a person's features would be in another group.

For each ordered pair of groups a map transports one group's distribution onto the other's, one
feature at a time. Ordered features (numeric, integer, binary) keep their rank, by quantile
functions. One-hot groups follow the coupling of categories that moves the least mass. A feature
whose distribution does not differ between the two groups does not change.

Where several people share a value (integers, categories, a peak at zero) the map is stochastic.
Draws use uniform numbers from a hash of the row, so that the same row always gets the same result,
alone or in any batch.

fitting ─► transport ─► lookup
"""

from monitor.scoring.counterfactual.draws import row_uniforms, shifted_uniforms
from monitor.scoring.counterfactual.fitting import FeatureDifferences, fit_transport_maps
from monitor.scoring.counterfactual.transport import LayerWeight, TransportMaps

__all__ = [
    "FeatureDifferences",
    "LayerWeight",
    "TransportMaps",
    "fit_transport_maps",
    "row_uniforms",
    "shifted_uniforms",
]
