"""A synthetic lending market with known counterfactuals, for demos, tests and benchmarks."""

from monitor.world.population import Population, World

__all__ = ["Population", "World"]
