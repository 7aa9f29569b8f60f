"""Where a bundle's bytes come from: a directory, or a tar file that is never unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from monitor.bundle.manifest import MANIFEST_FILE
from monitor.errors import BundleError, BundleNotFoundError, BundleTamperedError

__all__ = ["read_files"]

_DEEPEST = 4


def read_files(path: Path, *, max_bytes: int) -> dict[str, bytes]:
    """Every file of a bundle by its name in it, read once.

    Raises:
        BundleNotFoundError: Nothing is there, or nothing that could be a bundle.
        BundleTamperedError: A tar that is truncated or holds what a bundle never does.
        BundleError: It cannot be read, or is larger than max_bytes.
    """
    try:
        if path.is_dir():
            return _bounded(_directory(path), path, max_bytes)
        if path.is_file():
            with tarfile.open(path, "r:") as tar:
                return _bounded(_tar(tar, path), path, max_bytes)
    except (tarfile.TarError, ValueError, RecursionError, EOFError) as error:
        raise BundleTamperedError(
            f"{path}: truncated, or not a plain tar file ({error}); a bundle is a directory or an "
            "uncompressed tar"
        ) from None
    except OSError as error:
        what = error.filename if isinstance(error.filename, str) else path
        raise BundleError(f"{what}: cannot be read: {error.strerror or error}") from None
    if path.exists():
        raise BundleNotFoundError(f"{path}: neither a directory nor a .tar file")
    raise BundleNotFoundError(f"{path}: no such bundle; expected a directory or a .tar file")


def _directory(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    # Before anything is read: a folder that is no bundle may hold anything.
    if not (path / MANIFEST_FILE).is_file():
        raise BundleNotFoundError(f"{path}: no {MANIFEST_FILE} in it; is it a bundle?")
    # Links are followed, since mounted volumes consist of them; a loop of them is not.
    for folder, subfolders, names in os.walk(path, onerror=_raise, followlinks=True):
        if len(Path(folder).relative_to(path).parts) > _DEEPEST:
            raise BundleTamperedError(f"{path}: folders within folders, as no bundle has")
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            # Mounted volumes and desktops leave dot files behind; nothing of ours begins so.
            if name.startswith("."):
                continue
            file = Path(folder, name)
            if not file.is_file():
                raise BundleTamperedError(f"{path}: {name!r} is not a regular file")
            with file.open("rb") as stream:
                yield file.relative_to(path).as_posix(), file.stat().st_size, stream


def _tar(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    for member in tar:
        if member.isdir():
            continue
        stream = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if stream is None:
            raise BundleTamperedError(f"{path}: {member.name!r} is not a regular file")
        yield member.name.removeprefix("./"), member.size, stream


def _bounded(
    files: Iterator[tuple[str, int, IO[bytes]]], path: Path, max_bytes: int
) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    left = max_bytes
    for name, size, stream in files:
        if name in contents:
            raise BundleTamperedError(f"{path}: {name} is there twice")
        left -= size
        if left < 0:
            raise BundleError(
                f"{path}: larger than the {max_bytes} bytes allowed (bundle.max_bytes)"
            )
        contents[name] = stream.read(size)
        if len(contents[name]) != size:
            raise BundleTamperedError(f"{path}: {name} is truncated")
    return contents


def _raise(error: OSError) -> None:
    raise error
