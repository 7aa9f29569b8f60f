"""Who was erased from a log, so that nobody comes back with a segment that was still somewhere.

A file an erasure, `_erased/…json` in the store, with a salted digest of each name and the time:
whoever compacts a segment can tell that a request was erased, and nobody can read from it whose it
was. What a client sends later under the same id is not meant by it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute as pc

from monitor.traffic.columns import TIME, fresh_words
from monitor.traffic.store import Store

__all__ = ["ERASED", "Erased", "read_erased", "remember_erased"]

ERASED = "_erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """When names were erased: times by digest, by the digests' salt."""

    digests: Mapping[str, Mapping[str, dt.datetime]]

    def without(self, table: pa.Table) -> pa.Table:
        """A table's rows but those of requests that were erased after they were written."""
        if not self.digests:
            return table
        names = pc.unique(table["request_id"]).to_pylist()
        gone = {name: at for name in names if (at := self._at(name)) is not None}
        if not gone:
            return table
        written = table["time" if "time" in table.column_names else "received_at"]
        place = pc.index_in(table["request_id"], pa.array(list(gone), pa.string()))
        erased_at = pc.take(pa.array(list(gone.values()), TIME), place)
        erased = pc.fill_null(pc.less_equal(written, erased_at), fill_value=False)
        return fresh_words(table.filter(pc.invert(erased)))

    def _at(self, name: str) -> dt.datetime | None:
        """When a name was erased last."""
        found = (known.get(_digest(salt, name)) for salt, known in self.digests.items())
        return max((at for at in found if at is not None), default=None)


def read_erased(store: Store) -> Erased:
    """Everybody who was erased from a store.

    Raises:
        OSError: The store does not say.
    """
    digests: dict[str, dict[str, dt.datetime]] = {}
    for file in store.files(ERASED, ".json"):
        found = json.loads(store.read(file.path))
        at, known = dt.datetime.fromisoformat(found["at"]), digests.setdefault(found["salt"], {})
        for digest in found["digests"]:
            known[digest] = max(at, known.get(digest, at))
    return Erased(digests=digests)


def remember_erased(store: Store, names: Iterable[str]) -> None:
    """Remember that requests of these names are erased as of now.

    Raises:
        OSError: It cannot be written.
    """
    salt = next(iter(read_erased(store).digests), secrets.token_hex(16))
    digests = sorted(_digest(salt, name) for name in names)
    now = dt.datetime.now(dt.UTC)
    path = f"{ERASED}/date={now:%Y-%m-%d}/{secrets.token_hex(8)}.json"
    said = {"salt": salt, "at": now.isoformat(), "digests": digests}
    store.put(path, json.dumps(said).encode())


def _digest(salt: str, name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16, key=bytes.fromhex(salt)).hexdigest()
