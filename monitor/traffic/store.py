"""Where a log's files are: a local folder or object storage, behind the few things we do there."""

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
# A draft of that age belongs to nobody any more.
_OLD_SECONDS = 3600.0
_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0
# What an address can say, and AWS_ENDPOINT_URL and AWS_REGION. Credentials are not among it: they
# are looked up, and renewed, by whoever needs them.
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
        path: From the store's root, with slashes.
        bytes: Its size.
    """

    path: str
    bytes: int


class Store:
    """A folder of files that are whole or not there.

    Attributes:
        place: As it was named: a path, or an address such as `s3://bucket/prefix`.
        filesystem: Pyarrow's view of it.
        root: Where it begins in that.
        is_local: Whether it is a folder on this machine.
    """

    def __init__(self, place: str, filesystem: fs.FileSystem, root: str, mode: int) -> None:
        self.place, self.filesystem, self.root = place, filesystem, root.rstrip("/")
        self.is_local = isinstance(filesystem, fs.LocalFileSystem)
        self._mode = mode

    @classmethod
    def open(cls, place: str | Path, *, mode: int = 0o750) -> Self:
        """The store of a path or an address; nothing is made or asked for yet.

        Args:
            place: A path, or an address such as `s3://bucket/prefix`.
            mode: Permissions of local folders; files have the same without the right to execute.

        Raises:
            TrafficError: The address is of no kind that can be used.
        """
        text = str(place)
        if "://" not in text:
            return cls(text, fs.LocalFileSystem(), str(Path(text).absolute()), mode)
        if holds_credentials(text):
            raise TrafficError("an address holds no credentials; they belong in the environment")
        try:
            found, root = _from_address(text)
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise TrafficError(f"{text}: no such kind of storage: {error}") from None
        if isinstance(found, fs.S3FileSystem):
            found = _patient_for_long_enough(found)
        return cls(text, found, root, mode)

    def path(self, inside: str) -> str:
        """A file's full path in the filesystem."""
        return f"{self.root}/{inside}"

    def files(self, under: str = "", suffix: str = "") -> list[StoredFile]:
        """Every file below a folder whose name ends so, in the order of their paths.

        Raises:
            OSError: They cannot be listed.
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

    def exists(self, inside: str) -> bool:
        """Whether there is such a file.

        Raises:
            OSError: The store does not say.
        """
        return bool(self.filesystem.get_file_info(self.path(inside)).type == fs.FileType.File)

    def read(self, inside: str) -> bytes:
        """A file's bytes.

        Raises:
            OSError: It cannot be read.
        """
        with self.filesystem.open_input_stream(self.path(inside)) as stream:
            data: bytes = stream.read()
            return data

    def open_file(self, inside: str) -> Any:
        """A file to read from at any place.

        Raises:
            OSError: It cannot be opened.
        """
        return self.filesystem.open_input_file(self.path(inside))

    def sha256(self, inside: str) -> str:
        """A file's digest.

        Raises:
            OSError: It cannot be read.
        """
        digest = hashlib.sha256()
        with self.filesystem.open_input_stream(self.path(inside)) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def put(self, inside: str, data: bytes) -> None:
        """Write a file, in place of one of that name if there is one; whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        self._put(inside, iter((data,)), len(data))

    def put_file(self, inside: str, source: Path) -> None:
        """The same with the bytes of a local file.

        Raises:
            OSError: It cannot be read or written.
        """
        if self.is_local:
            self._put_locally(inside, _chunks(source))
        else:
            # Read before the upload begins: closing a stream stores whatever was written to it.
            self.put(inside, source.read_bytes())

    def remove(self, inside: str) -> None:
        """Delete a file, and local folders that are left empty.

        Raises:
            OSError: It cannot be deleted.
        """
        if not self.is_local:
            self.filesystem.delete_file(self.path(inside))
            return
        file = Path(self.path(inside))
        file.unlink()
        for folder in file.parents:
            if folder == Path(self.root) or any(folder.iterdir()):
                break
            folder.rmdir()

    def make_folder(self, inside: str = "") -> Path:
        """A local folder, made with the store's permissions.

        Raises:
            OSError: It cannot be made.
        """
        folder = Path(self.path(inside) if inside else self.root)
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        for each in reversed(missing):
            each.mkdir(mode=self._mode, exist_ok=True)
        return folder

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A local file to prepare another in; it is gone afterwards, or found as an old draft."""
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
        """Delete drafts that a crash left in a local store; their paths.

        Raises:
            OSError: One cannot be deleted.
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

    def _put(self, inside: str, chunks: Iterator[bytes], size: int) -> None:
        if self.is_local:
            self._put_locally(inside, chunks)
            return
        with self.filesystem.open_output_stream(self.path(inside)) as stream:
            for chunk in chunks:
                stream.write(chunk)
        stored = self.filesystem.get_file_info(self.path(inside))
        if stored.size != size:
            raise OSError(f"{stored.size} of {size} bytes were stored")

    def _put_locally(self, inside: str, chunks: Iterator[bytes]) -> None:
        folder = self.make_folder(str(PurePosixPath(inside).parent))
        target = Path(self.path(inside))
        # Of the same name whenever it is tried again, so that a crash leaves nothing behind.
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
    """Make sure that the disk knows the folder's files by their names."""
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
    """As the address says, and the environment; a store that is down keeps nobody from starting."""
    try:
        return fs.FileSystem.from_uri(address)
    except OSError:
        query = urlsplit(address).query
        if not address.startswith("s3://") or "region" in dict(parse_qsl(query)):
            raise
        # The bucket's own region cannot be asked for now.
        region = fs.S3FileSystem(anonymous=True).region
        return fs.FileSystem.from_uri(f"{address}{'&' if query else '?'}region={region}")


def _patient_for_long_enough(found: fs.S3FileSystem) -> fs.S3FileSystem:
    """The same store, which gives up in time."""
    _, (options,) = found.__reduce__()
    return fs.S3FileSystem(
        **{name: options[name] for name in _FROM_ADDRESS if options[name]},
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
    )
