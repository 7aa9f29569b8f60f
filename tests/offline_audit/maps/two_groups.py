"""Two groups to transport people between: correlated Gaussians, and features of all kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from monitor import Feature, OneHotGroup
from offline_audit import Columns
from offline_audit.maps.transport_map import Features, TransportMap


class Groups(NamedTuple):
    """People to fit a map on, rows to transport with it, and rows of the target."""

    source: Features
    target: Features
    unseen: Features
    there: Features
    columns: Columns


def gaussians(n: int, seed: int = 0, unseen: int = 4_000) -> Groups:
    """Other means, spreads and correlations; on other scales, too."""
    rng = np.random.default_rng(seed)
    here = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, 0.3], [0.0, 0.3, 1.0]])
    away = np.array([[2.0, -0.8, 0.2], [-0.8, 1.0, 0.0], [0.2, 0.0, 0.5]])
    scale = np.array([1.0, 100.0, 0.01])

    def drawn(size, mean, spread):
        return (scale * rng.multivariate_normal(mean, spread, size)).astype(np.float32)

    return Groups(
        source=drawn(n, [0, 0, 0], here),
        target=drawn(n, [1, -2, 0.5], away),
        unseen=drawn(unseen, [0, 0, 0], here),
        there=drawn(unseen, [1, -2, 0.5], away),
        columns=Columns.numeric(["a", "b", "c"]),
    )


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
    """Skewed, counted, yes or no, and two categories, of which one is dropped."""
    income = rng.gamma(2.0 + group, 1.0, n)
    children = rng.poisson(0.5 + 0.3 * income * group)
    owns = rng.random(n) < 0.2 + 0.4 * group * (income > 2)
    town = rng.choice(3, n, p=[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]][group])
    job = rng.choice(3, n, p=[[0.2, 0.2, 0.6], [0.5, 0.3, 0.2]][group])
    hot = [town == 0, town == 1, town == 2, job == 0, job == 1]
    return np.column_stack([income, children, owns, *hot]).astype(np.float32)


def mixed(n: int, seed: int = 0, unseen: int = 4_000) -> Groups:
    """Both groups of `mixed_people`."""
    rng = np.random.default_rng(seed)
    return Groups(
        source=mixed_people(n, 0, rng),
        target=mixed_people(n, 1, rng),
        unseen=mixed_people(unseen, 0, rng),
        there=mixed_people(unseen, 1, rng),
        columns=MIXED,
    )


def assert_kinds_are_kept(transported: Features, groups: Groups) -> None:
    """Whole numbers within the target's, 0 or 1, and one category at a time."""
    assert np.isfinite(transported).all()
    children, owns, town, job = (transported[..., at] for at in (1, 2, slice(3, 6), slice(6, 8)))
    assert np.array_equal(children, np.round(children))
    assert children.min() >= groups.target[:, 1].min()
    assert children.max() <= groups.target[:, 1].max()
    assert set(np.unique(owns)) <= {0, 1}
    assert set(np.unique(town)) <= {0, 1}
    assert (town.sum(-1) == 1).all()
    assert set(np.unique(job)) <= {0, 1}
    assert (job.sum(-1) <= 1).all()


def assert_no_batch_matters(fitted: TransportMap, people: Features) -> None:
    """The same row, alone, in a batch, in another order and later again."""
    people = people[:200]
    kept = people.copy()
    together = fitted.transport(people, 3)
    assert np.array_equal(people, kept)
    assert together.shape[1:] == people.shape
    assert together.dtype == np.float32
    order = np.random.default_rng(7).permutation(len(people))
    assert np.array_equal(fitted.transport(people[order], 3), together[:, order])
    for row in range(0, len(people), 23):
        alone = fitted.transport(people[row : row + 1], 3)
        assert np.array_equal(alone[:, 0], together[:, row])
