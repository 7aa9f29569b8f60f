"""Read a bundle: every byte checked against the manifest before anything is used."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from monitor.bundle.manifest import FORMAT_VERSION, MANIFEST_FILE, Manifest
from monitor.bundle.source import read_files
from monitor.errors import BundleNotFoundError, BundleTamperedError, ManifestError

if TYPE_CHECKING:
    from monitor.bundle.classifier import Classifier

__all__ = ["DEFAULT_MAX_BYTES", "DEFAULT_PROBE_ROWS", "Bundle"]

DEFAULT_MAX_BYTES = 4 << 30
DEFAULT_PROBE_ROWS = 64


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
        files = read_files(path, max_bytes=max_bytes)
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
