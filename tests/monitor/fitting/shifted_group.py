"""A population in which a group shifts one feature, so that the share of flips is known."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor import BundleSpec, ClassifierFile, Decision, Feature, Fitted, Model, ProtectedAttribute
from monitor.fitting.intervals import FlipShareInterval, flip_share_interval
from monitor.scoring.counterfactual import fit_transport_maps
from monitor.scoring.sensitivity import Sensitivity

SHIFT = 1.0
FEATURES = tuple(Feature(name=name, kind="numeric") for name in ("proxy", "other"))
SPEC = BundleSpec(
    model=Model(name="shifted", version="1"),
    classifier=ClassifierFile(output="logit"),
    features=FEATURES,
    one_hot_groups=(),
    protected_attributes=(ProtectedAttribute(name="sex", groups=("man", "woman")),),
    decision=Decision(),
    fitted=Fitted.now(seed=0, rows=0),
)
# The logit is proxy + other, each with unit variance within a group.
TRUE_SHARE = float(np.diff(stats.norm.cdf(np.array([-SHIFT, 0.0]) / np.sqrt(2)))[0])


def draw(n: int, seed: int, shift: float = SHIFT) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Features `[n, 2]` and groups `[n]`; one person in five is a woman."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(n) < 0.2).astype(np.int8)
    features = rng.normal(size=(n, 2)).astype(np.float32)
    features[:, 0] += shift * groups
    return features, groups


def fitted(features: NDArray[np.float32], groups: NDArray[np.int8]) -> Sensitivity:
    """Maps fitted to some rows, with a status model that returns equal probabilities."""
    return Sensitivity(
        logit=lambda rows: rows.sum(1),
        status=lambda rows: torch.zeros(len(rows), 2),
        maps={"sex": fit_transport_maps(features, groups, FEATURES, (), 2)},
        spec=SPEC,
        logit_spread=1.4,
    )


def interval(
    features: NDArray[np.float32], groups: NDArray[np.int8], *, n_refits: int = 20, seed: int = 0
) -> FlipShareInterval:
    """The interval of the share of flips."""
    return flip_share_interval(
        lambda rows: fitted(features[rows], groups[rows]),
        features,
        groups,
        SPEC.protected_attributes[0],
        n_refits=n_refits,
        seed=seed,
    )
