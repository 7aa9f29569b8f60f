"""Two more structural causal models, in which true counterfactuals are known.

A person is determined by noise and a group; the counterfactual has the same noise and the other
group. In both models the features do not contain the attribute, and have every kind.

    HIRING     proxies share a latent variable that the group shifts; skewed and bimodal numbers
    INSURANCE  the group changes variances and categories, and only for some people
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from monitor import Feature, OneHotGroup, ProtectedAttribute
from monitor.world.structure import Noise

__all__ = ["HIRING", "INSURANCE", "People", "StructuralModel", "choice", "columns_of"]

Float = NDArray[np.float32]
Kind = Literal["numeric", "integer", "binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuralModel:
    """Structural equations for people of two or more groups, with the interface of `World`.

    Attributes:
        features: Encoded columns, in order.
        one_hot_groups: One-hot groups of the columns.
        attribute: Protected attribute, which is not a column.
        shares: Share of people in each group but the first.
        equations: From noise and group (its index, float32 `[rows]`) to the columns, `[d, rows]`.
        merit: Logit of the unbiased label, from noise and columns that no group affects, `[rows]`.
        label_bias: Share of deserving members of any group but the first who are recorded as
            undeserving.
    """

    features: tuple[Feature, ...]
    one_hot_groups: tuple[OneHotGroup, ...]
    attribute: ProtectedAttribute
    shares: tuple[float, ...]
    equations: Callable[[Noise, Float], Float]
    merit: Callable[[Noise, Float], Float]
    label_bias: float

    @property
    def attributes(self) -> tuple[ProtectedAttribute, ...]:
        """The one protected attribute."""
        return (self.attribute,)

    def people(self, n: int, *, seed: int) -> People:
        """Draw n people."""
        noise = Noise(seed=seed, chunk=0, rows=n)
        below = noise.uniform("group") < np.cumsum(self.shares)[:, None]
        group = np.where(below.any(0), below.argmax(0) + 1, 0).astype(np.int8)
        columns = self.equations(noise, group.astype(np.float32))
        deserving = noise.uniform("deserving") < _sigmoid(self.merit(noise, columns))
        recorded = noise.uniform("recorded") >= self.label_bias * (group > 0)
        return People(
            model=self,
            seed=seed,
            features=np.ascontiguousarray(columns.T),
            groups={self.attribute.name: group},
            labels=(deserving & recorded).astype(np.int8),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """People drawn from a structural model.

    Attributes:
        model: Structural model.
        seed: Seed of the noise.
        features: Input of the classifier, float32 `[n, d]`.
        groups: Index of each person's group, int8 `[n]`, by attribute.
        labels: Recorded labels, int8 `[n]`.
    """

    model: StructuralModel
    seed: int
    features: Float = field(repr=False)
    groups: dict[str, NDArray[np.int8]] = field(repr=False)
    labels: NDArray[np.int8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.features)

    def counterfactual(self, attribute: str, group: str) -> Float:
        """Features of everyone as a member of a group, with the same noise, `[n, d]`."""
        assert attribute == self.model.attribute.name
        index = self.model.attribute.groups.index(group)
        noise = Noise(seed=self.seed, chunk=0, rows=len(self))
        columns = self.model.equations(noise, np.full(len(self), index, np.float32))
        return np.ascontiguousarray(columns.T)

    def true_flips(
        self, decide: Callable[[Float], NDArray[np.bool_]], attribute: str
    ) -> NDArray[np.bool_]:
        """Whether each decision would change in at least one other group, `[n]`."""
        decisions = np.stack(
            [decide(self.counterfactual(attribute, group)) for group in self.model.attribute.groups]
        )
        # The decisions in all groups include the actual one.
        return np.asarray(decisions.any(0) & ~decisions.all(0))


def _hiring(noise: Noise, migrant: Float) -> Float:
    """Applicants. Most proxies of being a migrant depend on a smaller network of contacts."""
    network = noise.normal("network") - 1.2 * migrant
    coached = noise.uniform("coached") < 0.35
    native = noise.normal("native") + 0.4 * network > 1.4 * migrant - 0.6
    columns = np.empty((13, noise.rows), np.float32)
    columns[0] = np.where(coached, 74, 52) + 7 * noise.normal("test_score")
    columns[1] = np.floor(np.exp(1.4 + 0.8 * noise.normal("experience_years")))
    columns[2:5] = choice(np.array([0.0, 0.5, -0.3]), noise.gumbel("degree", 3))
    columns[5] = np.floor(np.exp(0.6 + 0.6 * network + 0.5 * noise.normal("referrals")))
    columns[6] = np.exp(1.8 + 0.6 * network + 0.6 * noise.normal("address_years"))
    spread = np.where(native, 3, 9) * noise.normal("language_score")
    columns[7] = np.clip(np.where(native, 92, 68) + spread, 0, 100)
    columns[8] = np.exp(2.5 - 0.3 * network + 0.4 * noise.normal("commute_km"))
    columns[9] = noise.normal("drives") + 0.5 * network > -0.4
    pull = np.array([0.0, 0.7, -0.4])[:, None] * migrant
    columns[10:13] = choice(pull, noise.gumbel("found_by", 3))
    return columns


def _hiring_merit(noise: Noise, columns: Float) -> Float:
    score, experience, master = columns[0], columns[1], columns[4]
    skill = 0.09 * (score - 58) + 0.7 * (np.log1p(experience) - 1.6) + 0.5 * master
    logit: Float = skill + 0.5 * noise.normal("talent")
    return logit


def _insurance(noise: Noise, young: Float) -> Float:
    """Drivers. Young age increases variances, changes the vehicle, and matters more in cities."""
    urban = noise.normal("urban") > 0.2
    telematics = noise.normal("telematics") + 0.9 * young > 0.7
    columns = np.empty((15, noise.rows), np.float32)
    columns[0] = np.exp(9.2 + 0.35 * (1 + 0.9 * young) * noise.normal("mileage"))
    columns[1] = _sigmoid(-1.5 + (0.5 + 0.7 * young) * noise.normal("night_share"))
    columns[2] = telematics
    columns[3] = urban
    years = np.exp(2.1 + 0.6 * noise.normal("no_claims_years") - 0.9 * young * telematics)
    columns[4] = np.minimum(np.floor(years), 25)
    columns[5] = np.exp(9.5 + 0.5 * noise.normal("car_value"))
    columns[6] = 620 + 70 * noise.normal("credit_score") + 30 * noise.normal("care")
    accidents = np.exp(-0.9 + 0.7 * noise.normal("accidents") - 0.6 * noise.normal("care"))
    columns[7] = np.minimum(np.floor(accidents), 9)
    pull = np.array([0.0, 1.1, -0.9, 0.4])[:, None] * young
    columns[8:12] = choice(pull, noise.gumbel("vehicle", 4))
    parking = np.array([0.0, 1.6, 0.5])[:, None] * young * urban
    columns[12:15] = choice(parking, noise.gumbel("parking", 3))
    return columns


def _insurance_merit(noise: Noise, columns: Float) -> Float:
    value, credit, accidents = columns[5], columns[6], columns[7]
    prudence = 0.012 * (credit - 620) - 0.8 * (accidents - 0.6) - 0.5 * (np.log(value) - 9.5)
    logit: Float = 0.6 + prudence + 0.6 * noise.normal("care")
    return logit


def choice(preference: NDArray[np.floating], gumbel: Float) -> NDArray[np.bool_]:
    """One-hot columns of the category with the highest utility."""
    utility = (preference if preference.ndim == 2 else preference[:, None]) + gumbel
    chosen: NDArray[np.bool_] = np.arange(len(utility))[:, None] == utility.argmax(axis=0)
    return chosen


def _sigmoid(logit: Float) -> Float:
    return (1 / (1 + np.exp(-logit))).astype(np.float32)


def columns_of(
    **kinds: Kind | tuple[str, ...],
) -> tuple[tuple[Feature, ...], tuple[OneHotGroup, ...]]:
    """Features and one-hot groups, from a kind or the categories of each variable."""
    features: list[Feature] = []
    groups: list[OneHotGroup] = []
    for name, kind in kinds.items():
        if isinstance(kind, str):
            features.append(Feature(name=name, kind=kind))
            continue
        members = tuple(f"{name}={category}" for category in kind)
        features += [Feature(name=member, kind="onehot") for member in members]
        groups.append(OneHotGroup(name=name, features=members))
    return tuple(features), tuple(groups)


_HIRING_FEATURES, _HIRING_GROUPS = columns_of(
    test_score="numeric",
    experience_years="integer",
    degree=("none", "bachelor", "master"),
    referrals="integer",
    address_years="numeric",
    language_score="numeric",
    commute_km="numeric",
    drives="binary",
    found_by=("website", "agency", "friend"),
)
_INSURANCE_FEATURES, _INSURANCE_GROUPS = columns_of(
    mileage="numeric",
    night_share="numeric",
    telematics="binary",
    urban="binary",
    no_claims_years="integer",
    car_value="numeric",
    credit_score="numeric",
    accidents="integer",
    vehicle=("estate", "hatchback", "van", "other"),
    parking=("garage", "street", "shared"),
)

HIRING = StructuralModel(
    features=_HIRING_FEATURES,
    one_hot_groups=_HIRING_GROUPS,
    attribute=ProtectedAttribute(name="background", groups=("settled", "migrant")),
    shares=(0.3,),
    equations=_hiring,
    merit=_hiring_merit,
    label_bias=0.5,
)
INSURANCE = StructuralModel(
    features=_INSURANCE_FEATURES,
    one_hot_groups=_INSURANCE_GROUPS,
    attribute=ProtectedAttribute(name="age", groups=("older", "younger")),
    shares=(0.4,),
    equations=_insurance,
    merit=_insurance_merit,
    label_bias=0.35,
)
