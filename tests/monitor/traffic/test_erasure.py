"""Erasure removes a request from all files, and changes no other rows."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import compute as pc
from pyarrow import dataset
from pyarrow import parquet as pq

from monitor.server import Server
from monitor.traffic.erasure import LogLocation, Receipt, erase
from monitor.traffic.importing import import_outcomes
from monitor.traffic.ledger import read_ledger
from monitor.traffic.privacy import Pseudonyms
from monitor.traffic.store import Store
from tests.commands import evenhand
from tests.serving import served
from tests.sidecar_log import Logged, send_outcomes, send_requests

ID = "person-8"
PLAIN = Pseudonyms(None)


def locations(logged: Logged) -> list[LogLocation]:
    stores = [Store.open(folder) for folder in (logged.log, logged.outcomes)]
    return [LogLocation(store=store, home=store) for store in stores]


def everything(*folders: Path) -> bytes:
    """Every byte of every file, and every string in its compressed pages."""
    contents = []
    for file in (f for folder in folders for f in folder.rglob("*") if f.is_file()):
        contents.append(file.read_bytes())
        if file.suffix == ".parquet":
            table = dataset.dataset(file).to_table()
            contents += [str(column.to_pylist()).encode() for column in table.columns]
    return b"".join(contents)


def rest_of(folder: Path, names: set[str]) -> str:
    """Digest of the rows of all other requests, with their order and columns."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(file, partitioning=None)
        rest = table.filter(pc.invert(pc.is_in(table["request_id"], pa.array(sorted(names)))))
        digest.update(str(rest.schema).encode() + str(rest.to_pylist()).encode())
    return digest.hexdigest()


def test_all_rows_of_the_request_are_erased_and_no_others(logged):
    assert b"person-8'" in everything(logged.log, logged.outcomes)
    before = [rest_of(folder, {ID}) for folder in (logged.log, logged.outcomes)]
    receipt = erase(ID, locations(logged), PLAIN)
    assert receipt.complete
    assert receipt.rows == 3 + 1
    assert b"person-8'" not in everything(logged.log, logged.outcomes)
    assert b"person-8" not in b"".join(
        f.read_bytes() for f in (*logged.log.rglob("*.parquet"), *logged.outcomes.rglob("*.json"))
    )
    assert [rest_of(folder, {ID}) for folder in (logged.log, logged.outcomes)] == before
    assert ID not in str(receipt.to_dict())


def test_the_ledger_lists_new_digests_and_erased_rows(logged):
    erase(ID, locations(logged), PLAIN)
    store = Store.open(logged.log)
    (entry,), unreadable = read_ledger(store)
    (file,) = entry.files
    assert not unreadable
    assert (file.erased, file.removed) == (3, None)
    assert file.sha256 == store.sha256(file.path)
    assert file.bytes == Path(store.path(file.path)).stat().st_size
    assert file.rows == pq.read_metadata(store.path(file.path)).num_rows


def test_a_file_without_remaining_rows_is_deleted(logged):
    receipts = [erase(f"person-{number}", locations(logged), PLAIN) for number in range(0, 60, 2)]
    assert not list(logged.outcomes.rglob("*.parquet"))
    assert receipts[-1].files[-1].sha256_after == ""
    (entry,), _ = read_ledger(Store.open(logged.outcomes))
    assert entry.files[0].removed == "erased"
    assert entry.files[0].erased == 30


def test_an_unknown_request_changes_no_file(logged):
    files = [f for f in logged.log.rglob("*") if f.is_file()]
    before = {file: file.read_bytes() for file in files}
    receipt = erase("nobody", locations(logged), PLAIN)
    assert receipt.complete
    assert receipt.rows == 0
    assert {file: file.read_bytes() for file in files} == before


def test_an_unreadable_file_makes_the_erasure_incomplete(logged):
    (file,) = logged.outcomes.rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    receipt = erase(ID, locations(logged), PLAIN)
    assert not receipt.complete
    assert file.name in receipt.open[0]
    assert receipt.rows == 3


def test_a_running_sidecar_converts_its_segments_first(lending, tmp_path):
    log, outcomes = tmp_path / "log", tmp_path / "outcomes"
    logged = Logged(log, outcomes, {})

    async def use(server: Server) -> Receipt:
        await send_requests(server, 20)
        await send_outcomes(server, [{"request_id": ID, "label": 1}])
        return await asyncio.to_thread(erase, ID, locations(logged), PLAIN)

    receipt = served(lending, use, traffic={"path": log}, outcomes={"path": outcomes})
    assert receipt.complete
    assert receipt.rows == 4
    assert b"person-8'" not in everything(log, outcomes)
    assert b"person-9'" in everything(log, outcomes)


