"""The list of erased requests, so that a segment compacted later does not restore them.

One file per erasure, `_erased/…json` in the store, with the time and a salted digest of each
request id: compaction can recognise an erased request, but the id cannot be read from the file.
Rows that are written later under the same id are kept.
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

from monitor.traffic.columns import TIME, rebuild_dictionaries
from monitor.traffic.store import Store

__all__ = ["ERASED", "Erased", "read_erased", "record_erased"]

ERASED = "_erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """Times of erasure by digest of the request id, by salt."""

    digests: Mapping[str, Mapping[str, dt.datetime]]

    def without(self, table: pa.Table) -> pa.Table:
        """The table without rows of requests that were erased after they were written."""
        if not self.digests:
            return table
        names = pc.unique(table["request_id"]).to_pylist()
        erased_ids = {name: at for name in names if (at := self._at(name)) is not None}
        if not erased_ids:
            return table
        written = table["time" if "time" in table.column_names else "received_at"]
        index = pc.index_in(table["request_id"], pa.array(list(erased_ids), pa.string()))
        erased_at = pc.take(pa.array(list(erased_ids.values()), TIME), index)
        erased = pc.fill_null(pc.less_equal(written, erased_at), fill_value=False)
        return rebuild_dictionaries(table.filter(pc.invert(erased)))

    def _at(self, name: str) -> dt.datetime | None:
        """Time of the last erasure of a request id."""
        times = (known.get(_digest(salt, name)) for salt, known in self.digests.items())
        return max((at for at in times if at is not None), default=None)


def read_erased(store: Store) -> Erased:
    """Read the list of erased requests of a store.

    Raises:
        OSError: The store cannot be read.
    """
    digests: dict[str, dict[str, dt.datetime]] = {}
    for file in store.files(ERASED, ".json"):
        erasure = json.loads(store.read(file.path))
        at = dt.datetime.fromisoformat(erasure["at"])
        known = digests.setdefault(erasure["salt"], {})
        for digest in erasure["digests"]:
            known[digest] = max(at, known.get(digest, at))
    return Erased(digests=digests)


def record_erased(store: Store, names: Iterable[str]) -> None:
    """Add request ids to the list of erased requests, with the current time.

    Raises:
        OSError: The list cannot be written.
    """
    salt = next(iter(read_erased(store).digests), secrets.token_hex(16))
    digests = sorted(_digest(salt, name) for name in names)
    now = dt.datetime.now(dt.UTC)
    path = f"{ERASED}/date={now:%Y-%m-%d}/{secrets.token_hex(8)}.json"
    erasure = {"salt": salt, "at": now.isoformat(), "digests": digests}
    store.put(path, json.dumps(erasure).encode())


def _digest(salt: str, name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=16, key=bytes.fromhex(salt)).hexdigest()
