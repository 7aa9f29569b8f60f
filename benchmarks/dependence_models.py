"""Structural models that are hard for maps of single features, and others that stress them.

INTERACTION       the effect of the group on two features depends on a third
CORRELATION_ONLY  all features have the same distribution in both groups; correlations differ
THREE_GROUPS      shares 80%, 15% and 5%; mixed kinds of features
ONE_SIDED         proxies that vary in one group only: the others all have the value zero
HEAVY_TAILS       skewed amounts of money with very long tails, shifted by the group
CATEGORY_RELATION a category and a count whose relation depends on the group
EXCLUSIVE_OR      a number follows the exclusive or of two flags, in the other direction in one
                  group; no pair of features differs
MEDIATOR_CHAIN    the group shifts the first feature of a chain, which ends in a square
FOLDED            a number rises with the distance of another from its median in one group, and
                  falls in the other; no correlation differs
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.structural_models import StructuralModel, choice, columns_of
from monitor import ProtectedAttribute
from monitor.world.structure import Noise

__all__ = [
    "CATEGORY_RELATION",
    "CORRELATION_ONLY",
    "EXCLUSIVE_OR",
    "FOLDED",
    "HEAVY_TAILS",
    "INTERACTION",
    "MEDIATOR_CHAIN",
    "ONE_SIDED",
    "THREE_GROUPS",
]

Float = NDArray[np.float32]


def _interaction(noise: Noise, group: Float) -> Float:
    """Part-time work and tenure: the group matters for those with children, little for others."""
    children = np.minimum(np.floor(np.exp(0.7 * noise.normal("children"))), 5)
    age = 40 + 9 * noise.normal("age")
    older = (age - 40) / 9
    columns = np.empty((6, noise.rows), np.float32)
    columns[0] = children
    columns[1] = age
    columns[2] = 38 + 4 * noise.normal("hours") - 5.5 * group * (children - 1)
    columns[3] = 2 + 0.4 * older + 0.5 * noise.normal("tenure") - 1.1 * group * older
    columns[4] = 10 + 1.5 * noise.normal("income")
    columns[5] = noise.normal("licence") > 0.3
    return columns


def _interaction_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        0.10 * (columns[2] - 36)
        + 0.9 * (columns[3] - 2)
        + 0.6 * (columns[4] - 10)
        + 0.3 * columns[5]
        + 0.4 * noise.normal("talent")
    )
    return logit


def _correlation_only(noise: Noise, group: Float) -> Float:
    correlation = np.where(group == 1, -0.7, 0.7)
    first, other = noise.normal("savings"), noise.normal("debt")
    columns = np.empty((4, noise.rows), np.float32)
    columns[0] = first
    columns[1] = correlation * first + np.sqrt(1 - correlation**2) * other
    columns[2] = noise.normal("history")
    columns[3] = np.floor(np.exp(1 + 0.5 * noise.normal("accounts")))
    return columns


def _correlation_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        1.4 * columns[0] * columns[1]
        + 0.8 * columns[2]
        + 0.2 * (columns[3] - 3)
        + 0.3 * noise.normal("talent")
    )
    return logit


def _three_groups(noise: Noise, group: Float) -> Float:
    distance = np.array([0.0, 0.6, 1.2], np.float32)[group.astype(int)]
    columns = np.empty((10, noise.rows), np.float32)
    columns[0] = np.exp(3 + 0.5 * noise.normal("income"))
    columns[1] = np.floor(np.exp(1.2 + 0.6 * noise.normal("moves") + 0.5 * distance))
    columns[2] = noise.normal("landline") > 0.2 + 0.8 * distance
    columns[3] = 60 + 12 * noise.normal("score") - 10 * distance
    columns[4] = 8 + 3 * noise.normal("years")
    columns[5] = np.floor(np.exp(0.5 * noise.normal("late")))
    pull = np.array([[0.0], [0.9], [-0.7], [0.3]]) * distance
    columns[6:10] = choice(pull, noise.gumbel("district", 4))
    return columns


def _three_groups_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        1.2 * (np.log(columns[0]) - 3)
        + 0.25 * (columns[4] - 8)
        - 0.5 * (columns[5] - 1)
        + 0.5 * noise.normal("talent")
    )
    return logit


def _one_sided(noise: Noise, group: Float) -> Float:
    """Career gaps and benefits exist in one group only."""
    columns = np.empty((6, noise.rows), np.float32)
    gap = np.exp(2.2 + 0.8 * noise.normal("gap")) * (noise.uniform("any_gap") < 0.75)
    columns[0] = np.floor(gap) * group
    columns[1] = np.exp(4 + 0.7 * noise.normal("benefit")) * group * (noise.uniform("any") < 0.6)
    columns[2] = np.exp(3 + 0.4 * noise.normal("income"))
    columns[3] = 50 + 10 * noise.normal("score")
    columns[4] = noise.normal("owner") > 0
    columns[5] = np.floor(10 * noise.uniform("years"))
    return columns


def _one_sided_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        1.5 * (np.log(columns[2]) - 3)
        + 0.06 * (columns[3] - 50)
        + 0.5 * columns[4]
        + 0.4 * noise.normal("talent")
    )
    return logit


def _heavy_tails(noise: Noise, group: Float) -> Float:
    columns = np.empty((5, noise.rows), np.float32)
    # Student's t with two degrees of freedom: the variance is infinite.
    tail = noise.normal("wealth") / np.sqrt(-np.log(noise.uniform("wealth_scale")))
    columns[0] = 20 + 8 * tail - 9 * group
    columns[1] = np.exp(8 + 1.6 * noise.normal("turnover") - 1.1 * group)
    columns[2] = np.floor(np.exp(1 + 1.1 * noise.normal("clients")))
    columns[3] = noise.normal("rating")
    columns[4] = noise.normal("insured") > -0.5
    return columns


def _heavy_tails_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        0.8 * columns[3]
        + 0.5 * np.arctan((columns[0] - 16) / 8)
        + 0.35 * (np.log(columns[1]) - 7.5)
        + 0.4 * noise.normal("talent")
    )
    return logit


def _category_relation(noise: Noise, group: Float) -> Float:
    """The trade determines weekly hours in one group, and hardly in the other."""
    trade = noise.gumbel("trade", 3).argmax(0)
    typical = np.array([-1.0, 0.0, 1.0])[trade]
    columns = np.empty((7, noise.rows), np.float32)
    columns[0:3] = np.arange(3)[:, None] == trade
    strength = np.where(group == 1, -0.9, 0.9)
    spread = 0.6 * noise.normal("hours")
    columns[3] = np.round(36 + 6 * (strength * typical + spread))
    columns[4] = noise.normal("score")
    columns[5] = np.exp(2 + 0.5 * noise.normal("income") - 0.3 * group)
    columns[6] = noise.normal("member") > 0.4
    return columns


def _category_relation_merit(noise: Noise, columns: Float) -> Float:
    technical = columns[2] - columns[0]
    logit: Float = (
        0.18 * (columns[3] - 36) * technical
        + 0.7 * columns[4]
        + 0.9 * (np.log(columns[5]) - 2)
        + 0.3 * noise.normal("talent")
    )
    return logit


def _exclusive_or(noise: Noise, group: Float) -> Float:
    """Ratings of shared accounts: one adult of two earns more in one group, less in the other."""
    first, second = noise.normal("partner") > 0, noise.normal("children") > 0
    columns = np.empty((4, noise.rows), np.float32)
    columns[0], columns[1] = first, second
    columns[2] = (1 - 2 * group) * (2.0 * (first ^ second) - 1) + 0.6 * noise.normal("rating")
    columns[3] = noise.normal("history")
    return columns


def _exclusive_or_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = 1.6 * columns[2] + 0.6 * columns[3] + 0.3 * noise.normal("talent")
    return logit


def _mediator_chain(noise: Noise, group: Float) -> Float:
    columns = np.empty((4, noise.rows), np.float32)
    columns[0] = noise.normal("distance") + 0.9 * group
    columns[1] = 0.8 * columns[0] + 0.6 * noise.normal("hours")
    columns[2] = 0.5 * columns[1] ** 2 + 0.5 * noise.normal("strain")
    columns[3] = noise.normal("score")
    return columns


def _mediator_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = (
        1.2 * columns[2] + 0.5 * columns[1] + 0.8 * columns[3] - 1 + 0.3 * noise.normal("talent")
    )
    return logit


def _folded(noise: Noise, group: Float) -> Float:
    fold = np.abs(2 * noise.uniform("age") - 1)
    columns = np.empty((3, noise.rows), np.float32)
    columns[0] = 20 + 50 * noise.uniform("age")
    columns[1] = np.where(group == 1, 1 - fold, fold) + 0.35 * noise.uniform("claims")
    columns[2] = noise.normal("score")
    return columns


def _folded_merit(noise: Noise, columns: Float) -> Float:
    logit: Float = 6 * (columns[1] - 0.65) + 0.8 * columns[2] + 0.3 * noise.normal("talent")
    return logit


_BINARY = ProtectedAttribute(name="group", groups=("one", "other"))


def _model(
    columns: tuple[object, object], equations: object, merit: object, **more: object
) -> StructuralModel:
    features, one_hot_groups = columns
    fixed = {"attribute": _BINARY, "shares": (0.4,), "label_bias": 0.0}
    return StructuralModel(
        features=features,  # type: ignore[arg-type]
        one_hot_groups=one_hot_groups,  # type: ignore[arg-type]
        equations=equations,  # type: ignore[arg-type]
        merit=merit,  # type: ignore[arg-type]
        **(fixed | more),  # type: ignore[arg-type]
    )


INTERACTION = _model(
    columns_of(
        children="integer",
        age="numeric",
        hours="numeric",
        tenure="numeric",
        income="numeric",
        licence="binary",
    ),
    _interaction,
    _interaction_merit,
)
CORRELATION_ONLY = _model(
    columns_of(savings="numeric", debt="numeric", history="numeric", accounts="integer"),
    _correlation_only,
    _correlation_merit,
)
THREE_GROUPS = _model(
    columns_of(
        income="numeric",
        moves="integer",
        landline="binary",
        score="numeric",
        years="numeric",
        late="integer",
        district=("north", "east", "south", "west"),
    ),
    _three_groups,
    _three_groups_merit,
    attribute=ProtectedAttribute(name="origin", groups=("first", "second", "third")),
    shares=(0.15, 0.05),
    label_bias=0.5,
)
ONE_SIDED = _model(
    columns_of(
        gap="integer",
        benefit="numeric",
        income="numeric",
        score="numeric",
        owner="binary",
        years="integer",
    ),
    _one_sided,
    _one_sided_merit,
    label_bias=0.5,
)
HEAVY_TAILS = _model(
    columns_of(
        wealth="numeric", turnover="numeric", clients="integer", rating="numeric", insured="binary"
    ),
    _heavy_tails,
    _heavy_tails_merit,
)
CATEGORY_RELATION = _model(
    columns_of(
        trade=("care", "trade", "technical"),
        hours="integer",
        score="numeric",
        income="numeric",
        member="binary",
    ),
    _category_relation,
    _category_relation_merit,
)
EXCLUSIVE_OR = _model(
    columns_of(partner="binary", children="binary", rating="numeric", history="numeric"),
    _exclusive_or,
    _exclusive_or_merit,
)
MEDIATOR_CHAIN = _model(
    columns_of(distance="numeric", hours="numeric", strain="numeric", score="numeric"),
    _mediator_chain,
    _mediator_merit,
)
FOLDED = _model(
    columns_of(age="numeric", claims="numeric", score="numeric"), _folded, _folded_merit
)
