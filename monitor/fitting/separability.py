"""Two-sample tests of transported rows against real ones, as supporting evidence on the maps.

A classifier is trained to tell rows of group s, transported to group t, from real rows of t. If
the maps are right, its AUC on held-out rows is 0.5. It sees dependence among any number of
features. A larger AUC does not prove that shares of flips are wrong: the classifier uses every
difference, and most do not change decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from monitor.bundle.manifest import ProtectedAttribute
from monitor.scoring.status_model import train_status_model

if TYPE_CHECKING:
    from monitor.scoring.counterfactual import TransportMaps

__all__ = ["Separability", "separability"]

# Rows of training and of evaluation, real and transported ones together; the cost grows with them.
_MOST_ROWS = 6_000
# Fewest held-out rows of either kind.
_LEAST_ROWS = 50

_Features = NDArray[np.float32]
_Pair = tuple[int, int]
# Real rows and rows transported to the group, stacked, and for every pair whether a row is
# transported, real or does not belong to the pair: 1, 0, −1.
_Samples = tuple[_Features, dict[str, NDArray[np.int8]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Separability:
    """How well a classifier tells rows of one group, transported to another, from real rows.

    Attributes:
        source: Group of the transported rows.
        target: Group to which they are transported.
        auc: Area under the ROC curve on held-out rows; 0.5 is chance.
        error: Its standard error if the rows have the same distribution.
    """

    source: str
    target: str
    auc: float
    error: float


def separability(
    maps: TransportMaps,
    attribute: ProtectedAttribute,
    training: tuple[_Features, NDArray[np.int8]],
    held_out: tuple[_Features, NDArray[np.int8]],
    *,
    seed: int,
) -> tuple[Separability, ...]:
    """The test for every ordered pair of groups with enough held-out rows, by one shared network.

    Args:
        maps: Maps, fitted to the training rows.
        attribute: Protected attribute.
        training: Features `[n, d]` and groups `[n]` to which the classifier is fitted.
        held_out: Other features and groups, for the AUC.
        seed: Seed of the samples and of the training.
    """
    names = attribute.groups
    pairs = {f"{s} {t}": (s, t) for s in range(len(names)) for t in range(len(names)) if s != t}
    rng = np.random.default_rng([seed, len(training[0])])
    features, labels = _samples(maps, pairs, training, rng)
    heads = [ProtectedAttribute(name=pair, groups=("real", "transported")) for pair in pairs]
    model = train_status_model(features, labels, heads, seed=seed)
    features, labels = _samples(maps, pairs, held_out, rng)
    with torch.no_grad():
        logits = model(torch.from_numpy(features)).numpy()
    results = []
    for head, (pair, (source, target)) in enumerate(pairs.items()):
        score = logits[:, 2 * head + 1] - logits[:, 2 * head]
        real, transported = (score[labels[pair] == kind] for kind in (0, 1))
        sizes = len(real), len(transported)
        if min(sizes) >= _LEAST_ROWS:
            results.append(
                Separability(
                    source=names[source],
                    target=names[target],
                    auc=float(stats.mannwhitneyu(transported, real).statistic) / math.prod(sizes),
                    error=math.sqrt((sum(sizes) + 1) / (12 * math.prod(sizes))),
                )
            )
    return tuple(results)


def _samples(
    maps: TransportMaps,
    pairs: Mapping[str, _Pair],
    rows: tuple[_Features, NDArray[np.int8]],
    rng: np.random.Generator,
) -> _Samples:
    """Real rows of every group and transported rows of every pair, in random order."""
    features, groups = rows
    most = _MOST_ROWS // maps.groups**2
    members = [
        features[rng.permutation(np.flatnonzero(groups == group))[:most]]
        for group in range(maps.groups)
    ]
    parts = [*members]
    owners: list[tuple[int, ...]] = [(group,) for group in range(maps.groups)]
    for source, target in pairs.values():
        parts.append(_transported(maps, members[source], source, target, rng))
        owners.append((source, target))
    sizes = [len(part) for part in parts]
    labels = {}
    for pair, (source, target) in pairs.items():
        kinds = {(target,): 0, (source, target): 1}
        labels[pair] = np.repeat([kinds.get(owner, -1) for owner in owners], sizes).astype(np.int8)
    return np.concatenate(parts), labels


def _transported(
    maps: TransportMaps, rows: _Features, source: int, target: int, rng: np.random.Generator
) -> _Features:
    """Rows as members of the target group; each causal order transports a part of them."""
    moved = rows.copy()
    for order in range(maps.orders):
        part = torch.from_numpy(rows[order :: maps.orders])
        if not len(part):
            continue
        # Random numbers instead of a hash of the row: duplicates must spread, too.
        uniforms = torch.from_numpy(rng.random((len(part), maps.n_uniforms), np.float32))
        moved[order :: maps.orders] = maps.apply(part, source, target, uniforms, order).numpy()
    return moved