def test_segments_left_by_a_crash_are_searched(lending, tmp_path):
    live, left = tmp_path / "log", tmp_path / "left"

    async def use(server: Server) -> None:
        await send_requests(server, 20)
        shutil.copytree(live, left)

    served(lending, use, traffic={"path": live})
    assert list(left.rglob("*.segment"))
    store = Store.open(left)
    receipt = erase(ID, [LogLocation(store=store, home=store)], PLAIN)
    assert receipt.complete
    assert receipt.rows == 3
    assert b"person-8'" not in everything(left)
    assert not list(left.rglob("*.segment"))


def test_an_unreadable_segment_is_deleted(logged):
    odd = logged.log / "_segments" / "x.unreadable"
    odd.write_bytes(b"\x01person-8\x02")
    receipt = erase(ID, locations(logged), PLAIN)
    assert not odd.exists()
    assert receipt.deleted == (str(odd),)


def test_a_segment_compacted_later_does_not_restore_the_request(lending, tmp_path):
    """Another sidecar is killed between writing a file and deleting its segment, and restarts."""
    home, store = tmp_path / "home", tmp_path / "store"
    settings = {"path": home, "store": str(store)}
    left = tmp_path / "left"

    async def use(server: Server) -> None:
        await send_requests(server, 20)
        shutil.copytree(home, left)

    served(lending, use, traffic=settings)
    receipt = erase(ID, [LogLocation(store=Store.open(store))], PLAIN)
    assert (receipt.complete, receipt.rows) == (True, 3)
    shutil.rmtree(home)
    left.rename(home)
    served(lending, lambda server: asyncio.sleep(0), traffic=settings)
    assert not list(home.rglob("*.segment"))
    assert b"person-8'" not in everything(store, home)
    assert b"person-9'" in everything(store)
    (entry,), _ = read_ledger(Store.open(store))
    assert entry.files[0].erased == 3


def test_later_rows_with_the_same_id_are_kept(lending, tmp_path):
    settings = {"path": tmp_path}
    served(lending, lambda server: send_requests(server, 20), traffic=settings)
    store = Store.open(tmp_path)
    assert erase(ID, [LogLocation(store=store, home=store)], PLAIN).rows == 3
    served(lending, lambda server: send_requests(server, 20), traffic=settings)
    rows = dataset.dataset(list(map(str, tmp_path.rglob("*.parquet")))).to_table()
    assert pc.sum(pc.equal(rows["request_id"], ID)).as_py() == 3


def test_dictionaries_do_not_contain_erased_values(tmp_path):
    path = tmp_path / "outcomes.csv"
    path.write_text("request_id,group_sex\na,man\nb,unheard-of\n")
    store = Store.open(tmp_path / "out")
    import_outcomes(path, store, PLAIN, model="m")
    assert erase("b", [LogLocation(store=store)], PLAIN).rows == 1
    (file,) = (tmp_path / "out").rglob("*.parquet")
    assert pq.read_table(file, partitioning=None)["group_sex"].chunk(0).dictionary.to_pylist() == [
        "man"
    ]


def test_concurrent_erasures_both_succeed(lending, tmp_path):
    async def use(server: Server) -> list[Receipt]:
        await send_requests(server, 20)
        store = Store.open(tmp_path)
        location = [LogLocation(store=store, home=store)]
        return await asyncio.gather(
            *(asyncio.to_thread(erase, f"person-{n}", location, PLAIN) for n in (5, 8))
        )

    receipts = served(lending, use, traffic={"path": tmp_path})
    assert [receipt.complete for receipt in receipts] == [True, True]
    assert [receipt.rows for receipt in receipts] == [3, 3]
    assert b"person-5'" not in everything(tmp_path)
    assert b"person-8'" not in everything(tmp_path)


def test_a_second_erasure_repairs_a_crash_between_ledger_and_file(logged, monkeypatch):
    def broken(self, inside, source):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_file", broken)
        assert not erase(ID, locations(logged), PLAIN).complete
    assert erase(ID, locations(logged), PLAIN).complete
    store = Store.open(logged.log)
    (entry,), _ = read_ledger(store)
    assert entry.files[0].sha256 == store.sha256(entry.files[0].path)
    assert entry.files[0].erased == 3


