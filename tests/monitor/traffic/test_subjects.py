"""Subjects of requests: a pseudonym on the outcomes' side, and nothing anywhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import dataset

from monitor import AsyncClient
from monitor.batching import Waiting
from monitor.errors import BadRequestError
from monitor.request import checked_subject
from monitor.server import Server
from monitor.traffic.columns import SUBJECT
from monitor.traffic.erasure import LogLocation, erase
from monitor.traffic.outcomes import Outcome, with_subjects
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store
from tests.serving import PEOPLE, served

PERSON, OTHER = "erika.mustermann@example.org", "max.mustermann@example.org"
KEY = b"a key of sixteen bytes or more"


def read(folder: Path) -> pa.Table:
    files = sorted(folder.rglob("*.parquet"))
    return pa.concat_tables(
        [dataset.dataset(f).to_table() for f in files], promote_options="default"
    )


def parts(folder: Path, *, subjects: bool = True) -> dict[str, Any]:
    key = folder / "key"
    key.write_bytes(KEY)
    return {
        "traffic": {"path": folder / "log", "key_path": key},
        "outcomes": {"path": folder / "outcomes", "subjects": subjects},
    }


async def send(server: Server) -> str:
    """Four rows of one person in two requests, one of another, and one without a subject."""
    async with AsyncClient(f"127.0.0.1:{server.grpc.port}", model="lending") as client:
        for name, rows, subject in (
            ("first", PEOPLE.features[:3], PERSON),
            ("other", PEOPLE.features[3:4], OTHER),
            ("nobody", PEOPLE.features[4:5], ""),
        ):
            await client.predict(rows, request_id=name, subject=subject)
    row = PEOPLE.features[5:6]
    body = {
        "id": "again",
        "parameters": {SUBJECT: PERSON},
        "inputs": [
            {
                "name": "features",
                "datatype": "FP32",
                "shape": list(row.shape),
                "data": row.ravel().tolist(),
            }
        ],
    }
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.rest.port}") as rest:
        answer = await rest.post("/v2/models/lending/infer", json=body)
        refused = [
            await rest.post("/v2/models/lending/infer", json={**body, "parameters": {SUBJECT: bad}})
            for bad in (7, "", f"{PERSON}\n", PERSON * 20)
        ]
        metrics = await rest.get("/metrics")
    assert answer.status_code == 200
    assert [response.status_code for response in refused] == [400] * 4
    assert all("evenhand_subject" in response.text for response in refused)
    return metrics.text + answer.text + "".join(response.text for response in refused)


def every_byte(folder: Path) -> bytes:
    """Every byte of every file, and every string in its compressed pages."""
    contents = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    for file in folder.rglob("*.parquet"):
        contents += [str(c.to_pylist()).encode() for c in dataset.dataset(file).to_table().columns]
    return b"".join(contents)


def test_subjects_are_recorded_as_pseudonyms_with_the_outcomes_only(lending, tmp_path):
    printed = served(lending, send, **parts(tmp_path))
    table, pseudonyms = read(tmp_path / "outcomes"), Pseudonyms(KEY)
    by_row = {(r["request_id"], r["row"]): r[SUBJECT] for r in table.to_pylist()}
    person, other = map(pseudonyms.of_subject, (PERSON, OTHER))
    assert by_row == {
        **{(pseudonyms.of("first"), row): person for row in range(3)},
        (pseudonyms.of("other"), 0): other,
        (pseudonyms.of("again"), 0): person,
    }
    assert SUBJECT not in read(tmp_path / "log").column_names
    assert len({person, other, pseudonyms.of(PERSON)}) == 3
    for name in (PERSON, OTHER):
        assert name.encode() not in every_byte(tmp_path)
        assert name not in printed
    assert person.encode() not in every_byte(tmp_path / "log")


def test_subjects_are_ignored_unless_the_config_asks_for_them(lending, tmp_path):
    served(lending, send, **parts(tmp_path, subjects=False))
    assert not list((tmp_path / "outcomes").rglob("*.parquet"))
    assert PERSON.encode() not in every_byte(tmp_path)


def test_erasing_a_request_erases_its_subject(lending, tmp_path):
    served(lending, send, **parts(tmp_path))
    pseudonyms = Pseudonyms(KEY)
    assert pseudonyms.of_subject(OTHER).encode() in every_byte(tmp_path / "outcomes")
    stores = [Store.open(tmp_path / name) for name in ("log", "outcomes")]
    erase("other", [LogLocation(store=store, home=store) for store in stores], pseudonyms)
    assert pseudonyms.of_subject(OTHER).encode() not in every_byte(tmp_path)
    assert pseudonyms.of_subject(PERSON) in read(tmp_path / "outcomes")[SUBJECT].to_pylist()


@pytest.mark.parametrize("bad", ["", None, 7, True, "a\nb", "a" * 201, ["a"]])
def test_a_bad_subject_is_refused_without_its_value(bad):
    with pytest.raises(BadRequestError, match=r"must be a text of 1 to 200") as caught:
        checked_subject(bad)
    assert not bad or str(bad) not in str(caught.value)


def test_rows_get_the_subject_of_their_request_next_to_their_groups():
    async def batch() -> list[Waiting]:
        rows, future = np.zeros((2, 1), np.float32), asyncio.get_running_loop().create_future
        return [
            Waiting("a", 4, rows, 0.0, future(), None, "one"),
            Waiting("b", 0, rows, 0.0, future()),
        ]

    groups = [Outcome(request_id=name, row=row, groups={"sex": "man"}) for name, row in
              (("a", 4), ("b", 1))]  # fmt: skip
    result = with_subjects(groups, asyncio.run(batch()))
    assert [(o.request_id, o.row, dict(o.groups), o.subject) for o in result] == [
        ("a", 4, {"sex": "man"}, "one"),
        ("b", 1, {"sex": "man"}, ""),
        ("a", 5, {}, "one"),
    ]
