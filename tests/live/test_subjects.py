"""The subject of a request leaves no trace but a pseudonym: files, logs, metrics, reviews."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pyarrow import dataset

from monitor import Client
from monitor.traffic.columns import SUBJECT
from tests.live.sidecar import MODEL, Fitted, often_flipping, sidecar

pytestmark = pytest.mark.live

PERSON = "erika.mustermann@example.org"


def test_no_file_has_the_subject_itself(uncompiled: Fitted, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "key").write_bytes(b"a key of sixteen bytes or more")
    settings = {
        "policy": {"action": "review", "review_path": str(home / "reviews")},
        "traffic": {"path": str(home / "log"), "key_path": str(home / "key")},
        "outcomes": {"path": str(home / "outcomes"), "subjects": True},
        "log": {"level": "debug"},
    }
    rows = often_flipping(uncompiled, 30)
    with sidecar(uncompiled, tmp_path, settings) as running:
        with Client(running.grpc, model=MODEL) as client:
            client.predict(rows[:29], subject=PERSON)
        body = {
            "parameters": {SUBJECT: PERSON},
            "inputs": [
                {
                    "name": "features",
                    "datatype": "FP32",
                    "shape": [1, rows.shape[1]],
                    "data": rows[29].tolist(),
                }
            ],
        }
        url = f"{running.url}/v2/models/{MODEL}/infer"
        assert httpx.post(url, json=body).status_code == 200
        refused = httpx.post(url, json={**body, "parameters": {SUBJECT: f"{PERSON}\n"}})
        assert refused.status_code == 400
        printed = [refused.text, httpx.get(f"{running.url}/metrics").text]
    assert not any(PERSON in text for text in printed)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(PERSON.encode() in file.read_bytes() for file in files)
    tables = {f: dataset.dataset(f).to_table() for f in files if f.suffix == ".parquet"}
    assert not any(PERSON in str(table.to_pylist()) for table in tables.values())
    subjects = [
        subject
        for file, table in tables.items()
        if home / "outcomes" in file.parents
        for subject in table[SUBJECT].to_pylist()
    ]
    assert len(subjects) == 30
    assert len(set(subjects)) == 1
    assert any(home / "reviews" in file.parents or file == home / "reviews" for file in files)
