"""Adult, COMPAS and Drug as the papers on permutation and on projection tests use them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.datasets import (
    ADULT_COLUMNS,
    ADULT_FILE,
    ADULT_NUMBERS,
    COMPAS_FILE,
    COMPAS_NUMBERS,
    usual_compas,
)

__all__ = [
    "PERMUTATION_FILES",
    "PROJECTION_FILES",
    "People",
    "adult_by_sex",
    "compas_by_race",
    "compas_by_sex",
    "drug_by_ethnicity",
]

_ADULT_TEST_FILE, _DRUG_FILE = "adult/adult.test", "drug/drug_consumption.data.txt"
PERMUTATION_FILES = (ADULT_FILE, _ADULT_TEST_FILE, COMPAS_FILE)
PROJECTION_FILES = (COMPAS_FILE, _DRUG_FILE)

# Quantified ethnicity of white people, its column, and the column of cannabis.
_WHITE, _ETHNICITY, _CANNABIS = -0.31685, 5, 18
_NEVER_USED = "CL0"


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """An encoded data set; the protected attribute is not a feature.

    Attributes:
        name: Name in the papers.
        features: Encoded features, `[n, d]`.
        labels: Whether each label is positive, `[n]`.
        groups: Name of each person's group, `[n]`.
    """

    name: str
    features: NDArray[np.float64]
    labels: NDArray[np.bool_]
    groups: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.intp]) -> People:
        """Select rows."""
        return replace(
            self, features=self.features[rows], labels=self.labels[rows], groups=self.groups[rows]
        )

    def split(self, shares: Sequence[float], rng: np.random.Generator) -> list[People]:
        """Random parts with these shares; the last part has the remaining rows."""
        cuts = (np.cumsum(shares)[:-1] * len(self)).round().astype(int)
        return [self.take(rows) for rows in np.split(rng.permutation(len(self)), cuts)]


def adult_by_sex(folder: Path) -> People:
    """Permutation tests, section 5: both files, every feature but sex, race and the weight."""
    rows = []
    for name in (ADULT_FILE, _ADULT_TEST_FILE):
        with (folder / name).open() as stream:
            rows += list(csv.DictReader(stream, ADULT_COLUMNS, skipinitialspace=True))
    left_out = {*ADULT_NUMBERS, "fnlwgt", "income", "sex", "race"}
    categories = [name for name in ADULT_COLUMNS if name not in left_out]
    return People(
        name="Adult",
        features=_encode(rows, ADULT_NUMBERS, categories),
        labels=np.array([row["income"].startswith(">50K") for row in rows]),
        groups=np.array([row["sex"] for row in rows]),
    )


def compas_by_sex(folder: Path) -> People:
    """Permutation tests, section 5: the usual filter, every feature but sex and race.

    The paper's 6,167 rows are those of the filter with a charge description. COMPAS's own scores
    are predictions, not features.
    """
    rows = [row for row in _compas(folder) if row["c_charge_desc"]]
    categories = ("age_cat", "c_charge_degree", "c_charge_desc")
    return People(
        name="COMPAS",
        features=_encode(rows, COMPAS_NUMBERS, categories),
        labels=np.array([row["two_year_recid"] == "1" for row in rows]),
        groups=np.array([row["sex"] for row in rows]),
    )


def compas_by_race(folder: Path) -> People:
    """Projection tests: African-American and Caucasian people, five columns.

    The paper's appendix on its data was not available. This is the encoding of Zafar et al. and of
    Taskesen et al. (2021), whose experiments it follows: age category, sex, prior convictions
    (standardised) and degree of the charge.
    """
    rows = [row for row in _compas(folder) if row["race"] in ("African-American", "Caucasian")]
    priors = np.array([float(row["priors_count"]) for row in rows])
    standardised = ((priors - priors.mean()) / priors.std())[:, None]
    categories = _encode(rows, (), ("age_cat", "sex", "c_charge_degree"))
    return People(
        name="COMPAS",
        features=np.hstack([categories, standardised]),
        labels=np.array([row["two_year_recid"] == "1" for row in rows]),
        groups=np.array([row["race"] for row in rows]),
    )


def drug_by_ethnicity(folder: Path) -> People:
    """Projection tests: whether a person never used cannabis, eleven columns, white or not.

    As in Donini et al. (2018) and Taskesen et al. (2021).
    """
    with (folder / _DRUG_FILE).open() as stream:
        rows = list(csv.reader(stream))
    numbers = np.array([[float(value) for value in row[1:13]] for row in rows])
    white = numbers[:, _ETHNICITY - 1] == _WHITE
    return People(
        name="Drug",
        features=np.delete(numbers, _ETHNICITY - 1, axis=1),
        labels=np.array([row[_CANNABIS] == _NEVER_USED for row in rows]),
        groups=np.where(white, "white", "not white"),
    )


def _compas(folder: Path) -> list[dict[str, str]]:
    with (folder / COMPAS_FILE).open() as stream:
        return [row for row in csv.DictReader(stream) if usual_compas(row)]


def _encode(
    rows: Sequence[Mapping[str, str]], numbers: Sequence[str], categories: Sequence[str]
) -> NDArray[np.float64]:
    """Unscaled numbers; one column per value of a category, one column for two values."""
    columns = [[float(row[number]) for row in rows] for number in numbers]
    for category in categories:
        values = sorted({row[category] for row in rows})
        encoded = values[1:] if len(values) == 2 else values
        columns += [[float(row[category] == value) for row in rows] for value in encoded]
    return np.array(columns).T
