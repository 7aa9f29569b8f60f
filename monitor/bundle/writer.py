"""Writes a bundle to a temporary path, verifies it there, and renames it."""

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

from monitor.bundle.archive import sanitize_archive
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

    The bundle is read back, verified and its classifier tested before it is renamed to the path; a
    failure leaves an existing bundle unchanged.

    Args:
        path: Path of the new bundle.
        spec: Description of the model.
        files: Content of the files by name.
        replace: Whether to replace an existing bundle; other files are never replaced.
        probe_rows: Number of probe rows that the classifier is tested on.

    Raises:
        BundleExistsError: The path exists and may not be replaced.
        BundleError: The bundle is invalid or cannot be written.
    """
    path = Path(path)
    check_target(path, replace=replace)
    files = {
        name: sanitize_archive(data, name) if name.endswith(".pt2") else data
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
                raise BundleError(
                    f"{path}: the written files differ from the bundle; check the disk"
                )
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
    # No newline at the end, so that a truncated manifest is never valid JSON.
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def check_target(path: Path, *, replace: bool) -> None:
    """Check that `write_bundle` can write to a path, before any work is done.

    Raises:
        BundleExistsError: The path exists and may not be replaced.
        BundleError: The path cannot be written, or its name is that of a compressed archive.
    """
    if path.name.lower().endswith((".gz", ".tgz", ".zip", ".bz2", ".xz", ".zst")):
        raise BundleError(f"{path}: bundles are not compressed; use a directory or a .tar file")
    if "\0" in str(path):
        raise BundleError(f"{str(path)!r}: not a valid path: it contains a null byte")
    try:
        exists = path.is_symlink() or path.exists()
        parent = next(folder for folder in path.absolute().parents if folder.exists())
        usable = parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)[:100]!r}: not a valid path: {error}") from None
    if not usable:
        raise BundleError(f"{path}: cannot be written: {parent} is not a writable directory")
    if not exists:
        return
    if not replace:
        raise BundleExistsError(
            f"{path}: already exists; use --replace (replace=True) to replace it"
        )
    is_bundle = (path / MANIFEST_FILE).is_file() or (path.is_file() and tarfile.is_tarfile(path))
    if path.is_symlink() or not is_bundle:
        raise BundleExistsError(f"{path}: exists and is not a bundle; it was not changed")


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


def _move(draft: Path, path: Path, old: Path) -> None:
    """Rename the draft to the path.

    A directory cannot replace a directory that is not empty, so the old one is renamed first, and
    renamed back on failure.
    """
    if not path.is_dir():
        draft.replace(path)
        return
    path.replace(old)
    try:
        draft.replace(path)
    except BaseException:
        old.replace(path)
        raise
    shutil.rmtree(old)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
