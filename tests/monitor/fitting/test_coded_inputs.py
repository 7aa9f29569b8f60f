"""A classifier of codes is scored as the same function of one-hot columns is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from monitor import (
    AsyncClient,
    Bundle,
    FitSpec,
    Judge,
    export_classifier,
    fit,
    read_data,
    update_bundle,
)
from monitor.bundle.classifier import load_exported
from monitor.errors import ClassifierError, FitError
from monitor.fitting.classifier_file import classifier_file
from tests.monitor.bundle.test_classifier import scripted
from tests.serving import served

CODES = (10, 20, 30, 40)
# Not monotone in the code.
EFFECTS = (2.0, -2.0, 1.5, -1.0)


class Codes(nn.Module):
    """Takes income, the code of a job, age, and the number of late payments or −999."""

    def __init__(self) -> None:
        super().__init__()
        self.job = nn.Embedding(41, 1)
        with torch.no_grad():
            for code, effect in zip(CODES, EFFECTS, strict=True):
                self.job.weight[code] = effect

    def forward(self, x):
        income, job, age, late = x.unbind(1)
        known = late > -998
        return (
            income + self.job(job.long())[:, 0] + 0.02 * age - 2
            - torch.where(known, 0.5 * late, 1.0)
        )  # fmt: skip


class OneHot(nn.Module):
    """The same function of one-hot columns, and of the late payments and whether they miss."""

    def forward(self, x):
        late, missing = x[:, 6], x[:, 7]
        job = x[:, 1:5] @ torch.tensor(EFFECTS)
        return x[:, 0] + job + 0.02 * x[:, 5] - 2 - torch.where(missing > 0.5, 1.0, 0.5 * late)


def people(rows: int, seed: int) -> dict[str, Any]:
    """Raw columns; groups differ in jobs, late payments and how often these are unknown."""
    rng = np.random.default_rng(seed)
    woman = rng.random(rows) < 0.5
    shares = np.where(woman[:, None], (0.1, 0.4, 0.1, 0.4), (0.4, 0.1, 0.3, 0.2))
    job = (rng.random((rows, 1)) > shares.cumsum(1)).sum(1).clip(0, 3)
    late = rng.poisson(1 + woman, rows)
    return {
        "income": rng.normal(1, 1, rows),
        "job": np.array(CODES)[job],
        "age": rng.integers(18, 80, rows),
        "late": np.where(rng.random(rows) < 0.1 + 0.2 * woman, -999, late),
        "sex": np.where(woman, "woman", "man"),
    }


def spec(job: dict[str, Any], late: dict[str, Any], **more: Any) -> FitSpec:
    return FitSpec.model_validate(
        {
            "model": {"name": "loans", "version": "1"},
            "classifier": {"output": "logit"},
            "inputs": [
                {"name": "income", "kind": "number"},
                {"name": "job", "kind": "category", "categories": [*CODES], **job},
                {"name": "age", "kind": "number", "column_kind": "integer"},
                {"name": "late", "kind": "number", "column_kind": "integer", "impute": 1, **late},
            ],
            "protected_attributes": [{"name": "sex", "column": "sex", "groups": ["man", "woman"]}],
            **more,
        }
    )


CODED = spec({"encoding": "code"}, {"missing_code": -999})
ENCODED = spec({}, {"indicator": {"column": "late=missing"}})
TRAINING = people(3_000, seed=1)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> dict[str, Path]:
    """A bundle of either classifier."""
    folder = tmp_path_factory.mktemp("coded")
    as_null = pa.array(TRAINING["late"], mask=TRAINING["late"] == -999)
    tables = {"coded": pa.table(TRAINING), "encoded": pa.table(TRAINING | {"late": as_null})}
    for name, module, own in (("coded", Codes(), CODED), ("encoded", OneHot(), ENCODED)):
        data = read_data(tables[name], own)
        fit(module, data, own, folder / name, compiled=False, n_refits=0)
    return {name: folder / name for name in tables}


def test_features_are_one_hot_and_a_missing_code_is_a_feature_of_its_own():
    assert CODED.features == ENCODED.features
    assert CODED.one_hot_groups == ENCODED.one_hot_groups
    kinds = {feature.name: feature.kind for feature in CODED.features}
    assert (kinds["job=10"], kinds["late"], kinds["late=missing"]) == (
        "onehot",
        "integer",
        "binary",
    )
    data = read_data(pa.table(TRAINING), CODED)
    missing = TRAINING["late"] == -999
    assert np.array_equal(data.features[:, 7], missing)
    assert (data.features[missing, 6] == 1).all()


def test_maps_and_scores_equal_those_of_the_one_hot_classifier(fitted):
    coded, encoded = (Bundle.read(path) for path in (fitted["coded"], fitted["encoded"]))
    assert coded.files["maps.npz"] == encoded.files["maps.npz"]
    rows = torch.from_numpy(read_data(pa.table(people(500, seed=2)), CODED).features)
    one, other = (Judge.load(bundle, warn=False).scores(rows) for bundle in (coded, encoded))
    assert torch.allclose(one.logit, other.logit, atol=1e-5)
    assert one.attributes["sex"].flip_probability.max() > 0.5
    for name in ("flip_probability", "expected_change"):
        mine, its = (getattr(scores.attributes["sex"], name) for scores in (one, other))
        assert torch.allclose(mine, its, atol=1e-4)


def test_transported_rows_have_one_known_code(fitted):
    """As an ordered feature, a code between two others would be looked up in the embedding."""
    judge = Judge.load(Bundle.read(fitted["coded"]), warn=False)
    rows = torch.from_numpy(read_data(pa.table(people(200, seed=3)), CODED).features)
    maps = judge.sensitivity.maps["sex"]
    uniforms = torch.rand(len(rows), maps.n_uniforms, generator=torch.Generator().manual_seed(0))
    moved = maps.apply(rows, 0, 1, uniforms)
    assert (moved[:, 1:5].sum(1) == 1).all()
    assert set(moved[:, 7].tolist()) <= {0.0, 1.0}
    assert (moved[:, 1:5] != rows[:, 1:5]).any()


def test_the_order_of_the_classifiers_columns_is_its_own():
    order = ["late", "income", "job", "age"]
    reordered = spec({"encoding": "code"}, {"missing_code": -999}, columns=order)
    assert [f.name for f in reordered.features] == [
        "late", "late=missing", "income", *(f"job={code}" for code in CODES), "age",
    ]  # fmt: skip

    class Reordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Codes()

        def forward(self, x):
            return self.inner(x[:, [1, 2, 3, 0]])

    table = pa.table(people(100, seed=4))
    logits = []
    for module, own in ((Codes(), CODED), (Reordered(), reordered)):
        wrapped = load_exported(classifier_file(module, own)[1], "classifier")
        logits.append(wrapped(torch.from_numpy(read_data(table, own).features)))
    assert torch.allclose(*logits)


def test_clients_send_codes(fitted):
    sent = people(50, seed=5)
    columns = [sent[name].astype(np.float32) for name in ("income", "job", "age", "late")]

    async def use(server):
        async with AsyncClient(f"127.0.0.1:{server.grpc.port}", model="loans") as client:
            return await client.predict({name: sent[name] for name in sent if name != "sex"})

    predictions = served(fitted["coded"], use)
    with torch.no_grad():
        logits = Codes()(torch.from_numpy(np.column_stack(columns)))
    assert np.allclose(predictions.output, logits, atol=1e-5)


def test_a_retrained_classifier_of_codes_replaces_the_old_one(fitted, tmp_path):
    class Retrained(Codes):
        def forward(self, x):
            return super().forward(x) + 0.5

    file = tmp_path / "m.pt2"
    file.write_bytes(export_classifier(Retrained(), 4))
    updated = update_bundle(fitted["coded"], file, tmp_path / "b", compiled=False).bundle
    rows = torch.from_numpy(read_data(pa.table(people(50, seed=6)), CODED).features)
    before, after = (b.classifier().logit(rows) for b in (Bundle.read(fitted["coded"]), updated))
    assert torch.allclose(after, before + 0.5, atol=1e-5)


def test_torchscript_with_codes_is_refused(tmp_path):
    data = read_data(pa.table(TRAINING), CODED)
    with pytest.raises(ClassifierError, match="is TorchScript; a classifier with inputs of"):
        fit(scripted(nn.Linear(4, 1)), data, CODED, tmp_path / "b", compiled=False)


@pytest.mark.parametrize(
    ("job", "late", "message"),
    [
        ({"encoding": "code", "dropped": "10"}, {}, "has a dropped category"),
        ({"encoding": "code", "codes": [1, 1, 2, 3]}, {}, "needs a different code"),
        ({"encoding": "code", "unseen": "zeros"}, {}, "list a category for such values"),
        ({"encoding": "code", "missing": {"code": 0}}, {}, "a code is for ordinal only"),
        ({}, {"missing_code": -999, "impute": None}, "has a missing_code, but refuses"),
    ],
)
def test_inconsistent_codes_are_refused(job, late, message):
    with pytest.raises(FitError, match=message):
        spec(job, late)
