"""The storage of a log's files: a local directory or object storage, behind one interface."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow import fs

from monitor.errors import TrafficError
from monitor.setting_types import holds_credentials

__all__ = ["Store", "StoredFile", "sync_folder"]

_CHUNK = 1 << 20
# A temporary file of this age is left over from a crash.
_OLD_SECONDS = 3600.0
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
# Options from the address, AWS_ENDPOINT_URL and AWS_REGION. Credentials are not copied: the S3
# client looks them up and renews them.
_FROM_ADDRESS = (
    "region",
    "scheme",
    "endpoint_override",
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "check_directory_existence_before_creation",
    "force_virtual_addressing",
    "tls_ca_file_path",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a store.

    Attributes:
        path: Path relative to the store's root, with slashes.
        bytes: Size in bytes.
    """

    path: str
    bytes: int


class Store:
    """A directory of files that are written atomically.

    Attributes:
        location: Path, or address such as `s3://bucket/prefix`, as it was configured.
        filesystem: Pyarrow filesystem.
        root: Path of the directory in the filesystem.
        is_local: Whether it is a local directory.
    """

    def __init__(self, location: str, filesystem: fs.FileSystem, root: str, mode: int) -> None:
        self.location, self.filesystem, self.root = location, filesystem, root.rstrip("/")
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._mode = mode

    @classmethod
    def open(cls, location: str | Path, *, mode: int = 0o750) -> Self:
        """Open a store, without creating or reading anything yet.

        Args:
            location: A path, or an address such as `s3://bucket/prefix`.
            mode: Permissions of local directories; files have the same without execute permission.

        Raises:
            TrafficError: The address is not supported, or contains credentials.
        """
        text = str(location)
        if "://" not in text:
            return cls(text, fs.LocalFileSystem(), str(Path(text).absolute()), mode)
        if holds_credentials(text):
            raise TrafficError(
                "the address contains credentials; remove them and set them in the environment"
            )
        try:
            filesystem, root = _from_address(text)
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise TrafficError(f"{text}: unsupported storage address: {error}") from None
        if isinstance(filesystem, fs.S3FileSystem):
            filesystem = _with_timeouts(filesystem)
        return cls(text, filesystem, root, mode)

    def path(self, relative_path: str) -> str:
        """Full path of a file in the filesystem."""
        return f"{self.root}/{relative_path}"

    def files(self, under: str = "", suffix: str = "") -> list[StoredFile]:
        """Files in a directory and below whose names end with a suffix, sorted by path.

        Raises:
            OSError: The files cannot be listed.
        """
        below = self.path(under) if under else self.root
        selector = fs.FileSelector(below, recursive=True, allow_not_found=True)
        start = len(self.root) + 1
        return sorted(
            (
                StoredFile(path=info.path[start:], bytes=info.size)
                for info in self.filesystem.get_file_info(selector)
                if info.type == fs.FileType.File
                and info.path.endswith(suffix)
                and not PurePosixPath(info.path).name.startswith(".")
            ),
            key=lambda file: file.path,
        )

    def exists(self, relative_path: str) -> bool:
        """Whether a file exists.

        Raises:
            OSError: The store cannot be read.
        """
        return bool(
            self.filesystem.get_file_info(self.path(relative_path)).type == fs.FileType.File
        )

    def read(self, relative_path: str) -> bytes:
        """Content of a file.

        Raises:
            OSError: The file cannot be read.
        """
        with self.filesystem.open_input_stream(self.path(relative_path)) as stream:
            data: bytes = stream.read()
            return data

    def open_file(self, relative_path: str) -> Any:
        """Open a file for random access.

        Raises:
            OSError: The file cannot be opened.
        """
        return self.filesystem.open_input_file(self.path(relative_path))

    def sha256(self, relative_path: str) -> str:
        """SHA-256 digest of a file.

        Raises:
            OSError: The file cannot be read.
        """
        digest = hashlib.sha256()
        with self.filesystem.open_input_stream(self.path(relative_path)) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def put(self, relative_path: str, data: bytes) -> None:
        """Write a file atomically; an existing file is replaced.

        Raises:
            OSError: The file cannot be written.
        """
        self._put(relative_path, iter((data,)), len(data))

    def put_file(self, relative_path: str, source: Path) -> None:
        """Copy a local file to the store atomically; an existing file is replaced.

        Raises:
            OSError: A file cannot be read or written.
        """
        if self.is_local:
            self._put_locally(relative_path, _chunks(source))
        else:
            # Read before the upload starts: closing a stream stores whatever was written to it.
            self.put(relative_path, source.read_bytes())

    def remove(self, relative_path: str) -> None:
        """Delete a file, and local directories that become empty.

        Raises:
            OSError: The file cannot be deleted.
        """
        if not self.is_local:
            self.filesystem.delete_file(self.path(relative_path))
            return
        file = Path(self.path(relative_path))
        file.unlink()
        for folder in file.parents:
            if folder == Path(self.root) or any(folder.iterdir()):
                break
            folder.rmdir()

    def make_folder(self, relative_path: str = "") -> Path:
        """Create a local directory with the store's permissions.

        Raises:
            OSError: The directory cannot be created.
        """
        folder = Path(self.path(relative_path) if relative_path else self.root)
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        for parent in reversed(missing):
            parent.mkdir(mode=self._mode, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """Path of a local temporary file; `remove_old_drafts` deletes it if a crash leaves it."""
        if self.is_local:
            path = self.make_folder() / f".{secrets.token_hex(8)}.draft"
            path.touch(self.file_mode)
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)
        else:
            with tempfile.TemporaryDirectory(prefix="evenhand-") as folder:
                yield Path(folder) / "draft"

    def remove_old_drafts(self) -> list[str]:
        """Delete temporary files that a crash left in a local store, and return their paths.

        Raises:
            OSError: A file cannot be deleted.
        """
        if not self.is_local:
            return []
        old = [
            path
            for path in Path(self.root).rglob(".*.draft")
            if time.time() - path.stat().st_mtime > _OLD_SECONDS
        ]
        for path in old:
            path.unlink(missing_ok=True)
        return [str(path) for path in old]

    @property
    def file_mode(self) -> int:
        """Permissions of local files."""
        return self._mode & 0o666

    def _put(self, relative_path: str, chunks: Iterator[bytes], size: int) -> None:
        if self.is_local:
            self._put_locally(relative_path, chunks)
            return
        with self.filesystem.open_output_stream(self.path(relative_path)) as stream:
            for chunk in chunks:
                stream.write(chunk)
        stored = self.filesystem.get_file_info(self.path(relative_path))
        if stored.size != size:
            raise OSError(f"{stored.size} of {size} bytes were stored")

    def _put_locally(self, relative_path: str, chunks: Iterator[bytes]) -> None:
        folder = self.make_folder(str(PurePosixPath(relative_path).parent))
        target = Path(self.path(relative_path))
        # A retry uses the same name, so that crashes do not accumulate temporary files.
        draft = folder / f".{target.name}.draft"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, self.file_mode)
            with os.fdopen(handle, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
            sync_folder(folder)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Call fsync on a directory, so that its entries survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _from_address(address: str) -> Any:
    """Filesystem and root of an address; works for S3 even while the server is down."""
    try:
        return fs.FileSystem.from_uri(address)
    except OSError:
        query = urlsplit(address).query
        if not address.startswith("s3://") or "region" in dict(parse_qsl(query)):
            raise
        # The region of the bucket cannot be requested now; use that of the environment.
        region = fs.S3FileSystem(anonymous=True).region
        return fs.FileSystem.from_uri(f"{address}{'&' if query else '?'}region={region}")


def _with_timeouts(filesystem: fs.S3FileSystem) -> fs.S3FileSystem:
    """The filesystem with timeouts and few retries."""
    _, (options,) = filesystem.__reduce__()
    return fs.S3FileSystem(
        **{name: options[name] for name in _FROM_ADDRESS if options[name]},
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
    )
