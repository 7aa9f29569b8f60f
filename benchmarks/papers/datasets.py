"""Adult and COMPAS as the paper on prediction sensitivity encodes them (its Table 1)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from monitor import Feature, OneHotGroup, ProtectedAttribute

__all__ = [
    "ADULT_COLUMNS",
    "ADULT_FILE",
    "ADULT_NUMBERS",
    "COMPAS_FILE",
    "COMPAS_NUMBERS",
    "FILES",
    "PAPER_SHAPES",
    "Data",
    "binary_attribute",
    "load_adult",
    "load_compas",
    "shape",
    "train_rows",
    "usual_compas",
]

ADULT_FILE, COMPAS_FILE = "adult/adult.data", "compas/compas-scores-two-years.csv"
FILES = (ADULT_FILE, COMPAS_FILE)

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
ADULT_NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
COMPAS_NUMBERS = ("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count")
_COMPAS_CATEGORIES = ("sex", "race", "age_cat", "c_charge_degree", "c_charge_desc")

# Table 1: rows to train on and to test on, columns.
PAPER_SHAPES = {"Adult": (24_752, 6_188, 95), "COMPAS": (4_937, 1_235, 399)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """An encoded data set.

    Attributes:
        name: Name in the paper's tables.
        features: Rows, float32 `[n, d]`.
        labels: 1 for the positive class, float32 `[n]`.
        kinds: Features in the order of the columns.
        one_hot_groups: One-hot groups of the columns.
        attributes: Protected attributes, each a binary feature.
        width: Width of the classifier's hidden layer (Table 1).
    """

    name: str
    features: Tensor
    labels: Tensor
    kinds: tuple[Feature, ...]
    one_hot_groups: tuple[OneHotGroup, ...]
    attributes: tuple[ProtectedAttribute, ...]
    width: int

    def groups(self, attribute: ProtectedAttribute) -> NDArray[np.int8]:
        """Each person's group, `[n]`."""
        return self.features[:, self.column(attribute)].numpy().astype(np.int8)

    def flipped(self, attribute: ProtectedAttribute) -> Tensor:
        """Everyone's features with the other value of the attribute, `[n, d]`."""
        other = self.features.clone()
        other[:, self.column(attribute)] = 1 - other[:, self.column(attribute)]
        return other

    def take(self, rows: Tensor) -> Data:
        """Select rows."""
        return replace(self, features=self.features[rows], labels=self.labels[rows])

    def augmented(self, attribute: ProtectedAttribute) -> Data:
        """Every row twice, the second time with the other value of the attribute (section 6.1)."""
        features = torch.cat([self.features, self.flipped(attribute)])
        return replace(self, features=features, labels=self.labels.repeat(2))

    def column(self, attribute: ProtectedAttribute) -> int:
        """Index of the attribute's column."""
        return [feature.name for feature in self.kinds].index(attribute.name)


def load_adult(folder: Path) -> Data:
    """Adult as in Table 1: `adult.data`, White and Black people, "?" a category, no weights."""
    with (folder / ADULT_FILE).open() as stream:
        lines = csv.DictReader(stream, ADULT_COLUMNS, skipinitialspace=True)
        rows = [row for row in lines if row["race"] in ("White", "Black")]
    left_out = {*ADULT_NUMBERS, "fnlwgt", "income"}
    categories = [name for name in ADULT_COLUMNS if name not in left_out]
    labels = [row["income"] == ">50K" for row in rows]
    return _encode("Adult", rows, labels, ADULT_NUMBERS, categories, width=32)


def load_compas(folder: Path) -> Data:
    """COMPAS as in Table 1: the usual filter; 389 charges and ten other columns.

    The paper needs race to be binary and does not say how; the usual way is Caucasian or not.
    """
    with (folder / COMPAS_FILE).open() as stream:
        rows = [row for row in csv.DictReader(stream) if usual_compas(row)]
    for row in rows:
        row["race"] = row["race"] if row["race"] == "Caucasian" else "not Caucasian"
    labels = [row["two_year_recid"] == "1" for row in rows]
    return _encode("COMPAS", rows, labels, COMPAS_NUMBERS, _COMPAS_CATEGORIES, width=256)


def usual_compas(row: Mapping[str, str]) -> bool:
    """ProPublica's filter."""
    days = row["days_b_screening_arrest"]
    return (
        days != ""
        and abs(float(days)) <= 30
        and row["is_recid"] != "-1"
        and row["c_charge_degree"] != "O"
        and row["score_text"] not in ("", "N/A")
    )


def _encode(
    name: str,
    rows: Sequence[Mapping[str, str]],
    labels: Sequence[bool],
    numbers: Sequence[str],
    categories: Sequence[str],
    *,
    width: int,
) -> Data:
    """Unscaled numbers; categories without the first value: a binary column or a one-hot group."""
    columns = [np.array([float(row[number]) for row in rows]) for number in numbers]
    kinds = [Feature(name=number, kind="integer") for number in numbers]
    groups, attributes = [], []
    for category in categories:
        first, *others = sorted({row[category] for row in rows})
        columns += [np.array([row[category] == value for row in rows], float) for value in others]
        if len(others) == 1:
            kinds.append(Feature(name=category, kind="binary"))
        else:
            names = [f"{category}={value}" for value in others]
            kinds += [Feature(name=column, kind="onehot") for column in names]
            dropped = f"{category}={first}"
            groups.append(OneHotGroup(name=category, features=tuple(names), dropped=dropped))
        if category in ("sex", "race"):
            attributes.append(binary_attribute(category, (first, others[0])))
    return Data(
        name=name,
        features=torch.from_numpy(np.stack(columns, 1).astype(np.float32)),
        labels=torch.tensor(labels, dtype=torch.float32),
        kinds=tuple(kinds),
        one_hot_groups=tuple(groups),
        attributes=tuple(attributes),
        width=width,
    )


def binary_attribute(name: str, groups: tuple[str, str]) -> ProtectedAttribute:
    """An attribute that is a binary feature of the same name."""
    return ProtectedAttribute(name=name, groups=groups, feature=name)


def shape(data: Data) -> tuple[int, int, int]:
    """Rows to train on and to test on, columns."""
    train = train_rows(len(data.features))
    return train, len(data.features) - train, data.features.shape[1]


def train_rows(n: int) -> int:
    """Number of training rows: four fifths of n."""
    return n * 4 // 5
