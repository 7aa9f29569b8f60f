"""The structural causal model of the lending market.

Each variable is a function of its causes and of its own noise. A person is determined by noise and
groups; the counterfactual has the same noise and another group. There are two sets of equations:

    noise ─► legitimate()                         features without a protected ancestor
    noise + groups + parameters ─► descendants()  descendants of protected attributes

A counterfactual recomputes only the second set. Every variable has its own random stream, named
after it, so that worlds with different parameters have the same people for the same seed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.bundle.manifest import Feature, OneHotGroup, ProtectedAttribute

__all__ = [
    "ATTRIBUTES",
    "DESCENDANT_FEATURES",
    "LEGITIMATE_FEATURES",
    "ONE_HOT_GROUPS",
    "SHARES",
    "Noise",
    "Parameters",
    "descendants",
    "draw_groups",
    "legitimate",
    "recorded_labels",
    "repayment",
]

Float = NDArray[np.float32]
Groups = dict[str, NDArray[np.int8]]

ATTRIBUTES = (
    ProtectedAttribute(name="sex", groups=("man", "woman")),
    ProtectedAttribute(name="ethnicity", groups=("ardan", "belu", "cori", "dovar")),
)
SHARES = {"sex": (0.52, 0.48), "ethnicity": (0.55, 0.2, 0.15, 0.1)}

# Strength of the bias against each group, 0 to 1.
_DISADVANTAGE = {
    "sex": np.array([0.0, 1.0], np.float32),
    "ethnicity": np.array([0.0, 0.4, 0.7, 1.0], np.float32),
}

_PURPOSES = ("home", "car", "study", "other")
_SECTORS = ("care", "trades", "office", "technical")
_DISTRICTS = ("harbour", "hills", "market", "old_town")

LEGITIMATE_FEATURES = (
    Feature(name="income", kind="numeric"),
    Feature(name="loan_amount", kind="numeric"),
    Feature(name="debt_ratio", kind="numeric"),
    Feature(name="savings", kind="numeric"),
    Feature(name="credit_history_years", kind="integer"),
    Feature(name="late_payments", kind="integer"),
    Feature(name="self_employed", kind="binary"),
    *(Feature(name=f"purpose={name}", kind="onehot") for name in _PURPOSES),
    Feature(name="application_hour", kind="integer"),
)
DESCENDANT_FEATURES = (
    Feature(name="officer_rating", kind="numeric"),
    Feature(name="career_gap_months", kind="integer"),
    Feature(name="part_time", kind="binary"),
    *(Feature(name=f"sector={name}", kind="onehot") for name in _SECTORS),
    Feature(name="commute_minutes", kind="numeric"),
    Feature(name="sends_remittances", kind="binary"),
    *(Feature(name=f"district={name}", kind="onehot") for name in _DISTRICTS),
)
ONE_HOT_GROUPS = tuple(
    OneHotGroup(name=name, features=tuple(f"{name}={category}" for category in categories))
    for name, categories in (("purpose", _PURPOSES), ("sector", _SECTORS), ("district", _DISTRICTS))
)

# Log-odds that proxy bias adds, by group (rows) and category (columns).
_SECTOR_BY_SEX = np.array([[0, 0, 0, 0], [1.3, -1.6, 0.2, -0.9]], np.float32)
_DISTRICT_BY_ETHNICITY = np.array(
    [[0, 0, 0, 0], [0.9, -0.3, 0.6, 0], [0.3, -0.9, 1.5, 0.2], [1.9, -1.4, 0.4, 0]], np.float32
)
_COMMUTE_BY_ETHNICITY = np.array([0, 0.5, 0.8, 1.1], np.float32)
_REMITTANCES_BY_ETHNICITY = np.array([0, 1.0, 0.7, 1.6], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters of a world: the strength of each bias, 0 for none, and of the drift.

    Attributes:
        direct_bias: Loan officers rate the same conduct lower for disadvantaged groups.
        proxy_bias: Sector, career gaps, part-time work, district, commute and remittances depend on
            the groups. None of them affects repayment.
        label_bias: Share of repaid loans that are recorded as defaults; it grows with the
            disadvantage of the groups.
        drift: Downturn in standard deviations: incomes fall, debts rise, purposes shift. It affects
            all groups equally.
    """

    direct_bias: float = 0.0
    proxy_bias: float = 1.0
    label_bias: float = 1.0
    drift: float = 0.0


class Noise:
    """The exogenous noise of one chunk of people, with one random stream per variable."""

    def __init__(self, *, seed: int, chunk: int, rows: int) -> None:
        self._key = (seed, chunk)
        self.rows = rows

    def normal(self, variable: str) -> Float:
        """Standard normal noise of a variable, `[rows]`."""
        return self._stream(variable).standard_normal(self.rows, np.float32)

    def uniform(self, variable: str) -> Float:
        """Uniform noise of a variable in [0, 1), `[rows]`."""
        return self._stream(variable).random(self.rows, np.float32)

    def gumbel(self, variable: str, categories: int) -> Float:
        """Gumbel noise of a categorical variable, `[categories, rows]`."""
        # −log of an exponential variable has a Gumbel distribution; a float32 can be exactly 0.
        # Drawn row by row, so that a shorter draw is a prefix of a longer one.
        exponential = self._stream(variable).standard_exponential(
            (self.rows, categories), np.float32
        )
        return -np.log(np.maximum(exponential.T, np.float32(1e-30)))

    def _stream(self, variable: str) -> np.random.Generator:
        seed = np.random.SeedSequence([*self._key, zlib.crc32(variable.encode())])
        return np.random.Generator(np.random.SFC64(seed))


