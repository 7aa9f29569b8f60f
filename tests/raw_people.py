"""Loan applications as people fill them in, with text and missing values, and their encoding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from torch import nn

from monitor import FitSpec, encoding_from_sklearn

JOBS = ("private", "public", "self-employed")
EDUCATION = ("school", "college", "university")


@dataclass(frozen=True, kw_only=True)
class Applications:
    """Raw columns by name, with None for missing values, and the label."""

    columns: dict[str, list[Any]]
    label: np.ndarray

    def frame(self) -> Any:
        """The raw columns as a data frame."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self.columns)


def applications(rows: int, seed: int) -> Applications:
    """Draw applications; women have lower incomes and other jobs."""
    rng = np.random.default_rng(seed)
    woman = rng.random(rows) < 0.5
    income = rng.lognormal(10 - 0.4 * woman, 0.5)
    age = rng.integers(18, 80, rows).astype(float)
    job = np.where(rng.random(rows) < 0.3 + 0.3 * woman, 1, rng.integers(0, 3, rows))
    education = rng.integers(0, 3, rows)
    logit = 2 * (np.log(income) - 9.8) + 0.5 * education + 0.3 * (job == 1)
    label = (rng.logistic(size=rows) + logit > 0.5).astype(np.int64)

    def holes(values: Any, share: float) -> list[Any]:
        missing = rng.random(rows) < share
        pairs = zip(values, missing, strict=True)
        return [None if gone else value for value, gone in pairs]

    columns: dict[str, list[Any]] = {
        "income": holes(np.round(income, 2).tolist(), 0.1),
        "age": age.tolist(),
        "employment": holes([JOBS[code] for code in job], 0.1),
        "education": [EDUCATION[code] for code in education],
        "sex": ["woman" if w else "man" for w in woman],
    }
    return Applications(columns=columns, label=label)


def column_transformer() -> ColumnTransformer:
    """The usual preprocessing of the applications, not fitted."""
    income = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True),
        StandardScaler(),
    )
    education = OrdinalEncoder(
        categories=[[*EDUCATION]], handle_unknown="use_encoded_value", unknown_value=-1
    )
    return ColumnTransformer(
        [
            ("income", income, ["income"]),
            ("age", make_pipeline(FunctionTransformer(np.log1p), MinMaxScaler()), ["age"]),
            ("employment", OneHotEncoder(handle_unknown="ignore"), ["employment"]),
            ("education", education, ["education"]),
            ("sex", OneHotEncoder(drop="if_binary"), ["sex"]),
        ]
    )


def encoded(transformer: ColumnTransformer, frame: Any) -> np.ndarray:
    """Output of a ColumnTransformer as the classifier takes it, float32 `[n, d]`."""
    rows = transformer.transform(frame)
    dense = rows.toarray() if hasattr(rows, "toarray") else rows
    return np.asarray(dense, np.float64).astype(np.float32)


def trained_mlp(features: np.ndarray, label: np.ndarray) -> nn.Module:
    """A small MLP, trained for a few steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(features.shape[1], 16), nn.ReLU(), nn.Linear(16, 1))
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
        x, y = torch.from_numpy(features), torch.from_numpy(label).float()[:, None]
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
            optimiser.step()
    return model.eval()


def raw_spec(transformer: ColumnTransformer) -> FitSpec:
    """The spec of a model behind a ColumnTransformer."""
    sections = encoding_from_sklearn(transformer)
    return FitSpec.model_validate(
        {
            "model": {"name": "loans", "version": "1"},
            "classifier": {"output": "logit"},
            "inputs": sections.inputs,
            "columns": sections.columns,
            "protected_attributes": [
                {"name": "sex", "column": "sex", "groups": ["man", "woman"], "feature": "sex"}
            ],
            "decision": {"class_names": ["refused", "granted"]},
            "order": ["age", "education", "employment", "income"],
        }
    )


def write_csv(path: Path, people: Applications) -> Path:
    """Write the raw columns; a missing value is empty."""
    people.frame().to_csv(path, index=False)
    return path
