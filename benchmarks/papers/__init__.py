"""Reproductions of the papers' own evaluations."""
