"""Steps of raw numbers can be undone, so that limits are shown in the units that people know."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.bundle.encoding import apply_steps, number_before
from monitor.bundle.inputs import Step

OPERAND = st.floats(0.01, 100)
STEP = st.one_of(
    st.just(Step(function="log1p")),
    st.builds(lambda x: Step(add=x), OPERAND),
    st.builds(lambda x: Step(subtract=x), st.floats(-100, -0.01)),
    st.builds(lambda x: Step(multiply=x), OPERAND),
    st.builds(lambda x: Step(divide=x), OPERAND),
)


@given(st.floats(0, 1_000), st.lists(STEP, max_size=4))
def test_steps_are_undone(value, steps):
    encoded = float(apply_steps(np.array([value]), steps)[0])
    before = number_before(encoded, steps)
    # A logarithm leaves few digits of a small difference between large numbers.
    assert before == pytest.approx(value, rel=1e-5, abs=1e-5)


def test_steps_that_reverse_the_order_are_not_undone():
    assert number_before(1.0, [Step(subtract=2.0), Step(multiply=-1.0)]) is None


def test_numbers_within_a_clip_do_not_change():
    steps = [Step(clip=(0.0, 5.0)), Step(function="log"), Step(divide=2.0)]
    assert number_before(0.5, steps) == pytest.approx(np.e)
    assert number_before(1e9, [Step(function="log")]) == pytest.approx(np.exp(709.0))
