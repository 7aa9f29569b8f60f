"""Cache of a model's decisions by a digest of the row: in memory, and optionally in a file.

The file is a header followed by records of 17 bytes: a digest of 16 bytes and a decision. Digests
are keyed by the identity of the model, so records of one model never match another. Rows cannot be
recovered from digests, but anyone who knows a row can look it up. The file is therefore readable
only by its owner.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from offline_audit.errors import DecisionCacheError
from offline_audit.model.decisions import Codes, Features, Undecided

__all__ = ["DecisionCache"]

_DIGEST = 16
_MAGIC = b"evenhand decided"
_FORMAT = 1
_HEADER = struct.Struct(f"<{len(_MAGIC)}sH{_DIGEST}s")
_RECORD = np.dtype([("digest", f"V{_DIGEST}"), ("decision", "u1")])


class DecisionCache:
    """Decisions of one model.

    Rows without a decision (the model failed, or the prediction was withheld) are cached in memory
    only, so that another run tries them again.

    Args:
        identity: Values that identify the model and its decision rule.
        path: File that is read now and appended to; created if it does not exist. None to cache
            in memory only.

    Attributes:
        path: The file.

    Raises:
        DecisionCacheError: The file belongs to another model, is damaged, or cannot be used.
    """

    def __init__(self, identity: Sequence[object], path: Path | str | None = None) -> None:
        key = hashlib.blake2b(json.dumps(list(identity)).encode(), digest_size=32).digest()
        self._hash = hashlib.blake2b(digest_size=_DIGEST, key=key)
        self._header = _HEADER.pack(_MAGIC, _FORMAT, self._digest(b"is this the same model?"))
        self._known: dict[bytes, int] = {}
        self.path = None if path is None else Path(path)
        if self.path is not None:
            self._read(self.path)

    def digests(self, rows: Features) -> list[bytes]:
        """One digest per row of `[n, d]`; equal numbers of different types are different rows."""
        kind = rows.dtype.newbyteorder("<")
        data, width = rows.astype(kind, copy=False).tobytes(), kind.itemsize * rows.shape[1]
        # Rows of float32, such as those of bundles, have no prefix in files of earlier versions.
        prefix = b"" if kind == np.dtype("<f4") else kind.str.encode()
        if not width:
            return [self._digest(prefix)] * len(rows)
        return [
            self._digest(prefix + data[start : start + width])
            for start in range(0, len(data), width)
        ]

    def codes(self, digests: Sequence[bytes]) -> Codes:
        """Codes of rows; `Undecided.PENDING` if a row is not in the cache."""
        get, pending = self._known.get, int(Undecided.PENDING)
        return np.fromiter((get(digest, pending) for digest in digests), np.int8, len(digests))

    def add(self, digests: Sequence[bytes], codes: Codes) -> None:
        """Add codes of rows, and write decisions to the file.

        Raises:
            DecisionCacheError: The file cannot be written.
        """
        self._known.update(zip(digests, codes.tolist(), strict=True))
        if self.path is None:
            return
        pairs = zip(digests, codes.tolist(), strict=True)
        data = b"".join(digest + bytes([code]) for digest, code in pairs if code >= 0)
        if not data:
            return
        with self._opened(self.path) as file:
            # Overwrites a partial last record, which a killed process may have left.
            end = _end_of_records(file.seek(0, 2))
            if end < _HEADER.size:
                raise DecisionCacheError(f"{self.path}: was truncated by another process")
            file.seek(end)
            file.write(data)

    def _digest(self, data: bytes) -> bytes:
        # Copying a keyed hash takes half the time of creating one.
        row_hash = self._hash.copy()
        row_hash.update(data)
        return row_hash.digest()

    def _read(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            # touch() does not change the mode of an existing file.
            path.chmod(0o600)
        except OSError as error:
            raise _unusable(path, error) from None
        with self._opened(path) as file:
            data = file.read()
            if len(data) < _HEADER.size and self._header.startswith(data):
                file.seek(0)
                file.write(self._header)
                return
        self._check(data, path)
        records = np.frombuffer(data[_HEADER.size : _end_of_records(len(data))], _RECORD)
        if (records["decision"] > 1).any():
            raise DecisionCacheError(
                f"{path}: damaged: a record is neither 0 nor 1; delete the file"
            )
        digests: list[bytes] = records["digest"].tolist()
        self._known.update(zip(digests, records["decision"].tolist(), strict=True))

    def _check(self, data: bytes, path: Path) -> None:
        if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
            raise DecisionCacheError(
                f"{path}: not a cache of decisions; give the path of a new file"
            )
        _, version, _ = _HEADER.unpack_from(data)
        if version != _FORMAT:
            raise DecisionCacheError(
                f"{path}: has format {version}; this version of evenhand reads format {_FORMAT}"
            )
        if not data.startswith(self._header):
            raise DecisionCacheError(
                f"{path}: belongs to another model, version, endpoint or threshold; give the path "
                "of a new file"
            )

    @contextmanager
    def _opened(self, path: Path) -> Iterator[BinaryIO]:
        """The file, locked against other processes."""
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise _unusable(path, error) from None


def _end_of_records(size: int) -> int:
    """Offset after the last complete record of a file of this size."""
    return size - (size - _HEADER.size) % _RECORD.itemsize


def _unusable(path: Path, error: OSError) -> DecisionCacheError:
    return DecisionCacheError(f"{path}: cannot be used: {error.strerror or error}")
