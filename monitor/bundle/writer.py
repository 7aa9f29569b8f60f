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
from monitor.bundle.manifest import FORMAT_VERSION, MANIFEST_FILE, BundleSpec
from monitor.bundle.reader import DEFAULT_PROBE_ROWS, Bundle
from monitor.errors import BundleError, BundleExistsError

__all__ = ["write_bundle"]


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
    _refuse_to_overwrite(path, replace=replace)
    files = {
        name: harmless(data, name) if name.endswith(".pt2") else data
        for name, data in files.items()
    }
    contents = {MANIFEST_FILE: _manifest(spec, files), **files}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".evenhand-", dir=path.parent) as scratch:
            draft = Path(scratch, path.name)
            write = _write_tar if path.suffix == ".tar" else _write_directory
            write(draft, contents)
            bundle = Bundle.read(draft)
            bundle.classifier(probe_rows=probe_rows)
            _move(draft, path, Path(scratch, "replaced"))
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


def _refuse_to_overwrite(path: Path, *, replace: bool) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if not replace:
        raise BundleExistsError(f"{path}: already exists")
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
    """Put the draft in place; a directory cannot be renamed over a full one, so it steps aside."""
    if not path.is_dir():
        draft.replace(path)
        return
    path.replace(aside)
    try:
        draft.replace(path)
    except OSError:
        aside.replace(path)
        raise
    shutil.rmtree(aside)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
