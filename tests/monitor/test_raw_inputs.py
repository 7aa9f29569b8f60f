"""A model behind a ColumnTransformer: fitted, served, logged and audited on raw inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import StandardScaler
from torch import nn

from monitor import AsyncClient, Bundle, FitSpec, encoding_from_sklearn, fit, read_data
from monitor.client import EndpointError
from monitor.errors import BadRequestError, ConfigError, TrafficError
from monitor.server import Server
from monitor.traffic.features import read_logged_features
from monitor.traffic.privacy import treatments
from monitor.traffic.settings import FeatureTreatment
from offline_audit import AuditInputError, Window, audit_window, flip_test
from offline_audit.fliptest.tables import rows_of_file, rows_of_window
from offline_audit.fliptest.window import findings as flip_findings
from tests.raw_people import (
    Applications,
    applications,
    column_transformer,
    encoded,
    raw_spec,
    trained_mlp,
    write_csv,
)
from tests.serving import served

pd: Any = pytest.importorskip("pandas")

PEOPLE = applications(3_000, seed=1)
SENT = applications(400, seed=2)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A bundle, and the transformer that it declares."""

    bundle: Path
    transformer: Any
    data: Path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    home = tmp_path_factory.mktemp("raw")
    frame = PEOPLE.frame()
    transformer = column_transformer().fit(frame)
    model = trained_mlp(encoded(transformer, frame), PEOPLE.label)
    data, spec = write_csv(home / "raw.csv", PEOPLE), raw_spec(transformer)
    fit(model, read_data(data, spec), spec, home / "bundle", compiled=False, n_refits=0)
    return Fitted(bundle=home / "bundle", transformer=transformer, data=data)


def rest_body(people: Applications, **changed: Any) -> dict[str, Any]:
    columns = people.columns | changed
    numbers = ("income", "age")
    return {
        "inputs": [
            {
                "name": name,
                "shape": [len(values)],
                "datatype": "FP64" if name in numbers else "BYTES",
                "data": values,
            }
            for name, values in columns.items()
        ]
    }


def rest(server: Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.rest.port}", trust_env=False)


def grpc_client(server: Server) -> AsyncClient:
    return AsyncClient(f"127.0.0.1:{server.grpc.port}", model="loans")


def test_raw_rows_get_the_predictions_of_the_encoded_ones(fitted):
    features = encoded(fitted.transformer, SENT.frame())

    async def use(server: Server):
        async with grpc_client(server) as client, rest(server) as http:
            by_frame = await client.predict(SENT.frame())
            by_arrow = await client.predict(pa.table(SENT.columns))
            by_columns = await client.predict(SENT.columns)
            as_encoded = await client.predict(features)
            over_http = await http.post("/v2/models/loans/infer", json=rest_body(SENT))
            card = (await http.get("/v2/models/loans")).json()
        return by_frame, by_arrow, by_columns, as_encoded, over_http.json(), card

    *all_rows, over_http, card = served(fitted.bundle, use)
    for predictions in all_rows:
        assert np.array_equal(predictions.output, all_rows[0].output)
        assert predictions.verdicts["sex"] == all_rows[0].verdicts["sex"]
    assert np.allclose(over_http["outputs"][0]["data"], all_rows[0].output[:, 0], rtol=1e-6)
    assert {i["name"]: i["datatype"] for i in card["inputs"]} == {
        "income": "FP64", "age": "FP64", "employment": "BYTES", "education": "BYTES",
        "sex": "BYTES",
    }  # fmt: skip
    assert card["properties"]["encoded_input"] == "features"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sex": ["man", "secret", "woman"]}, "input 'sex' of row 1 is not one of its categories"),
    ({"sex": ["man", "", "woman"]}, "input 'sex' of row 1 is missing"),
    ({"age": [20.0, 30.0, None]}, "input 'age' of row 2 is missing"),
    ({"age": [20.0, -3.0, 30.0]}, "input 'age' of row 1 does not encode to a finite number"),
    ({"age": ["old"] * 3}, "have another type"),
    ({"height": [1.0, 2.0, 3.0]}, "input 'height' is unknown; send one tensor per raw input"),
]


def test_a_refused_value_is_named_by_input_and_row_only(fitted):
    three = Applications(
        columns={name: values[:3] for name, values in SENT.columns.items()}, label=SENT.label[:3]
    )

    async def use(server: Server):
        async with rest(server) as http:
            changes: list[dict[str, Any]] = [
                {"education": ["university", "secret", "school"]},
                *(c for c, _ in REFUSED),
            ]
            bodies = [rest_body(three, **changed) for changed in changes]
            return [await http.post("/v2/models/loans/infer", json=body) for body in bodies]

    accepted, *refused = served(fitted.bundle, use)
    assert accepted.status_code == 200
    for response, (_, message) in zip(refused, REFUSED, strict=True):
        assert response.status_code == 400
        assert message in response.text
        assert "secret" not in response.text


