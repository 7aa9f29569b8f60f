"""Two groups to fit maps between: correlated Gaussians, one dependent feature, all kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.maps.transport_map import Features


class Groups(NamedTuple):
    """Rows to fit a map to, and unseen rows of both groups."""

    source: Features
    target: Features
    unseen: Features
    unseen_target: Features
    columns: Columns


def gaussians(n: int, seed: int = 0, unseen: int = 4_000) -> Groups:
    """Gaussians with different means, variances and correlations, on different scales."""
    rng = np.random.default_rng(seed)
    source_covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, 0.3], [0.0, 0.3, 1.0]])
    target_covariance = np.array([[2.0, -0.8, 0.2], [-0.8, 1.0, 0.0], [0.2, 0.0, 0.5]])
    scale = np.array([1.0, 100.0, 0.01])

    def draw_rows(size, mean, covariance):
        return (scale * rng.multivariate_normal(mean, covariance, size)).astype(np.float32)

    return Groups(
        source=draw_rows(n, [0, 0, 0], source_covariance),
        target=draw_rows(n, [1, -2, 0.5], target_covariance),
        unseen=draw_rows(unseen, [0, 0, 0], source_covariance),
        unseen_target=draw_rows(unseen, [1, -2, 0.5], target_covariance),
        columns=Columns.numeric(["a", "b", "c"]),
    )


TWO = Columns.numeric(["x0", "x1"])
# Correlation of x0 and x1 in each group.
RHO = (0.75, -0.2)


def correlated(n: int, seed: int = 0) -> tuple[Features, Features, Features]:
    """Both groups, and the true counterfactuals of the first group in the second.

    x0 is noise. x1 depends on it, differently in each group, and is shifted in the second.
    """

    def features(noise, group) -> Features:
        x0, rest = noise.T
        rho = RHO[group]
        x1 = rho * x0 + np.sqrt(1 - rho**2) * rest + 0.8 * group
        return np.column_stack([x0, x1]).astype(np.float32)

    source, target = np.random.default_rng(seed).normal(size=(2, n, 2))
    return features(source, 0), features(target, 1), features(source, 1)


MIXED = Columns(
    features=(
        Feature(name="income", kind="numeric"),
        Feature(name="children", kind="integer"),
        Feature(name="owns", kind="binary"),
        Feature(name="town=a", kind="onehot"),
        Feature(name="town=b", kind="onehot"),
        Feature(name="town=c", kind="onehot"),
        Feature(name="job=x", kind="onehot"),
        Feature(name="job=y", kind="onehot"),
    ),
    one_hot_groups=(
        OneHotGroup(name="town", features=("town=a", "town=b", "town=c")),
        OneHotGroup(name="job", features=("job=x", "job=y"), dropped="z"),
    ),
)


def mixed_people(n: int, group: int, rng: np.random.Generator) -> Features:
    """A skewed number, a count, a binary and two categories, one with a dropped value."""
    income = rng.gamma(2.0 + group, 1.0, n)
    children = rng.poisson(0.5 + 0.3 * income * group)
    owns = rng.random(n) < 0.2 + 0.4 * group * (income > 2)
    town = rng.choice(3, n, p=[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]][group])
    job = rng.choice(3, n, p=[[0.2, 0.2, 0.6], [0.5, 0.3, 0.2]][group])
    one_hot = [town == 0, town == 1, town == 2, job == 0, job == 1]
    return np.column_stack([income, children, owns, *one_hot]).astype(np.float32)


def mixed(n: int, seed: int = 0, unseen: int = 4_000) -> Groups:
    """Both groups of `mixed_people`."""
    rng = np.random.default_rng(seed)
    return Groups(
        source=mixed_people(n, 0, rng),
        target=mixed_people(n, 1, rng),
        unseen=mixed_people(unseen, 0, rng),
        unseen_target=mixed_people(unseen, 1, rng),
        columns=MIXED,
    )
