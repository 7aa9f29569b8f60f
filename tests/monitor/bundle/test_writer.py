"""A bundle is written completely and validly, or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from torch import nn

from monitor import Bundle, export_classifier, write_bundle
from monitor.errors import (
    BundleError,
    BundleExistsError,
    ClassifierError,
    ManifestError,
    UnsafeArchiveError,
)
from tests.bundles import WIDTH, exported_classifier, small_spec

GOOD = {"classifier.pt2": exported_classifier()}


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_the_returned_bundle_equals_the_written_one(name, tmp_path):
    written = write_bundle(tmp_path / "deep" / name, small_spec(), GOOD)
    assert Bundle.read(tmp_path / "deep" / name) == written
    assert [p.name for p in (tmp_path / "deep").iterdir()] == [name]


def nan_classifier() -> bytes:
    module = nn.Linear(WIDTH, 1)
    torch.nn.init.constant_(module.bias, float("nan"))
    return export_classifier(module, WIDTH)


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
@pytest.mark.parametrize(
    ("files", "error"),
    [
        (lambda: {"classifier.pt2": nan_classifier()}, ClassifierError),
        (lambda: {"classifier.pt2": exported_classifier()[:100]}, UnsafeArchiveError),
        (lambda: {**GOOD, "notes.txt": b""}, ManifestError),
        (lambda: {"maps.npz": b""}, ManifestError),
    ],
)
def test_an_invalid_bundle_writes_nothing(name, files, error, tmp_path):
    with pytest.raises(error):
        write_bundle(tmp_path / name, small_spec(), files())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_failed_replacement_leaves_the_old_bundle(name, tmp_path):
    old = write_bundle(tmp_path / name, small_spec(), GOOD)
    with pytest.raises(ClassifierError):
        write_bundle(
            tmp_path / name, small_spec(), {"classifier.pt2": nan_classifier()}, replace=True
        )
    assert Bundle.read(tmp_path / name) == old
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_bundle_is_replaced_only_on_request(name, tmp_path):
    write_bundle(tmp_path / name, small_spec(), GOOD)
    with pytest.raises(BundleExistsError, match="already exists"):
        write_bundle(tmp_path / name, small_spec(), GOOD)
    new = write_bundle(tmp_path / name, small_spec(), {**GOOD, "maps.npz": b"new"}, replace=True)
    assert Bundle.read(tmp_path / name) == new
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["bundle.tar.gz", "bundle.zip", "bundle.TGZ"])
def test_a_compressed_bundle_is_rejected(name, tmp_path):
    with pytest.raises(BundleError, match=r"a directory or a \.tar"):
        write_bundle(tmp_path / name, small_spec(), GOOD)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_never_replaced(tmp_path):
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleExistsError, match="not a bundle; it was not changed"):
        write_bundle(tmp_path / "bundle", small_spec(), GOOD, replace=True)
    assert (tmp_path / "bundle" / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("name", ["bundle", "bundle.tar"])
def test_a_full_disk_is_a_clear_error_and_writes_nothing(name, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BundleError, match="cannot be written: No space left on device"):
        write_bundle(tmp_path / name, small_spec(), GOOD)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(errno.EIO, "Input/output error"), BundleError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_failed_rename_restores_the_old_bundle(tmp_path, monkeypatch, failure, expected):
    old = write_bundle(tmp_path / "bundle", small_spec(), GOOD)
    real = Path.replace

    def fail_to_replace(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise failure
        return real(self, target)

    monkeypatch.setattr(Path, "replace", fail_to_replace)
    with pytest.raises(expected):
        write_bundle(tmp_path / "bundle", small_spec(), GOOD, replace=True)
    assert Bundle.read(tmp_path / "bundle") == old


def test_a_link_is_never_replaced(tmp_path):
    write_bundle(tmp_path / "bundle", small_spec(), GOOD)
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    with pytest.raises(BundleExistsError, match="was not changed"):
        write_bundle(tmp_path / "link", small_spec(), GOOD, replace=True)


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "kernel/../../escaped"])
def test_a_file_outside_the_bundle_is_never_written(name, tmp_path):
    with pytest.raises(ManifestError):
        write_bundle(tmp_path / "deep" / "bundle", small_spec(), {**GOOD, name: b"x"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 300, "nul\0"])
def test_an_invalid_path_is_rejected(name, tmp_path):
    with pytest.raises(BundleError, match="not a valid path"):
        write_bundle(tmp_path / name, small_spec(), GOOD)


def test_a_path_below_a_file_is_rejected(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="is not a writable directory"):
        write_bundle(tmp_path / "file" / "bundle", small_spec(), GOOD)
