"""Stores write files atomically and never print credentials."""

from __future__ import annotations

import stat
from pathlib import Path
from unittest import mock

import pytest

from monitor.errors import TrafficError
from monitor.traffic.store import Store, StoredFile


def test_a_file_is_read_as_it_was_written(tmp_path):
    store = Store.open(tmp_path / "new" / "log")
    store.put("a/b/one", b"first")
    store.put("a/b/one", b"second")
    source = tmp_path / "source"
    source.write_bytes(b"x" * 3_000_000)
    store.put_file("a/two.parquet", source)
    assert store.read("a/b/one") == b"second"
    assert store.files() == [
        StoredFile(path="a/b/one", bytes=6),
        StoredFile(path="a/two.parquet", bytes=3_000_000),
    ]
    assert store.files(suffix=".parquet") == store.files("a", ".parquet") == store.files()[1:]
    assert store.files("nowhere") == []
    assert store.exists("a/b/one")
    assert not store.exists("a/b")
    assert store.sha256("a/b/one") == (
        "16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4"
    )
    with store.open_file("a/two.parquet") as file:
        assert file.size() == 3_000_000


def test_directories_and_files_have_the_permissions_of_the_mode(tmp_path):
    for mode, file_mode in ((0o750, 0o640), (0o700, 0o600)):
        store = Store.open(tmp_path / oct(mode), mode=mode)
        store.put("a/one", b"")
        assert stat.S_IMODE((tmp_path / oct(mode) / "a").stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / oct(mode) / "a" / "one").stat().st_mode) == file_mode


def test_a_failed_write_leaves_no_file(tmp_path):
    store = Store.open(tmp_path)
    store.put("one", b"before")

    def chunks(_: Path):
        yield b"some"
        raise OSError("the disk of the source fails")

    with (
        mock.patch("monitor.traffic.store._chunks", chunks),
        pytest.raises(OSError, match="source fails"),
    ):
        store.put_file("one", tmp_path / "one")
    assert store.read("one") == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


def test_drafts_are_not_listed(tmp_path):
    store = Store.open(tmp_path)
    store.put("a/.one.parquet.77", b"half")
    assert store.files() == []


def test_removing_a_file_removes_empty_directories(tmp_path):
    store = Store.open(tmp_path / "log")
    store.put("a/b/one", b"1")
    store.put("a/c/two", b"2")
    store.remove("a/b/one")
    assert not (tmp_path / "log" / "a" / "b").exists()
    store.remove("a/c/two")
    assert list((tmp_path / "log").iterdir()) == []
    with pytest.raises(OSError, match="two"):
        store.remove("a/c/two")


ADDRESS = (
    "s3://bucket/some/prefix"
    "?endpoint_override=http%3A%2F%2F127.0.0.1%3A1&region=us-east-1&scheme=http"
)


def test_an_s3_address_is_opened_without_a_request():
    store = Store.open(ADDRESS)
    assert store.root == "bucket/some/prefix"
    assert not store.is_local
    assert store.path("a/b") == "bucket/some/prefix/a/b"


def test_disabled_options_of_an_address_stay_disabled():
    store = Store.open("s3://bucket/prefix?region=us-east-1&allow_bucket_deletion=false")
    _, (options,) = store.filesystem.__reduce__()
    assert options["allow_bucket_deletion"] is False


@pytest.mark.parametrize(
    "address",
    [
        "nonsense://KEY:SECRET@bucket/prefix",
        "s3://KEY:SECRET@bucket/prefix?region=us-east-1",
        "s3://SECRET@bucket/prefix?region=us-east-1",
    ],
)
def test_an_address_with_credentials_is_rejected_without_printing_them(address):
    with pytest.raises(TrafficError, match="environment") as error:
        Store.open(address)
    assert "SECRET" not in str(error.value)


@pytest.mark.parametrize(
    "address",
    ["nonsense://bucket/prefix", "s3://bucket/prefix?region=us-east-1&nonsense=1", "s3:///"],
)
def test_an_unsupported_address_is_rejected_by_name(address):
    with pytest.raises(TrafficError, match="unsupported storage address") as error:
        Store.open(address)
    assert str(error.value).startswith(address)
