"""Two groups in which one feature hangs on another, in another way in each."""

from __future__ import annotations

import numpy as np

from offline_audit import Columns
from offline_audit.maps.transport_map import Features

TWO = Columns.numeric(["x0", "x1"])
RHO = (0.75, -0.2)


def made(noise, group) -> Features:
    """x0 is noise; x1 hangs on it, and is shifted in the second group."""
    x0, rest = noise.T
    rho = RHO[group]
    x1 = rho * x0 + np.sqrt(1 - rho**2) * rest + 0.8 * group
    return np.column_stack([x0, x1]).astype(np.float32)


def hanging(n, seed=0) -> tuple[Features, Features, Features]:
    """Both groups, and what the first would have been in the second."""
    here, there = np.random.default_rng(seed).normal(size=(2, n, 2))
    return made(here, 0), made(there, 1), made(here, 1)
