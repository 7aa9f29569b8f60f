"""Rules state their limits in the units that people know."""

from __future__ import annotations

import numpy as np

from monitor import Feature
from monitor.bundle.inputs import Step
from offline_audit import Columns
from offline_audit.fliptest.rules import best_rule


def test_limits_of_a_rule_are_those_of_the_raw_number():
    steps = [Step(function="log1p"), Step(subtract=3.0), Step(divide=0.5)]
    features = np.linspace(-2, 2, 4_000)[:, None]
    columns = Columns(features=(Feature(name="age", kind="numeric"),), steps={"age": tuple(steps)})
    members = features[:, 0] >= 1.0
    (condition,) = best_rule(features, members, columns, smallest=10, most=1, seed=0)
    # exp(1.0 · 0.5 + 3) − 1
    assert str(condition) == "age ≥ 32.12"
    assert condition.holds(features, columns).sum() == members.sum()
    reversed_order = [Step(multiply=-1.0)]
    columns = Columns(
        features=(Feature(name="age", kind="numeric"),), steps={"age": tuple(reversed_order)}
    )
    (condition,) = best_rule(features, members, columns, smallest=10, most=1, seed=0)
    assert str(condition) == "age (encoded) ≥ 1"
