"""The lending world, one person and one number at a time, in float64.

It shares only the noise and the tables with the fast implementation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from monitor import World
from monitor.world import structure
from monitor.world.structure import Noise

ALL_GROUPS = tuple(
    (attribute.name, index)
    for attribute in structure.ATTRIBUTES
    for index in range(len(attribute.groups))
)


def features(
    *, people: int, seed: int, group: tuple[str, int] | None = None, world: World | None = None
) -> NDArray[np.float64]:
    """Features `[n, 25]` of the first people of a seed, all in `group` if it is not None."""
    world = World() if world is None else world
    noise = _noise(people, seed)
    rows = []
    for i in range(people):
        groups = {name: _group(name, float(noise[name][i])) for name in ("sex", "ethnicity")}
        if group is not None:
            groups[group[0]] = group[1]
        rows.append(_person(i, noise, groups, world))
    return np.array(rows)


def _person(
    i: int, noise: dict[str, NDArray[np.float32]], groups: dict[str, int], world: World
) -> list[float]:
    def e(name: str) -> float:
        return float(noise[name][i])

    sex, ethnicity = groups["sex"], groups["ethnicity"]
    income = math.exp(8 + 0.45 * (0.8 * e("means") + 0.6 * e("income") - world.drift))
    loan = math.exp(9.2 + 0.6 * (0.3 * e("means") + 0.95 * e("loan_amount")))
    debt = 1 / (1 + math.exp(0.9 + 0.4 * e("means") - 0.7 * (e("debt_ratio") + world.drift)))
    wealth = math.exp(7 + 1.2 * (0.6 * e("means") + 0.8 * e("savings") - 0.5 * world.drift))
    savings = max(wealth - 300, 0)
    history = math.floor(math.exp(2 + 0.4 * e("conduct") + 0.7 * e("credit_history_years")))
    late = math.floor(
        math.exp(-0.2 - 0.7 * e("conduct") + 0.6 * e("late_payments") + 0.2 * world.drift)
    )
    self_employed = float(e("self_employed") > 0.67)
    purpose = _one_hot(
        [0.6 * e("means"), 0.5, -0.2 * e("means"), 0.3 + 0.5 * world.drift],
        [float(column[i]) for column in noise["purpose"]],
    )
    hour = math.floor(24 * e("application_hour"))
    hardship = [0.0, 1.0][sex] + [0.0, 0.4, 0.7, 1.0][ethnicity]
    rating = 5 + 1.4 * e("conduct") + 0.9 * e("officer_rating") - 1.2 * world.direct_bias * hardship
    female = world.proxy_bias * sex
    gap = math.floor(math.exp(1.2 + 0.7 * e("career_gap_months") + 1.1 * female))
    part_time = float(e("part_time") + 1.1 * female > 1.2)
    sector = _one_hot(
        [world.proxy_bias * float(v) for v in structure._SECTOR_BY_SEX[sex]],
        [float(column[i]) for column in noise["sector"]],
    )
    commute = [0, 0.5, 0.8, 1.1][ethnicity] * world.proxy_bias
    remits = [0, 1.0, 0.7, 1.6][ethnicity] * world.proxy_bias
    district = _one_hot(
        [world.proxy_bias * float(v) for v in structure._DISTRICT_BY_ETHNICITY[ethnicity]],
        [float(column[i]) for column in noise["district"]],
    )
    return [
        *(income, loan, debt, savings, min(history, 50), min(late, 24), self_employed, *purpose),
        *(hour, min(max(rating, 0), 10), min(gap, 120), part_time, *sector),
        math.exp(3.2 + 0.5 * (e("commute_minutes") + commute)),
        float(e("sends_remittances") + remits > 1.5),
        *district,
    ]


def _noise(people: int, seed: int) -> dict[str, NDArray[np.float32]]:
    source = Noise(seed=seed, chunk=0, rows=people)
    normal = (
        *("means", "conduct", "income", "loan_amount", "debt_ratio", "savings", "self_employed"),
        *("credit_history_years", "late_payments", "officer_rating", "career_gap_months"),
        *("part_time", "commute_minutes", "sends_remittances"),
    )
    return {
        **{name: source.normal(name) for name in normal},
        **{name: source.uniform(name) for name in ("sex", "ethnicity", "application_hour")},
        **{name: source.gumbel(name, 4) for name in ("purpose", "sector", "district")},
    }


def _group(attribute: str, uniform: float) -> int:
    group, cumulative = 0, structure.SHARES[attribute][0]
    while uniform >= cumulative and group < len(structure.SHARES[attribute]) - 1:
        group += 1
        cumulative += structure.SHARES[attribute][group]
    return group


def _one_hot(preference: list[float], gumbel: list[float]) -> list[float]:
    utility = [p + g for p, g in zip(preference, gumbel, strict=True)]
    return [float(u == max(utility)) for u in utility]
