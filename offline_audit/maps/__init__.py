"""Transport maps: one group's people as members of another, by several methods, one interface.

joint_quantile (the default) ─ quantile ─ gaussian ─ sliced ─ entropic ─ exact ─ wgan
"""
