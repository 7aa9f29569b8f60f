"""Where a bundle's bytes come from: a directory, or a tar file that is never unpacked."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from monitor.errors import BundleError, BundleNotFoundError, BundleTamperedError

__all__ = ["read_files"]


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
    except tarfile.TarError as error:
        raise BundleTamperedError(
            f"{path}: truncated, or not a plain tar file ({error}); a bundle is a directory or an "
            "uncompressed tar"
        ) from None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    raise BundleNotFoundError(f"{path}: no such bundle; expected a directory or a .tar file")


def _directory(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    for folder, subfolders, names in os.walk(path, onerror=_raise):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            # Mounted volumes and desktops leave dot files behind; nothing of ours begins so.
            if name.startswith("."):
                continue
            file = Path(folder, name)
            if not file.is_file():
                raise BundleTamperedError(f"{path}: {name} is not a regular file")
            with file.open("rb") as stream:
                yield file.relative_to(path).as_posix(), file.stat().st_size, stream


def _tar(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    for member in tar:
        if member.isdir():
            continue
        stream = tar.extractfile(member) if member.isfile() else None
        if stream is None:
            raise BundleTamperedError(f"{path}: {member.name} is not a regular file")
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
