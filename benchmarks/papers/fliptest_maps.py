"""Maps of the FlipTest experiments, with the paper's GAN."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.claims import Scale
from offline_audit.maps.entropic import EntropicMethod
from offline_audit.maps.exact import ExactMethod
from offline_audit.maps.gaussian import GaussianMethod
from offline_audit.maps.quantile import JointQuantileMethod, QuantileMethod
from offline_audit.maps.sliced import SlicedMethod
from offline_audit.maps.transport_map import COSTS, MapMethod
from offline_audit.maps.wgan import WganMethod

__all__ = ["EXACT_L1", "WGAN", "gan", "map_methods"]

EXACT_L1, WGAN = "exact, squared L1", "the paper's GAN"
# Generator steps: as in the paper, and few for smaller scales.
_STEPS, _QUICK_STEPS, _SMOKE_STEPS = 20_000, 300, 2


def map_methods(rows: int = 2_000) -> Mapping[str, MapMethod]:
    """All maps but the GAN; maps that need all pairs use a sample of this many rows per group."""
    return {
        "quantile": QuantileMethod(),
        "joint quantile": JointQuantileMethod(),
        "Gaussian": GaussianMethod(),
        "sliced": SlicedMethod(),
        "entropic": EntropicMethod(rows=rows),
        "exact, squared L2": ExactMethod(rows=rows),
        EXACT_L1: ExactMethod(rows=rows, cost=COSTS["squared_l1"]),
    }


def gan(*, scale: Scale) -> WganMethod:
    """As appendix C of the paper has it, with λ = .0001; with fewer steps at smaller scales."""
    steps = scale.pick(full=_STEPS, quick=_QUICK_STEPS, smoke=_SMOKE_STEPS)
    return WganMethod(cost=COSTS["squared_l1"], steps=steps)
