"""Structural models whose groups differ in dependence, to evaluate maps where the truth is known.

CORRELATED  two features have correlation 0.75 in one group and -0.2 in the other
MULTIMODAL  two clusters; the group shifts a different feature in each
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.structural_models import StructuralModel
from monitor import Feature, ProtectedAttribute
from monitor.world.structure import Noise

__all__ = ["CORRELATED", "MULTIMODAL"]

Float = NDArray[np.float32]


def _correlated(noise: Noise, group: Float) -> Float:
    correlation = np.where(group == 1, -0.2, 0.75)
    first = noise.normal("first")
    second = (
        correlation * first + np.sqrt(1 - correlation**2) * noise.normal("second") + 0.8 * group
    )
    third = 0.5 * second + 0.8 * noise.normal("third")
    return np.stack([first, second, third, noise.normal("fourth")]).astype(np.float32)


def _multimodal(noise: Noise, group: Float) -> Float:
    above = noise.uniform("cluster") < 0.5
    centre = np.where(above, 2.0, -2.0)
    first = centre + 0.6 * noise.normal("first") + 1.2 * group * above
    second = -0.8 * centre + 0.6 * noise.normal("second") - 1.2 * group * ~above
    third = 0.5 * centre + noise.normal("third")
    return np.stack([first, second, third, noise.normal("fourth")]).astype(np.float32)


def _merit(noise: Noise, columns: Float) -> Float:
    logit: Float = 0.4 * columns[3] + 0.5 * columns[0] + 0.3 * noise.normal("talent")
    return logit


def _society(equations: object) -> StructuralModel:
    return StructuralModel(
        features=tuple(Feature(name=f"x{index}", kind="numeric") for index in range(4)),
        one_hot_groups=(),
        attribute=ProtectedAttribute(name="group", groups=("one", "other")),
        shares=(0.5,),
        equations=equations,  # type: ignore[arg-type]
        merit=_merit,
        label_bias=0.5,
    )


CORRELATED = _society(_correlated)
MULTIMODAL = _society(_multimodal)
