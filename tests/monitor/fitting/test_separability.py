"""A classifier tells transported rows from real ones if, and only if, the maps miss dependence."""

from __future__ import annotations

import numpy as np
import pytest

from monitor import Feature, ProtectedAttribute
from monitor.fitting.separability import separability
from monitor.scoring.counterfactual import fit_transport_maps

GROUP = ProtectedAttribute(name="group", groups=("one", "other"))
FEATURES = tuple(Feature(name=name, kind="numeric") for name in ("x1", "x2", "x3"))


def draw(n, seed, *, interaction):
    """x3 depends on x1 · x2, with a sign that depends on the group or not; x1 is shifted."""
    rng = np.random.default_rng(seed)
    groups = (rng.random(n) < 0.4).astype(np.int8)
    features = rng.normal(size=(n, 3))
    sign = np.where(groups == 1, -1, 1) if interaction else 1
    features[:, 2] = 0.8 * sign * features[:, 0] * features[:, 1] + 0.6 * features[:, 2]
    features[:, 1] += groups if not interaction else 0
    return features.astype(np.float32), groups


@pytest.mark.parametrize(
    ("interaction", "repair", "seen"),
    [(True, False, True), (True, True, False), (False, True, False)],
)
def test_an_interaction_that_the_maps_do_not_repair_is_seen(interaction, repair, seen):
    """H0: transported rows have the distribution of real ones; AUC = 0.5."""
    training, held_out = (draw(3_000, seed, interaction=interaction) for seed in (1, 2))
    features, groups = training
    maps = fit_transport_maps(features, groups, FEATURES, (), 2, repair=repair)
    results = separability(maps, GROUP, training, held_out, seed=0)
    assert [(r.source, r.target) for r in results] == [("one", "other"), ("other", "one")]
    for result in results:
        if seen:
            assert result.auc > 0.7
        elif interaction:
            # The repair follows the interaction up to its grid.
            assert result.auc < 0.6
        else:
            assert abs(result.auc - 0.5) < 5 * result.error


def test_pairs_with_few_held_out_rows_are_left_out():
    training, held_out = draw(400, 3, interaction=False), draw(100, 4, interaction=False)
    features, groups = training
    maps = fit_transport_maps(features, groups, FEATURES, (), 2)
    assert separability(maps, GROUP, training, held_out, seed=0) == ()
