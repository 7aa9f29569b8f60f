"""Read a bundle: every byte checked against the manifest before anything is used."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from monitor.bundle.manifest import (
    DEFAULT_MAX_BYTES,
    DEFAULT_PROBE_ROWS,
    FORMAT_VERSION,
    MANIFEST_FILE,
    Manifest,
)
from monitor.errors import BundleError, BundleNotFoundError, BundleTamperedError, ManifestError

if TYPE_CHECKING:
    from monitor.bundle.classifier import Classifier

__all__ = ["Bundle", "parse_manifest", "problem_in_words"]

# Deepest folder of a bundle; a loop of links would not end.
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What is deployed beside a model, with every hash checked.

    Attributes:
        manifest: What it is for.
        manifest_sha256: Digest of the manifest's bytes; pin it to trust the rest.
        files: The bytes of every other file, the same bytes that were hashed.
        pinned: Whether whoever reads it named that digest, or made the bundle: only then is native
            code in it run.
    """

    manifest: Manifest = field(repr=False)
    manifest_sha256: str
    files: dict[str, bytes] = field(repr=False)
    pinned: bool = field(default=False, compare=False)

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        manifest_sha256: str | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> Self:
        """Read from a directory or a tar file; a changed byte refuses to load.

        Args:
            path: The directory or tar file.
            manifest_sha256: The pinned digest of the manifest; None trusts the manifest as it is.
            max_bytes: Refuse a bundle larger than this.

        Raises:
            BundleError: In one of its kinds, which say what is wrong and where.
        """
        path = Path(path)
        files = _read_files(path, max_bytes=max_bytes)
        if MANIFEST_FILE not in files:
            raise BundleNotFoundError(f"{path}: no {MANIFEST_FILE} in it; is it a bundle?")
        data = files.pop(MANIFEST_FILE)
        digest = hashlib.sha256(data).hexdigest()
        if manifest_sha256 is not None and digest != manifest_sha256:
            raise BundleTamperedError(
                f"{path}: {MANIFEST_FILE} has digest {digest}, but {manifest_sha256} is pinned"
            )
        manifest = parse_manifest(data, str(path))
        _check_files(manifest, files, path)
        return cls(
            manifest=manifest,
            manifest_sha256=digest,
            files=files,
            pinned=manifest_sha256 is not None,
        )

    def classifier(self, *, probe_rows: int = DEFAULT_PROBE_ROWS) -> Classifier:
        """Load the classifier and probe it; imports torch.

        Raises:
            ClassifierError: It does not do what the manifest says.
        """
        from monitor.bundle.classifier import load_classifier

        file = self.files[self.manifest.classifier.file]
        return load_classifier(file, self.manifest, probe_rows=probe_rows)


def parse_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from its JSON, with errors that name the field."""
    try:
        content = json.loads(data, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{where}: {MANIFEST_FILE} is not valid JSON: {error}") from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise ManifestError(f"{where}: {MANIFEST_FILE} states no format_version; is it a manifest?")
    version = content["format_version"]
    # The version first: a newer format's new fields would else read as mistakes.
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ManifestError(
            f"{where}: {MANIFEST_FILE} has format_version {version!r}; this evenhand reads "
            f"{FORMAT_VERSION}"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        problems = [problem_in_words(detail) for detail in error.errors(include_url=False)]
        shown = "; ".join(problems[:5]) + ("; …" if len(problems) > 5 else "")
        raise ManifestError(f"{where}: {MANIFEST_FILE}: {shown}") from None


def _read_files(path: Path, *, max_bytes: int) -> dict[str, bytes]:
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


def _check_files(manifest: Manifest, files: dict[str, bytes], path: Path) -> None:
    for name, entry in manifest.files.items():
        if name not in files:
            raise BundleTamperedError(f"{path}: {name} is missing")
        if len(files[name]) != entry.bytes:
            raise BundleTamperedError(
                f"{path}: {name} has {len(files[name])} bytes, the manifest says {entry.bytes}"
            )
        if hashlib.sha256(files[name]).hexdigest() != entry.sha256:
            raise BundleTamperedError(f"{path}: {name} differs from its SHA-256 in the manifest")
    if unlisted := sorted(files.keys() - manifest.files.keys()):
        raise BundleTamperedError(f"{path}: {unlisted[0]} is not listed in the manifest")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a field appears twice")
    return content


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:80])


def problem_in_words(detail: Any) -> str:
    """One of pydantic's complaints, with its place and what was found there."""
    place = ".".join(_printable(str(part)) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"unknown field {place}"
    message = detail["msg"].removeprefix("Value error, ").replace(" after validation", "")
    told = f"{place}: {message}" if place else message
    # A whole list or object would bury the message.
    if isinstance(detail["input"], dict | list):
        return told
    return f"{told}, not {repr(detail['input'])[:80]}"
