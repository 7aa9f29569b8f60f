"""The same rows on every engine: those of each stratum whose keyed digests come first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "DIGEST",
    "STRATUM_ROWS",
    "chosen_rows",
    "digest",
    "stratum_sizes",
    "with_stratum_sizes",
]

DIGEST, STRATUM_ROWS = "evenhand_digest", "stratum_rows"
# A prediction that was logged twice has one digest; the earlier comes first.
_TIES = ("time", "logit", "decision", "version")


def digest(rows: Any, seed: int) -> Any:
    """A number as good as random for each prediction, the same wherever it is computed."""
    key = rows.request_id + ":" + rows.row.cast("string") + f":{seed}"
    return key.hexdigest("md5")


def chosen_rows(wide: Any, narrow: Any, strata: Sequence[str], n: int) -> Any:
    """The first n of each stratum.

    Args:
        wide: All columns and the digest.
        narrow: The strata and the digest of the same rows. Ranking these few columns first keeps
            the engine from sorting whole rows.
        strata: Columns whose values define a stratum.
        n: Rows of each at most.
    """
    by_digest = ibis.window(group_by=strata or None, order_by=DIGEST)
    ranked = narrow.mutate(place=ibis.row_number().over(by_digest))
    first = ranked.filter(ranked.place < n).select(DIGEST)
    candidates = wide.semi_join(first, DIGEST)
    # A duplicate may be of another stratum, or one too many in its own.
    by_all = ibis.window(group_by=strata or None, order_by=(DIGEST, *_TIES))
    placed = candidates.mutate(evenhand_place=ibis.row_number().over(by_all))
    return placed.filter(placed.evenhand_place < n).drop("evenhand_place")


def stratum_sizes(narrow: Any, strata: Sequence[str]) -> Any:
    """How many rows each stratum has."""
    size = {STRATUM_ROWS: narrow.count()}
    return narrow.group_by(strata).agg(**size) if strata else narrow.agg(**size)


def with_stratum_sizes(chosen: pa.Table, sizes: pa.Table, strata: Sequence[str]) -> pa.Table:
    """Sorted by stratum and digest, with the number of rows that the stratum has in the window."""
    order = [(name, "ascending") for name in (*strata, DIGEST, *_TIES)]
    chosen = chosen.take(pc.sort_indices(chosen, order))
    rows = {tuple(row[s] for s in strata): row[STRATUM_ROWS] for row in sizes.to_pylist()}
    columns = [chosen[name].to_pylist() for name in strata]
    keys = zip(*columns, strict=True) if columns else [()] * chosen.num_rows
    found = pa.array([rows[key] for key in keys], pa.int64())
    return chosen.drop_columns(DIGEST).append_column(STRATUM_ROWS, found)
