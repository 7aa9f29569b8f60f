"""No test of two rates has the best power in both directions."""

from __future__ import annotations

from benchmarks.power_frontier import Frontier, Planted


def test_with_a_small_group_no_valid_test_has_the_best_power_both_ways():
    frontier = Frontier(Planted(50, 450, 0.1, 0.25, 0.01))
    # Every ordering is valid at every common rate.
    assert max(frontier.sizes.values()) < 0.06
    assert frontier.least_loss(0.05) > 0.05
    assert frontier.least_loss(0.06) > 0.02
    # A larger size allows a smaller loss, and no ordering beats the bound.
    assert frontier.least_loss(0.05) > frontier.least_loss(0.06)
    for name, size in frontier.sizes.items():
        assert max(frontier.losses(name)) >= frontier.least_loss(size) - 1e-6


def test_groups_of_equal_size_have_no_conflict():
    frontier = Frontier(Planted(60, 60, 0.3, 0.55, 0.1))
    assert frontier.losses("+1 and +1") == (0.0, 0.0)
    assert frontier.least_loss(0.05) <= 0.0
