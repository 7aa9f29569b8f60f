"""Data sets for smoke runs: the first rows of the real files, or synthetic rows.

Synthetic rows have the columns that the loaders read. Their figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

__all__ = ["smoke_folder"]

_ROWS = 1_500
_COMPAS_HEADER = (
    "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "sex", "race",
    "age_cat", "c_charge_degree", "c_charge_desc", "two_year_recid", "days_b_screening_arrest",
    "is_recid", "score_text",
)  # fmt: skip


def smoke_folder(files: Sequence[str], data: Path, folder: Path) -> Path:
    """Write a short version of every file into the folder.

    Args:
        files: Paths of the files below both folders.
        data: Folder of the real files; they may be missing.
        folder: Folder to write to.
    """
    for name in files:
        source, target = data / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            with source.open() as stream:
                lines = [line for line, _ in zip(stream, range(_ROWS), strict=False)]
            target.write_text("".join(lines))
        else:
            print(f"{name} is missing: using synthetic rows")
            rows = _SYNTHETIC[name](np.random.default_rng(len(name)))
            target.write_text("".join(f"{','.join(map(str, row))}\n" for row in rows))
    return folder


def _adult(rng: np.random.Generator) -> list[list[object]]:
    rows: list[list[object]] = []
    for _ in range(_ROWS):
        sex, years = str(rng.choice(["Male", "Female"])), int(rng.integers(1, 17))
        rich = rng.random() < (0.1 + 0.04 * years) * (1.0 if sex == "Male" else 0.6)
        rows.append(
            [
                *(int(rng.integers(17, 80)), rng.choice(["Private", "State-gov", "?"]), 1),
                *(rng.choice(["HS-grad", "Bachelors", "Masters"]), years),
                *(rng.choice(["Divorced", "Never-married", "Widowed"]), rng.choice(["Sales", "?"])),
                *(rng.choice(["Husband", "Unmarried", "Wife"]), rng.choice(["White", "Black"])),
                *(sex, int(rng.integers(2) * rng.integers(5_000)), 0, int(rng.integers(10, 60))),
                *(rng.choice(["United-States", "Mexico", "India"]), ">50K" if rich else "<=50K"),
            ]
        )
    return rows


def _compas(rng: np.random.Generator) -> list[list[object]]:
    rows: list[list[object]] = [list(_COMPAS_HEADER)]
    for _ in range(_ROWS):
        priors = int(rng.poisson(3))
        again = int(rng.random() < 0.25 + 0.08 * min(priors, 6))
        rows.append(
            [
                *(int(rng.integers(18, 70)), *rng.poisson(0.2, 3).tolist(), priors),
                *(rng.choice(["Male", "Female"], p=[0.7, 0.3]),),
                *(rng.choice(["African-American", "Caucasian", "Hispanic"], p=[0.5, 0.4, 0.1]),),
                *(rng.choice(["25 - 45", "Greater than 45", "Less than 25"]),),
                *(rng.choice(["F", "M"]), rng.choice(["Battery", "Theft", "Fraud"]), again),
                *(int(rng.integers(-20, 20)), again, "Low"),
            ]
        )
    return rows


def _drug(rng: np.random.Generator) -> list[list[object]]:
    rows: list[list[object]] = []
    for number in range(_ROWS):
        scores = rng.normal(size=12).round(5).tolist()
        # The fifth column is the quantified ethnicity; this value means white.
        scores[4] = -0.31685 if rng.random() < 0.85 else 0.1144
        never = rng.random() < 1 / (1 + np.exp(1 + scores[0]))
        used = [f"CL{level}" for level in rng.integers(0, 7, 19)]
        # Cannabis is the sixth drug.
        used[5] = "CL0" if never else "CL4"
        rows.append([number, *scores, *used])
    return rows


_SYNTHETIC: dict[str, Callable[[np.random.Generator], list[list[object]]]] = {
    "adult/adult.data": _adult,
    "adult/adult.test": _adult,
    "compas/compas-scores-two-years.csv": _compas,
    "drug/drug_consumption.data.txt": _drug,
}
