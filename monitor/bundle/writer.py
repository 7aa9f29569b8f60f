"""Write a bundle: beside its place first, verified there, then moved in one step."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from monitor.bundle.archive import harmless
from monitor.bundle.manifest import DEFAULT_PROBE_ROWS, FORMAT_VERSION, MANIFEST_FILE, BundleSpec
from monitor.bundle.reader import Bundle, parse_manifest
from monitor.errors import BundleError, BundleExistsError

__all__ = ["check_target", "write_bundle"]


def write_bundle(
    path: Path | str,
    spec: BundleSpec,
    files: Mapping[str, bytes],
    *,
    replace: bool = False,
    probe_rows: int = DEFAULT_PROBE_ROWS,
) -> Bundle:
    """Write a bundle as a directory, or as a tar file where the path ends in `.tar`.

    Nothing appears at the path until the bundle was read back, its hashes checked and its
    classifier probed; a failure leaves what was there before.

    Args:
        path: Where it goes.
        spec: What it is for.
        files: The bytes of each file by its name in the bundle.
        replace: Whether a bundle that is there may be replaced; anything else never is.
        probe_rows: How many made-up people the classifier is probed with.

    Raises:
        BundleExistsError: Something is there that may not be replaced.
        BundleError: In its other kinds, when what would be written is no sound bundle.
    """
    path = Path(path)
    check_target(path, replace=replace)
    files = {
        name: harmless(data, name) if name.endswith(".pt2") else data
        for name, data in files.items()
    }
    data = _manifest(spec, files)
    bundle = Bundle(
        manifest=parse_manifest(data, str(path)),
        manifest_sha256=hashlib.sha256(data).hexdigest(),
        files=dict(files),
        pinned=True,
    )
    bundle.classifier(probe_rows=probe_rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".evenhand-", dir=path.parent) as scratch:
            draft = Path(scratch, "new")
            write = _write_tar if path.suffix.lower() == ".tar" else _write_directory
            write(draft, {MANIFEST_FILE: data, **files})
            if Bundle.read(draft) != bundle:
                raise BundleError(f"{path}: what was written does not read back the same")
            _move(draft, path, Path(scratch, "old"))
            _sync(path.parent)
    except OSError as error:
        raise BundleError(f"{path}: cannot be written: {error.strerror or error}") from None
    return bundle


def _manifest(spec: BundleSpec, files: Mapping[str, bytes]) -> bytes:
    entries = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in sorted(files.items())
    }
    content = {"format_version": FORMAT_VERSION, **spec.model_dump(mode="json"), "files": entries}
    # No newline at the end: cut short anywhere, it is no JSON any more.
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def check_target(path: Path, *, replace: bool) -> None:
    """Refuse a place where `write_bundle` could not put a bundle, before any work is done.

    Raises:
        BundleExistsError: Something is there that may not be replaced.
        BundleError: The name asks for a compressed archive.
    """
    if path.name.lower().endswith((".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst")):
        raise BundleError(f"{path}: a bundle is a directory or a plain .tar, not compressed")
    if "\0" in str(path):
        raise BundleError(f"{str(path)!r}: no usable path: it holds a null byte")
    try:
        there = path.is_symlink() or path.exists()
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        usable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)[:100]!r}: no usable path: {error}") from None
    if not usable:
        raise BundleError(
            f"{path}: cannot be written: {parent} is no folder that can be written to"
        )
    if not there:
        return
    if not replace:
        raise BundleExistsError(
            f"{path}: already exists; --replace (replace=True) would replace it"
        )
    is_bundle = (path / MANIFEST_FILE).is_file() or (path.is_file() and tarfile.is_tarfile(path))
    if path.is_symlink() or not is_bundle:
        raise BundleExistsError(f"{path}: holds something that is not a bundle; it is left alone")


def _write_directory(path: Path, contents: Mapping[str, bytes]) -> None:
    for name, data in contents.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    for folder in {file.parent for file in (path / name for name in contents)}:
        _sync(folder)


def _write_tar(path: Path, contents: Mapping[str, bytes]) -> None:
    with path.open("wb") as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in contents.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        stream.flush()
        os.fsync(stream.fileno())


def _move(draft: Path, path: Path, aside: Path) -> None:
    """Put the draft in place.

    A directory cannot be renamed over a full one, so the old one steps aside first; whatever
    happens in between, it steps back.
    """
    if not path.is_dir():
        draft.replace(path)
        return
    path.replace(aside)
    try:
        draft.replace(path)
    except BaseException:
        aside.replace(path)
        raise
    shutil.rmtree(aside)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
