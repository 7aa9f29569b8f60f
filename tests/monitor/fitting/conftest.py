"""A user's files: a model, training data and a spec, drawn from a small world."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from monitor import World, export_classifier, train_proxy_biased
from monitor.fitting.suggest import suggest_spec

WORLD = World()


def columns(people) -> dict[str, np.ndarray]:
    """Every feature and attribute of a population by name."""
    table = {f.name: people.features[:, i] for i, f in enumerate(people.world.features)}
    for attribute in people.world.attributes:
        table[attribute.name] = np.array(attribute.groups)[people.groups[attribute.name]]
    return table


@pytest.fixture(scope="session")
def user_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with model.pt2, train.parquet and features.yaml."""
    folder = tmp_path_factory.mktemp("user")
    classifier = train_proxy_biased(WORLD.people(20_000, seed=41), seed=0)
    (folder / "model.pt2").write_bytes(export_classifier(classifier, 25))
    table = pa.table(columns(WORLD.people(12_000, seed=42)))
    parquet.write_table(table, folder / "train.parquet")
    (folder / "features.yaml").write_text(suggest_spec(folder / "train.parquet"))
    return folder
