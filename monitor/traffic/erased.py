"""Who was erased from a log, so that nobody comes back with a segment that was still somewhere.

A file an erasure, `_erased/…json` in the store, with a salted digest of each name: whoever compacts
a segment can tell that a request was erased, and nobody can read from it whose it was.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute as pc

from monitor.traffic.store import Store

__all__ = ["ERASED", "Erased", "read_erased", "remember_erased"]

ERASED = "_erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Digests of names, by their salt."""

    digests: dict[str, frozenset[str]]

    def without(self, table: pa.Table) -> pa.Table:
        """A table's rows of requests that were not erased."""
        if not self.digests:
            return table
        names = pc.unique(table["request_id"]).to_pylist()
        gone = [
            name
            for name in names
            if any(_digest(salt, name) in known for salt, known in self.digests.items())
        ]
        if not gone:
            return table
        return table.filter(pc.invert(pc.is_in(table["request_id"], pa.array(gone, pa.string()))))


def read_erased(store: Store) -> Erased:
    """Everybody who was erased from a store.

    Raises:
        OSError: The store does not say.
    """
    digests: dict[str, set[str]] = {}
    for file in store.files(ERASED, ".json"):
        found = json.loads(store.read(file.path))
        digests.setdefault(found["salt"], set()).update(found["digests"])
    return Erased(digests={salt: frozenset(known) for salt, known in digests.items()})


def remember_erased(store: Store, names: Iterable[str]) -> None:
    """Remember that requests of these names were erased.

    Raises:
        OSError: It cannot be written.
    """
    salt = next(iter(read_erased(store).digests), secrets.token_hex(16))
    digests = sorted(_digest(salt, name) for name in names)
    now = dt.datetime.now(dt.UTC)
    path = f"{ERASED}/date={now:%Y-%m-%d}/{secrets.token_hex(8)}.json"
    store.put(path, json.dumps({"salt": salt, "digests": digests}).encode())


def _digest(salt: str, name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16, key=bytes.fromhex(salt)).hexdigest()