def test_a_table_with_other_columns_is_refused_with_their_names(fitted):
    async def use(server: Server):
        frame = SENT.frame()
        async with grpc_client(server) as client:
            with pytest.raises(BadRequestError, match="no column for 'age'"):
                await client.predict(frame.drop(columns="age"))
            with pytest.raises(BadRequestError, match="no input 'extra'"):
                await client.predict(frame.assign(extra=1))
            with pytest.raises(BadRequestError, match="'age': the value of row 0 is not a number"):
                await client.predict(frame.assign(age="x"))
            with pytest.raises(EndpointError, match="shape"):
                await client.predict(np.zeros((2, 3)))

    served(fitted.bundle, use)


@pytest.fixture(scope="module")
def logged(fitted, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log of raw requests, with one unseen category, and of one request of encoded rows."""
    home = tmp_path_factory.mktemp("raw-log")
    unseen = SENT.columns | {"education": ["doctorate", *SENT.columns["education"][1:]]}
    features = encoded(fitted.transformer, SENT.frame())

    async def use(server: Server):
        async with grpc_client(server) as client, rest(server) as http:
            await client.predict(unseen, request_id="raw")
            await client.predict(features[:5], request_id="encoded")
            outcomes = [
                {"request_id": "raw", "row": row, "label": int(label)}
                for row, label in enumerate(SENT.label)
            ]
            assert (await http.post("/v1/outcomes", json={"outcomes": outcomes})).json()["recorded"]

    log, outcomes = home / "log", home / "outcomes"
    served(fitted.bundle, use, traffic={"path": log}, outcomes={"path": outcomes})
    return log, outcomes


def test_the_log_has_what_people_filled_in(fitted, logged):
    with Window.read(*logged) as window:
        table = window.table.to_pyarrow()
    rows = table.filter(pa.compute.equal(table["request_id"], "raw")).sort_by("row")
    assert rows["income"].to_pylist() == SENT.columns["income"]
    assert rows["employment"].to_pylist() == SENT.columns["employment"]
    assert rows["education"].to_pylist() == ["unseen", *SENT.columns["education"][1:]]
    assert "sex" not in rows.column_names
    assert rows["group_sex"].to_pylist() == SENT.columns["sex"]
    assert not any(rows["encoded_request"].to_pylist())
    others = table.filter(pa.compute.equal(table["request_id"], "encoded"))
    assert others["income"].null_count == others["employment"].null_count == 5
    assert all(others["encoded_request"].to_pylist())


def test_audits_encode_the_logged_rows_again(fitted, logged):
    manifest = Bundle.read(fitted.bundle).manifest
    expected = encoded(fitted.transformer, SENT.frame())
    expected[0, [f.name for f in manifest.features].index("education")] = -1
    with Window.read(*logged) as window:
        rows = rows_of_window(
            window, manifest, "sex", by_label=False, rows=1_000, favourable=1, seed=0
        )
        findings = audit_window(window, ["permutation"])
        flips = flip_findings(window, model=fitted.bundle, n_resamples=20, n_bootstrap=20)
    assert len(rows.features) == len(SENT.label)
    assert {*map(bytes, rows.features)} == {*map(bytes, expected)}
    assert {finding.audit for finding in findings} == {"permutation"}
    assert {finding.audit for finding in flips} == {"fliptest"}
    assert "employment" in json.dumps([finding.to_dict() for finding in flips])
    (warning,) = (w for w in rows.warnings if "missing" in w)
    assert warning.startswith("5 rows")


def test_a_raw_file_is_encoded_for_flip_test(fitted):
    manifest = Bundle.read(fitted.bundle).manifest
    rows = rows_of_file(pa.table(SENT.columns), manifest, "sex", favourable=1)
    assert np.array_equal(rows.features, encoded(fitted.transformer, SENT.frame()))


def test_a_protected_input_is_never_in_the_traffic_log(fitted, logged):
    with pytest.raises(TrafficError, match="'sex' is not logged"):
        read_logged_features(logged[0], Bundle.read(fitted.bundle).manifest, 100)


def test_the_audit_speaks_of_raw_inputs(fitted):
    audit = json.loads((fitted.bundle / "audit.json").read_text())
    text = json.dumps(audit)
    assert "employment" in text
    assert "employment=" not in json.dumps(audit["attributes"])


def test_treatments_name_raw_inputs(fitted, tmp_path):
    """A hashed category has one hash per text; a bucketed number its lower end."""
    key = tmp_path / "key"
    key.write_text("k" * 32)

    async def use(server: Server):
        async with grpc_client(server) as client:
            await client.predict(SENT.columns)

    features = {
        "employment": "hash",
        "income": "hash",
        "education": "drop",
        "age": {"treatment": "bucket", "width": 10},
    }
    traffic = {"path": tmp_path / "log", "key_path": key, "features": features}
    served(fitted.bundle, use, traffic=traffic)
    with Window.read(tmp_path / "log") as window:
        table = window.table.to_pyarrow().sort_by("row")
    assert "education" not in table.column_names
    assert table["age"].to_pylist() == [10 * (age // 10) for age in SENT.columns["age"]]
    for name in ("employment", "income"):
        pairs = set(zip(SENT.columns[name], table[name].to_pylist(), strict=True))
        assert len(pairs) == len({*SENT.columns[name]}) == len({hashed for _, hashed in pairs})
        assert (None, None) in pairs


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"employment=private": "drop"}, "no such feature; did you mean employment?"),
        ({"employment": "bucket"}, "only numeric features can be bucketed"),
        ({"income": "bucket"}, "no range for this feature; set a width"),
    ],
)
def test_a_treatment_that_does_not_fit_an_input_is_refused(fitted, features, message):
    treated = {name: FeatureTreatment.model_validate(value) for name, value in features.items()}
    with pytest.raises(ConfigError) as raised:
        treatments(Bundle.read(fitted.bundle).manifest, treated)
    assert message in str(raised.value)


def test_flip_test_takes_a_raw_frame_and_names_subgroups_in_the_units_of_people(fitted):
    frame = PEOPLE.frame()
    options: dict[str, Any] = {"n_resamples": 0, "n_bootstrap": 0, "progress": False}
    bundle = Bundle.read(fitted.bundle)
    raw = flip_test(bundle, frame, {"sex": frame["sex"]}, **options)
    rows = encoded(fitted.transformer, frame)
    same = flip_test(bundle, rows, {"sex": frame["sex"]}, **options)
    assert [d.gross for d in raw.directions] == [d.gross for d in same.directions]
    with pytest.raises(AuditInputError, match="no feature other"):
        flip_test(bundle, frame.assign(other=1), {"sex": frame["sex"]}, **options)
    refused = frame.assign(sex=["none", *frame["sex"][1:]])
    with pytest.raises(AuditInputError, match="'sex' is not one of its categories in 1 row"):
        flip_test(bundle, refused, {"sex": frame["sex"]}, **options)


def test_rows_that_are_encoded_already_are_not_encoded_again(tmp_path):
    rng = np.random.default_rng(3)
    raw = pd.DataFrame({"income": rng.lognormal(10, 0.4, 1_000), "age": rng.uniform(20, 70, 1_000)})
    scaler = ColumnTransformer([("numbers", StandardScaler(), ["income", "age"])]).fit(raw)
    sections = encoding_from_sklearn(scaler)
    spec = FitSpec.model_validate(
        {
            "model": {"name": "loans", "version": "1"},
            "classifier": {"output": "logit"},
            "inputs": sections.inputs,
            "columns": sections.columns,
            "protected_attributes": [{"name": "sex", "column": "sex", "groups": ["man", "woman"]}],
        }
    )
    sex = np.where(rng.random(1_000) < 0.5, "woman", "man")
    data = read_data(raw.assign(sex=sex), spec)
    bundle = fit(nn.Linear(2, 1), data, spec, tmp_path / "b", compiled=False, n_refits=0).bundle
    options: dict[str, Any] = {"n_resamples": 0, "n_bootstrap": 0, "progress": False}
    rows = scaler.transform(raw)
    shares = [
        [d.gross for d in flip_test(bundle, table, {"sex": sex}, **options).directions]
        for table in (raw, rows)
    ]
    assert shares[0] == shares[1]
    encoded_frame = pd.DataFrame(rows, columns=["income", "age"])
    with pytest.raises(AuditInputError, match="'income' are outside the range of the fit after"):
        flip_test(bundle, encoded_frame, {"sex": sex}, **options)
    with pytest.raises(AuditInputError, match="input 'income' is a number in the bundle, but its"):
        flip_test(bundle, raw.assign(income="much"), {"sex": sex}, **options)
    table = pa.table({"income": rows[:, 0], "age": rows[:, 1], "sex": sex})
    with pytest.raises(AuditInputError, match="if the rows are encoded already, pass an array"):
        flip_findings(table, model=bundle, n_resamples=0, n_bootstrap=0, progress=False)


def test_a_raw_frame_without_an_input_is_refused_with_the_name_of_the_input(fitted):
    frame = PEOPLE.frame().drop(columns="employment")
    with pytest.raises(AuditInputError, match="no column employment; the features") as raised:
        flip_test(Bundle.read(fitted.bundle), frame, {"sex": frame["sex"]}, progress=False)
    assert "income_missing" not in str(raised.value)