def draw_groups(noise: Noise) -> Groups:
    """Draw the groups of each person, independent of each other and of all other noise."""
    return {
        attribute: np.searchsorted(
            np.cumsum(shares, dtype=np.float32)[:-1], noise.uniform(attribute), side="right"
        ).astype(np.int8)
        for attribute, shares in SHARES.items()
    }


def legitimate(noise: Noise, parameters: Parameters) -> Float:
    """Features without a protected ancestor, `[12, rows]` in the order of LEGITIMATE_FEATURES."""
    means, conduct, drift = noise.normal("means"), noise.normal("conduct"), parameters.drift
    columns = np.empty((len(LEGITIMATE_FEATURES), noise.rows), np.float32)
    columns[0] = np.exp(8 + 0.45 * (0.8 * means + 0.6 * noise.normal("income") - drift))
    columns[1] = np.exp(9.2 + 0.6 * (0.3 * means + 0.95 * noise.normal("loan_amount")))
    columns[2] = _sigmoid(-0.9 - 0.4 * means + 0.7 * (noise.normal("debt_ratio") + drift))
    wealth = np.exp(7 + 1.2 * (0.6 * means + 0.8 * noise.normal("savings") - 0.5 * drift))
    columns[3] = np.maximum(wealth - 300, 0)
    history = np.exp(2 + 0.4 * conduct + 0.7 * noise.normal("credit_history_years"))
    columns[4] = np.minimum(np.floor(history), 50)
    late = np.exp(-0.2 - 0.7 * conduct + 0.6 * noise.normal("late_payments") + 0.2 * drift)
    columns[5] = np.minimum(np.floor(late), 24)
    columns[6] = noise.normal("self_employed") > 0.67
    preference = np.stack(
        [0.6 * means, 0.5 + 0 * means, -0.2 * means, 0.3 + 0.5 * drift + 0 * means]
    )
    columns[7:11] = _choice(preference, noise.gumbel("purpose", len(_PURPOSES)))
    columns[11] = np.floor(24 * noise.uniform("application_hour"))
    return columns


def descendants(noise: Noise, parameters: Parameters, groups: Groups) -> Float:
    """Descendants of protected attributes, `[13, rows]` in the order of DESCENDANT_FEATURES.

    If direct and proxy bias are zero, no term below depends on the groups, to the last bit.
    """
    sex, ethnicity, proxy = groups["sex"], groups["ethnicity"], np.float32(parameters.proxy_bias)
    female = proxy * _DISADVANTAGE["sex"][sex]
    columns = np.empty((len(DESCENDANT_FEATURES), noise.rows), np.float32)
    penalty = 1.2 * parameters.direct_bias * _disadvantage(groups)
    rating = 5 + 1.4 * noise.normal("conduct") + 0.9 * noise.normal("officer_rating") - penalty
    columns[0] = np.clip(rating, 0, 10)
    gap = np.exp(1.2 + 0.7 * noise.normal("career_gap_months") + 1.1 * female)
    columns[1] = np.minimum(np.floor(gap), 120)
    columns[2] = noise.normal("part_time") + 1.1 * female > 1.2
    sector = proxy * _SECTOR_BY_SEX.T[:, sex]
    columns[3:7] = _choice(sector, noise.gumbel("sector", len(_SECTORS)))
    commute = proxy * _COMMUTE_BY_ETHNICITY[ethnicity]
    columns[7] = np.exp(3.2 + 0.5 * (noise.normal("commute_minutes") + commute))
    remitting = proxy * _REMITTANCES_BY_ETHNICITY[ethnicity]
    columns[8] = noise.normal("sends_remittances") + remitting > 1.5
    district = proxy * _DISTRICT_BY_ETHNICITY.T[:, ethnicity]
    columns[9:13] = _choice(district, noise.gumbel("district", len(_DISTRICTS)))
    return columns


def repayment(noise: Noise, legitimate_columns: Float) -> NDArray[np.bool_]:
    """Whether the loan is repaid; depends on conduct and legitimate features, not on groups."""
    income, loan, debt, savings, history, late = legitimate_columns[:6]
    affordability = np.log(income) - 0.5 * np.log(loan) - 3.4
    solvency = -2.5 * (debt - 0.3) + 0.12 * (np.log1p(savings) - 6.2)
    conduct = 0.5 * noise.normal("conduct") - 0.45 * (late - 0.7) + 0.2 * (np.log1p(history) - 2)
    logit = 0.7 + 1.5 * affordability + solvency + conduct
    repaid: NDArray[np.bool_] = noise.uniform("repaid") < _sigmoid(1.3 * logit)
    return repaid


def recorded_labels(
    noise: Noise, parameters: Parameters, groups: Groups, repaid: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """The bank's records: some repaid loans of disadvantaged groups are recorded as defaults."""
    share = np.minimum(0.4 * parameters.label_bias * _disadvantage(groups), 0.95)
    correct: NDArray[np.bool_] = noise.uniform("recorded") >= share
    return (repaid & correct).astype(np.int8)


def _disadvantage(groups: Groups) -> Float:
    """Disadvantage of each person, summed over the attributes, 0 to 2."""
    return _DISADVANTAGE["sex"][groups["sex"]] + _DISADVANTAGE["ethnicity"][groups["ethnicity"]]


def _choice(preference: Float, gumbel: Float) -> NDArray[np.bool_]:
    """One-hot columns of the preferred category, `[categories, rows]`.

    With the Gumbel-max rule a counterfactual changes the category only if another one became more
    likely (Oberst and Sontag 2019, section 3.2: counterfactual stability).
    """
    utility = preference + gumbel
    chosen: NDArray[np.bool_] = np.arange(len(utility))[:, None] == utility.argmax(axis=0)
    return chosen


def _sigmoid(logit: Float) -> Float:
    return (1 / (1 + np.exp(-logit))).astype(np.float32)
