"""A synthetic lending market whose truth is known, to try evenhand on and to test it against."""

from monitor.world.population import Population, World

__all__ = ["Population", "World"]