def test_old_drafts_are_deleted_and_foreign_files_make_it_incomplete(logged):
    old, new = logged.log / ".a.parquet.draft", logged.log / ".b.parquet.draft"
    for draft in (old, new):
        draft.write_bytes(b"person-8")
    os.utime(old, (0, 0))
    pq.write_table(pa.table({"name": ["person-8"]}), logged.log / "extract.parquet")
    receipt = erase(ID, locations(logged), PLAIN)
    assert receipt.rows == 4
    assert receipt.deleted == (str(old),)
    assert not old.exists()
    assert new.exists()
    assert len(receipt.open) == 1
    assert "extract.parquet" in receipt.open[0]


def test_segments_of_the_config_are_not_used_for_another_log(logged, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(logged.log, other)
    segment = other / "_segments" / "20260101T000000Z-aaaaaaaa-00001.segment"
    segment.write_bytes(b"not to be touched")
    config = tmp_path / "config.yaml"
    config.write_text(f"traffic: {{path: {other}}}\n")
    evenhand("log", "erase", "--config", config, "--log", logged.log, "--request-id", ID)
    assert segment.exists()


def test_pseudonyms_are_erased_with_the_key_and_incomplete_without_it(lending, tmp_path):
    log, key = tmp_path / "log", tmp_path / "key"
    key.write_bytes(os.urandom(32))
    served(
        lending, lambda server: send_requests(server, 20), traffic={"path": log, "key_path": key}
    )
    store = Store.open(log)
    location = [LogLocation(store=store, home=store)]
    assert not erase(ID, location, PLAIN).complete
    assert not erase(ID, location, Pseudonyms(b"x" * 32)).complete
    pseudonyms = Pseudonyms.read(key)
    name = pseudonyms.of(ID)
    assert name.encode() in everything(log)
    receipt = erase(ID, location, pseudonyms)
    assert (receipt.complete, receipt.rows) == (True, 3)
    assert name.encode() not in everything(log)


def test_review_files_are_searched_while_lines_are_appended(logged, tmp_path):
    review = tmp_path / "review"
    review.mkdir()
    file = review / "review-2026-01-01.jsonl"
    lines = [json.dumps({"request_id": f"person-{n}", "row": 0}) for n in (7, 8, 80)]
    file.write_text("\n".join(lines) + "\n")
    receipt = erase(ID, locations(logged), PLAIN, review=review)
    left = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    assert [record["request_id"] for record in left] == ["person-7", "person-80"]
    assert receipt.blanked == (str(file),)
    assert file.stat().st_size == len("\n".join(lines)) + 1


def test_the_command_writes_a_receipt(logged, tmp_path):
    target = tmp_path / "receipt.json"
    options = ("--log", logged.log, "--outcomes", logged.outcomes, "--receipt", target)
    result = evenhand("log", "erase", *options, "--request-id", ID)
    assert result.exit_code == 0
    receipt = json.loads(target.read_text())
    assert receipt["complete"] is True
    assert sum(file["erased"] for file in receipt["files"]) == 4
    assert target.stat().st_mode & 0o777 == 0o600
    digest = hashlib.sha256(f"{receipt['salt']}{ID}".encode()).hexdigest()
    assert receipt["salted_sha256"] == digest
    again = evenhand("log", "erase", *options, "--request-id", ID)
    assert "the request was not found" in again.stderr
    assert again.exit_code == 2


def test_several_requests_are_erased_and_those_not_found_are_named(logged, tmp_path):
    target = tmp_path / "receipts.json"
    options = ("--log", logged.log, "--outcomes", logged.outcomes, "--receipt", target)
    ids = [part for name in ("nobody", ID, "person-7") for part in ("--request-id", name)]
    result = evenhand("log", "erase", *options, *ids)
    assert result.exit_code == 2
    assert "the request was not found: 'nobody'" in result.stderr
    assert "person" not in result.stderr
    counts = [
        sum(f["erased"] for f in receipt["files"]) for receipt in json.loads(target.read_text())
    ]
    assert counts[0] == 0
    assert counts[1] == 4
    assert counts[2] > 0


@pytest.mark.parametrize("options", [(), ("--request-id", "x"), ("--log", ".", "--request-id", "")])
def test_the_command_requires_a_request_id_and_a_location(options):
    assert evenhand("log", "erase", *options).exit_code == 2
