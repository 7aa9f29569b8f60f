"""A bundle is read as it was written, or rejected with a clear message."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor import Bundle, write_bundle
from monitor.errors import (
    BundleError,
    BundleNotFoundError,
    BundleTamperedError,
    ManifestError,
)
from tests.bundles import exported_classifier, small_spec

FILES = ["classifier.pt2", "maps.npz", "kernel/avx2/kernel.so"]
# Positions in a file, as a share of its length.
POSITIONS = st.floats(0, 1, exclude_max=True)

# Each example changes files of the fixture and restores them.
changes_files = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def test_a_bundle_is_read_as_it_was_written(bundle_path):
    bundle = Bundle.read(bundle_path)
    spec = small_spec()
    assert {name: getattr(bundle.manifest, name) for name in type(spec).model_fields} == dict(spec)
    assert bundle.files["classifier.pt2"] == exported_classifier()
    assert sorted(bundle.files) == sorted(FILES)


def test_a_tar_contains_the_same_bundle_as_a_directory(bundle_path, tmp_path):
    bundle = Bundle.read(bundle_path)
    write_bundle(tmp_path / "b.tar", small_spec(), bundle.files)
    assert Bundle.read(tmp_path / "b.tar") == bundle


def test_a_tar_created_by_hand_is_read(bundle_path, tmp_path):
    """`tar -cf b.tar -C bundle .` puts "./" before every name and adds folders."""
    with tarfile.open(tmp_path / "b.tar", "w") as tar:
        tar.add(bundle_path, ".")
    assert Bundle.read(tmp_path / "b.tar") == Bundle.read(bundle_path)


@changes_files
@given(name=st.sampled_from(FILES), position=POSITIONS, bit=st.integers(0, 7))
def test_a_flipped_bit_in_any_file_is_detected(bundle_path, name, position, bit):
    with flipped(bundle_path / name, position, bit), pytest.raises(BundleTamperedError, match=name):
        Bundle.read(bundle_path)


@changes_files
@given(position=POSITIONS, bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_pinned_manifest_is_detected(bundle_path, position, bit):
    pin = Bundle.read(bundle_path).manifest_sha256
    manifest = flipped(bundle_path / "manifest.json", position, bit)
    with manifest, pytest.raises(BundleTamperedError, match="pinned"):
        Bundle.read(bundle_path, manifest_sha256=pin)


@changes_files
@given(position=POSITIONS, bit=st.integers(0, 7))
def test_a_flipped_bit_in_an_unpinned_manifest_raises_no_other_error(bundle_path, position, bit):
    with flipped(bundle_path / "manifest.json", position, bit):
        try:
            Bundle.read(bundle_path)
        except BundleError as error:
            assert str(bundle_path) in str(error)  # noqa: PT017 - some flips leave a valid manifest


@changes_files
@given(name=st.sampled_from([*FILES, "manifest.json"]), position=POSITIONS)
def test_a_truncated_file_is_detected(bundle_path, name, position):
    data = (bundle_path / name).read_bytes()
    (bundle_path / name).write_bytes(data[: int(position * len(data))])
    try:
        with pytest.raises((BundleTamperedError, ManifestError)):
            Bundle.read(bundle_path)
    finally:
        (bundle_path / name).write_bytes(data)


@changes_files
@given(position=POSITIONS)
def test_a_truncated_tar_is_detected(bundle_path, position):
    tar = bundle_path.with_suffix(".tar")
    if not tar.exists():
        write_bundle(tar, small_spec(), Bundle.read(bundle_path).files)
    # Past the last file a tar holds only padding.
    last = exported_classifier()[-64:]
    data = tar.read_bytes()
    meaningful = data.rindex(b"some maps") + 9
    assert data.rindex(last) < meaningful
    cut = tar.with_name("cut.tar")
    cut.write_bytes(data[: int(position * meaningful)])
    with pytest.raises((BundleTamperedError, BundleNotFoundError)):
        Bundle.read(cut)


class flipped:  # noqa: N801 - reads as a phrase: with flipped(file, …)
    """Flip one bit of a file within a with-block."""

    def __init__(self, file: Path, position: float, bit: int) -> None:
        self.file, self.data = file, file.read_bytes()
        changed = bytearray(self.data)
        changed[int(position * len(changed))] ^= 1 << bit
        self.file.write_bytes(changed)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.file.write_bytes(self.data)


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(BundleNotFoundError, match=r"nowhere: no such bundle"):
        Bundle.read(tmp_path / "nowhere")


def test_a_path_that_is_neither_folder_nor_file_is_named():
    with pytest.raises(BundleNotFoundError, match=r"neither a directory nor a \.tar file"):
        Bundle.read("/dev/null")


def test_a_folder_without_manifest_is_not_read(tmp_path, monkeypatch):
    """The folder may be arbitrarily large."""
    (tmp_path / "video").write_bytes(b"x" * 1000)
    monkeypatch.setattr("os.walk", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(BundleNotFoundError, match="is not a bundle"):
        Bundle.read(tmp_path)


def test_links_to_directories_are_followed(bundle_path, tmp_path):
    (bundle_path / "kernel").rename(tmp_path / "elsewhere")
    (bundle_path / "kernel").symlink_to(tmp_path / "elsewhere")
    Bundle.read(bundle_path)


def test_a_loop_of_links_is_rejected(bundle_path):
    (bundle_path / "kernel" / "loop").symlink_to(bundle_path / "kernel")
    with pytest.raises(BundleTamperedError):
        Bundle.read(bundle_path)


def test_a_directory_that_is_not_a_bundle_is_named(tmp_path):
    with pytest.raises(BundleNotFoundError, match=r"contains no manifest\.json"):
        Bundle.read(tmp_path)


def test_a_file_that_is_not_a_tar_is_named(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"hello" * 1000)
    with pytest.raises(BundleTamperedError, match=r"x\.tar: truncated, or not an uncompressed tar"):
        Bundle.read(tmp_path / "x.tar")


def test_a_missing_file_is_named(bundle_path):
    (bundle_path / "maps.npz").unlink()
    with pytest.raises(BundleTamperedError, match=r"maps\.npz is missing"):
        Bundle.read(bundle_path)


def test_an_unlisted_file_is_named(bundle_path):
    (bundle_path / "kernel" / "evil.so").write_bytes(b"")
    with pytest.raises(BundleTamperedError, match=r"kernel/evil\.so is not listed"):
        Bundle.read(bundle_path)


def test_dot_files_are_ignored(bundle_path):
    (bundle_path / ".DS_Store").write_bytes(b"x")
    (bundle_path / "..2026_01_01").mkdir()
    (bundle_path / "..2026_01_01" / "manifest.json").write_bytes(b"{}")
    Bundle.read(bundle_path)


def test_a_bundle_over_the_size_limit_is_rejected(bundle_path):
    with pytest.raises(BundleError, match=r"larger than 1000 bytes"):
        Bundle.read(bundle_path, max_bytes=1000)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_tar_with_links_or_devices_is_rejected(kind, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        member = tarfile.TarInfo("manifest.json")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    with pytest.raises(BundleTamperedError, match=r"'manifest\.json' is not a regular file"):
        Bundle.read(tmp_path / "x.tar")


def test_a_sparse_file_in_a_tar_is_rejected(tmp_path):
    """It could expand to any size."""
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("manifest.json")
        member.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.map": "0,0",
            "GNU.sparse.size": str(2**33),
        }
        tar.addfile(member)
    with pytest.raises(BundleTamperedError, match="not a regular file"):
        Bundle.read(tmp_path / "x.tar")


@pytest.mark.parametrize("value", ["x", "-5"])
def test_a_tar_with_a_malformed_header_is_rejected(value, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("manifest.json")
        member.pax_headers = {"GNU.sparse.size": value, "GNU.sparse.map": value, "size": value}
        tar.addfile(member)
    with pytest.raises(BundleError):
        Bundle.read(tmp_path / "x.tar")


def test_a_duplicate_file_in_a_tar_is_rejected(bundle_path, tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(bundle_path / "manifest.json", "manifest.json")
        tar.add(bundle_path / "manifest.json", "./manifest.json")
    with pytest.raises(BundleTamperedError, match=r"two files named manifest\.json"):
        Bundle.read(tmp_path / "x.tar")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(colour="red"), "unknown field colour"),
        (lambda m: m["decision"].update(treshold=0.2), r"unknown field decision\.treshold"),
        (lambda m: m.pop("features"), "features: Field required"),
        (
            lambda m: m["decision"].update(threshold=2),
            r"decision\.threshold: .*less than 1, not 2",
        ),
        (
            lambda m: m.update(format_version=2),
            "2; this version of evenhand supports 1",
        ),
        (lambda m: m.update(format_version=True), "format_version True"),
        (lambda m: m.pop("format_version"), "has no format_version"),
        (
            lambda m: m["decision"].update(class_names=["no", "no"]),
            "classes have the name 'no'",
        ),
        (lambda m: m["fitted"].update(at=5), r"fitted\.at: must be a time"),
        (lambda m: m["fitted"].update(notes="a\nb"), r"fitted\.notes"),
        (lambda m: m["fitted"].update(notes="\ud800"), r"fitted\.notes"),
        (lambda m: m.update({"a\nb": 1}), r"unknown field a\\nb"),
        (lambda m: m["features"][0].update(low=-1e308, high=1e308), r"features\.0\.low"),
        (lambda m: m["one_hot_groups"][0].update(name="income"), "'income' appears twice"),
        (lambda m: m["files"].update({"../x": m["files"]["maps.npz"]}), r"files\.\.\./x"),
        (lambda m: m["files"].pop("classifier.pt2"), r"do not contain the classifier"),
        (lambda m: m["features"].pop(), "which is not a feature of kind onehot"),
        (lambda m: m["features"].reverse(), None),
    ],
)
def test_an_invalid_manifest_names_the_field(bundle_path, change, message):
    file = bundle_path / "manifest.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    if message is None:
        Bundle.read(bundle_path)
    else:
        with pytest.raises(ManifestError, match=message):
            Bundle.read(bundle_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"a":1,"a":2}', "[" * 100_000])
def test_a_file_that_is_not_a_manifest_is_rejected(bundle_path, text):
    (bundle_path / "manifest.json").write_text(text)
    with pytest.raises(ManifestError):
        Bundle.read(bundle_path)


def test_the_bytes_that_are_used_are_the_bytes_that_were_hashed(bundle_path):
    """Later changes of the files have no effect, because they are read once."""
    bundle = Bundle.read(bundle_path)
    shutil.rmtree(bundle_path)
    bundle.classifier()
