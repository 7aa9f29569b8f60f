"""Reads a bundle from a directory or a tar file, and verifies it against its manifest.

A tar file is never unpacked, and every byte is hashed before it is used.
"""

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

__all__ = ["Bundle", "parse_manifest", "validation_message"]

# Deepest directory of a bundle; links can form a loop.
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The files that are deployed with a model, verified by their hashes.

    Attributes:
        manifest: Description of the model and its files.
        manifest_sha256: SHA-256 digest of the manifest, to be pinned in the config.
        files: Content of all other files by name; these are the bytes that were hashed.
        pinned: Whether the reader named the digest, or wrote the bundle. Native code runs only
            from a pinned bundle.
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
        """Read and verify a bundle.

        Args:
            path: Path of the directory or tar file.
            manifest_sha256: Digest that the manifest must have; None accepts any.
            max_bytes: Largest accepted size of the bundle.

        Raises:
            BundleError: The bundle cannot be read, or does not match its manifest or the pin.
        """
        path = Path(path)
        files = _read_files(path, max_bytes=max_bytes)
        if MANIFEST_FILE not in files:
            raise BundleNotFoundError(f"{path}: contains no {MANIFEST_FILE}, so it is not a bundle")
        data = files.pop(MANIFEST_FILE)
        digest = hashlib.sha256(data).hexdigest()
        if manifest_sha256 is not None and digest != manifest_sha256:
            raise BundleTamperedError(
                f"{path}: {MANIFEST_FILE} has the digest {digest}, but {manifest_sha256} is pinned"
            )
        manifest = parse_manifest(data, str(path))
        _check_files(manifest, files, path)
        return cls(
            manifest=manifest,
            manifest_sha256=digest,
            files=files,
            pinned=manifest_sha256 is not None,
        )

    @property
    def doubt(self) -> str:
        """Why the audit in the bundle established no share of flips; empty if it has no reason."""
        try:
            doubt = json.loads(self.files["audit.json"])["classifier"]["doubt"]
        except (KeyError, TypeError, ValueError, RecursionError):
            # Without an audit, or with one that another version wrote.
            return ""
        return _printable(str(doubt))

    def classifier(self, *, probe_rows: int = DEFAULT_PROBE_ROWS) -> Classifier:
        """Load the classifier, and test it on probe rows; imports torch.

        Raises:
            ClassifierError: Its behaviour contradicts the manifest.
        """
        from monitor.bundle.classifier import load_classifier

        file = self.files[self.manifest.classifier.file]
        return load_classifier(file, self.manifest, probe_rows=probe_rows)


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Parse a manifest; errors name the field.

    Raises:
        ManifestError: The manifest is invalid, or of another format version.
    """
    try:
        content = json.loads(data, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{where}: {MANIFEST_FILE} is not valid JSON: {error}") from None
    if not isinstance(content, dict) or "format_version" not in content:
        raise ManifestError(f"{where}: {MANIFEST_FILE} has no format_version")
    version = content["format_version"]
    # Checked first: new fields of a newer format would be reported as unknown.
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise ManifestError(
            f"{where}: {MANIFEST_FILE} has format_version {version!r}; this version of "
            f"evenhand supports {FORMAT_VERSION}"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        problems = [validation_message(detail) for detail in error.errors(include_url=False)]
        text = "; ".join(problems[:5]) + ("; …" if len(problems) > 5 else "")
        raise ManifestError(f"{where}: {MANIFEST_FILE}: {text}") from None


def _read_files(path: Path, *, max_bytes: int) -> dict[str, bytes]:
    """Content of all files of a bundle by name, read once.

    Raises:
        BundleNotFoundError: The path does not exist, or is not a bundle.
        BundleTamperedError: The tar is truncated, or contains other things than regular files.
        BundleError: The bundle cannot be read, or is larger than max_bytes.
    """
    try:
        if path.is_dir():
            return _bounded(_directory(path), path, max_bytes)
        if path.is_file():
            with tarfile.open(path, "r:") as tar:
                return _bounded(_tar(tar, path), path, max_bytes)
    except (tarfile.TarError, ValueError, RecursionError, EOFError) as error:
        raise BundleTamperedError(
            f"{path}: truncated, or not an uncompressed tar file ({error}); a bundle is a "
            "directory or an uncompressed tar"
        ) from None
    except OSError as error:
        file = error.filename if isinstance(error.filename, str) else path
        raise BundleError(f"{file}: cannot be read: {error.strerror or error}") from None
    if path.exists():
        raise BundleNotFoundError(f"{path}: neither a directory nor a .tar file")
    raise BundleNotFoundError(f"{path}: no such bundle; expected a directory or a .tar file")


def _directory(path: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    # Checked before anything is read: any other directory may be huge.
    if not (path / MANIFEST_FILE).is_file():
        raise BundleNotFoundError(f"{path}: contains no {MANIFEST_FILE}, so it is not a bundle")
    # Links are followed, since mounted volumes consist of them; the depth limit ends loops.
    for folder, subfolders, names in os.walk(path, onerror=_raise, followlinks=True):
        if len(Path(folder).relative_to(path).parts) > _DEEPEST:
            raise BundleTamperedError(f"{path}: directories are nested too deeply for a bundle")
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for name in sorted(names):
            # Mounted volumes and desktops create dot files; no file of a bundle is one.
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
    remaining = max_bytes
    for name, size, stream in files:
        if name in contents:
            raise BundleTamperedError(
                f"{path}: the archive has two files named {name}; create it again"
            )
        remaining -= size
        if remaining < 0:
            raise BundleError(
                f"{path}: larger than {max_bytes} bytes; raise bundle.max_bytes to load it"
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
                f"{path}: {name} has {len(files[name])} bytes, the manifest lists {entry.bytes}"
            )
        if hashlib.sha256(files[name]).hexdigest() != entry.sha256:
            raise BundleTamperedError(f"{path}: {name} differs from its SHA-256 in the manifest")
    if unlisted := sorted(files.keys() - manifest.files.keys()):
        raise BundleTamperedError(f"{path}: {unlisted[0]} is not listed in the manifest")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"two fields are named {_printable(name)}")
        content[name] = value
    return content


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:80])


def validation_message(detail: Any) -> str:
    """Message for a validation error of pydantic: the field, the problem and the value."""
    field = ".".join(_printable(str(part)) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return f"unknown field {field}"
    message = detail["msg"].removeprefix("Value error, ").replace(" after validation", "")
    text = f"{field}: {message}" if field else message
    # Lists and objects are too long to print.
    if isinstance(detail["input"], dict | list):
        return text
    return f"{text}, not {repr(detail['input'])[:80]}"
