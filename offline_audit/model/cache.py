"""Decisions that a model has given, by a digest of the row: in memory, and in a file if wanted.

The file is a header and then records of 17 bytes, each a digest of 16 and a decision. Digests are
keyed by what identifies the model, so none of them answers for another. Rows cannot be read from
them, but whoever knows a row can look for it: the file is its owner's only.
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
from offline_audit.model.outputs import Codes, Features, Undecided

__all__ = ["DecisionCache"]

_DIGEST = 16
_MAGIC = b"evenhand decided"
_FORMAT = 1
_HEADER = struct.Struct(f"<{len(_MAGIC)}sH{_DIGEST}s")
_RECORD = np.dtype([("digest", f"V{_DIGEST}"), ("decision", "u1")])


class DecisionCache:
    """Decisions of one model.

    What is no decision (a row on which the model failed, or that was withheld) is known as long as
    this object lives, and never written: another run asks for it again.

    Args:
        identity: Everything that tells the model, and how its answers are read, from any other.
        path: A file that is read now and appended to, made if it is not there; None keeps
            decisions in memory only.

    Attributes:
        path: The file.

    Raises:
        DecisionCacheError: The file is another model's, is damaged, or cannot be used.
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
        """Of each row, `[n, d]`."""
        data, width = rows.astype("<f4", copy=False).tobytes(), 4 * rows.shape[1]
        if not width:
            return [self._digest(b"")] * len(rows)
        return [self._digest(data[at : at + width]) for at in range(0, len(data), width)]

    def codes(self, digests: Sequence[bytes]) -> Codes:
        """What is known of some rows; `Undecided.UNASKED` where nothing is."""
        get, unasked = self._known.get, int(Undecided.UNASKED)
        return np.fromiter((get(digest, unasked) for digest in digests), np.int8, len(digests))

    def keep(self, digests: Sequence[bytes], codes: Codes) -> None:
        """Add what some rows were answered.

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
            # Over what a killed process left behind the last whole record, which is shorter.
            end = _whole(file.seek(0, 2))
            if end < _HEADER.size:
                raise DecisionCacheError(f"{self.path}: was cut short by somebody else")
            file.seek(end)
            file.write(data)

    def _digest(self, data: bytes) -> bytes:
        # A copy of a hash that has its key already, which takes half the time.
        found = self._hash.copy()
        found.update(data)
        return found.digest()

    def _read(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            # Also where it was there before.
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
        records = np.frombuffer(data[_HEADER.size : _whole(len(data))], _RECORD)
        if (records["decision"] > 1).any():
            raise DecisionCacheError(f"{path}: damaged, with records that are no decisions")
        digests: list[bytes] = records["digest"].tolist()
        self._known.update(zip(digests, records["decision"].tolist(), strict=True))

    def _check(self, data: bytes, path: Path) -> None:
        if not data.startswith(_MAGIC) or len(data) < _HEADER.size:
            raise DecisionCacheError(f"{path}: no cache of decisions; give the path of a new file")
        _, version, _ = _HEADER.unpack_from(data)
        if version != _FORMAT:
            raise DecisionCacheError(
                f"{path}: a cache of format {version}; this evenhand reads {_FORMAT}"
            )
        if not data.startswith(self._header):
            raise DecisionCacheError(
                f"{path}: holds decisions of another model, version or endpoint, or by another "
                "threshold; give the path of a new file"
            )

    @contextmanager
    def _opened(self, path: Path) -> Iterator[BinaryIO]:
        """The file, for no other process meanwhile."""
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
        except OSError as error:
            raise _unusable(path, error) from None


def _whole(size: int) -> int:
    """Where the last record that was written to its end does end."""
    return size - (size - _HEADER.size) % _RECORD.itemsize


def _unusable(path: Path, error: OSError) -> DecisionCacheError:
    return DecisionCacheError(f"{path}: cannot be used: {error.strerror or error}")
