"""`evenhand bundle` prints to the right stream with the right exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor import Bundle, write_bundle
from tests.bundles import exported_classifier, small_module, small_spec
from tests.commands import evenhand
from tests.monitor.bundle.test_reader import FILES, POSITIONS, flipped


def test_inspect_describes_a_bundle(bundle_path):
    done = evenhand("bundle", "inspect", bundle_path)
    assert done.exit_code == 0
    for words in (
        "loans, version 3",
        "classifier.pt2, returns logit",
        "5 columns: 1 numeric, 1 integer, 1 binary, 2 onehot",
        "sex: man, woman (not a feature)",
        "age: young, old (feature owner)",
        "granted if P ≥ 0.4, else refused",
        "granted, not refused",
        "2026-01-02 03:04 UTC on 100 rows",
        Bundle.read(bundle_path).manifest_sha256,
    ):
        assert words in done.stdout


def test_inspect_needs_no_torch(bundle_path):
    code = (
        "import sys; from monitor.cli import main\n"
        f"main(['bundle', 'inspect', {str(bundle_path)!r}], standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_verify_accepts_a_valid_bundle(bundle_path):
    done = evenhand("bundle", "verify", bundle_path)
    assert done.exit_code == 0
    assert "valid: loans version 3, all hashes match" in done.stdout
    assert "tested on 64 probe rows: scores 0." in done.stdout
    assert "no scoring" in done.stdout
    assert "not pinned" in done.stdout


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(FILES), position=POSITIONS, bit=st.integers(0, 7))
def test_verify_detects_a_flipped_bit_in_any_file(bundle_path, name, position, bit):
    with flipped(bundle_path / name, position, bit):
        assert_one_message(evenhand("bundle", "verify", bundle_path), f"{name} differs")


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=POSITIONS, bit=st.integers(0, 7))
def test_verify_detects_a_flipped_bit_in_a_pinned_manifest(bundle_path, position, bit):
    pin = Bundle.read(bundle_path).manifest_sha256
    with flipped(bundle_path / "manifest.json", position, bit):
        done = evenhand("bundle", "verify", bundle_path, "--pin", pin)
    assert_one_message(done, f"{pin} is pinned")


def test_verify_takes_bundle_and_pin_from_a_config(bundle_path, tmp_path):
    config = tmp_path / "evenhand.yaml"
    pin = Bundle.read(bundle_path).manifest_sha256
    config.write_text(f"bundle:\n  path: {bundle_path}\n  manifest_sha256: {pin}\n")
    done = evenhand("bundle", "verify", "--config", config)
    assert done.exit_code == 0
    assert f"manifest digest (pinned): {pin}" in done.stdout
    config.write_text(f"bundle:\n  path: {bundle_path}\n  manifest_sha256: {'f' * 64}\n")
    assert_one_message(evenhand("bundle", "verify", "--config", config), "pinned")


def missing(path: Path) -> None:
    for file in sorted(path.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    path.rmdir()


def truncated(path: Path) -> None:
    (path / "classifier.pt2").write_bytes(b"PK")


def unknown_field(path: Path) -> None:
    rewrite_manifest(path, lambda manifest: manifest.update(colour="red"))


def another_width(path: Path) -> None:
    def drop_a_feature(manifest):
        manifest["features"].pop(0)

    rewrite_manifest(path, drop_a_feature)


def pickled(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(small_module(), buffer)
    replace_classifier(path, buffer.getvalue(), "classifier.pt")


def rewrite_manifest(path: Path, change) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(manifest))


def replace_classifier(path: Path, data: bytes, name: str) -> None:
    import hashlib

    (path / "classifier.pt2").unlink()
    (path / name).write_bytes(data)

    def relist(manifest):
        del manifest["files"]["classifier.pt2"]
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        manifest["files"][name] = entry
        manifest["classifier"]["file"] = name

    rewrite_manifest(path, relist)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing, "no such bundle"),
        (truncated, "classifier.pt2 has 2 bytes"),
        (unknown_field, "unknown field colour"),
        (another_width, "takes 5 columns, but the manifest lists 4 features"),
        (pickled, "pickle, which could run code"),
    ],
)
def test_an_invalid_bundle_gives_one_message_and_exit_code_2(bundle_path, spoil, message):
    spoil(bundle_path)
    assert_one_message(evenhand("bundle", "verify", bundle_path), message)


def assert_one_message(done, message: str) -> None:
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("pin", ["", "abc", "sha256:" + "0" * 64])
def test_a_pin_that_is_not_a_digest_is_rejected(bundle_path, pin):
    done = evenhand("bundle", "verify", bundle_path, "--pin", pin)
    assert done.exit_code == 2
    assert "--pin: expected a SHA-256 digest" in done.stderr


def test_a_pin_may_be_in_capitals(bundle_path):
    pin = Bundle.read(bundle_path).manifest_sha256.upper()
    assert evenhand("bundle", "verify", bundle_path, "--pin", pin).exit_code == 0


def test_an_unreadable_file_is_named(bundle_path, monkeypatch):
    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    done = evenhand("bundle", "verify", bundle_path)
    assert_one_message(done, "classifier.pt2: cannot be read: Permission denied")


def test_verify_uses_the_limits_of_the_config(bundle_path, monkeypatch):
    monkeypatch.setenv("EVENHAND_BUNDLE_PROBE_ROWS", "7")
    monkeypatch.setenv("EVENHAND_COMPUTE_THREADS", "2")
    done = evenhand("bundle", "verify", bundle_path)
    assert "tested on 7 probe rows" in done.stdout
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    monkeypatch.setenv("EVENHAND_BUNDLE_MAX_BYTES", "100")
    assert_one_message(evenhand("bundle", "verify", bundle_path), "larger than 100 bytes")


def test_verify_without_a_path_says_how_to_set_one():
    done = evenhand("bundle", "verify")
    assert done.exit_code == 2
    assert "give a bundle" in done.stderr


def test_the_digest_equals_that_of_sha256sum(tmp_path):
    written = write_bundle(tmp_path / "b", small_spec(), {"classifier.pt2": exported_classifier()})
    printed = subprocess.run(
        ["sha256sum", tmp_path / "b" / "manifest.json"], check=True, capture_output=True, text=True
    )
    assert printed.stdout.split()[0] == written.manifest_sha256
