"""Stratified samples, the same on every engine: the rows with the smallest keyed digests."""

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
# A prediction that was logged twice has one digest; these columns break the tie, the earlier first.
_TIES = ("time", "logit", "decision", "version")


def digest(rows: Any, seed: int) -> Any:
    """Pseudorandom digest of each prediction, the same on every engine."""
    key = rows.request_id + ":" + rows.row.cast("string") + f":{seed}"
    return key.hexdigest("md5")


def chosen_rows(wide: Any, narrow: Any, strata: Sequence[str], n: int) -> Any:
    """The n rows of each stratum with the smallest digests.

    Args:
        wide: Ibis table of all columns and the digest.
        narrow: Ibis table of the strata and the digest of the same rows. Ranking these few columns
            first saves the engine from sorting whole rows.
        strata: Columns whose values define a stratum.
        n: Largest number of rows of each stratum.
    """
    by_digest = ibis.window(group_by=strata or None, order_by=DIGEST)
    ranked = narrow.mutate(rank=ibis.row_number().over(by_digest))
    first = ranked.filter(ranked.rank < n).select(DIGEST)
    candidates = wide.semi_join(first, DIGEST)
    # A duplicate may be in another stratum, or exceed n in its own, so candidates are ranked again.
    by_all = ibis.window(group_by=strata or None, order_by=(DIGEST, *_TIES))
    ranked_again = candidates.mutate(evenhand_rank=ibis.row_number().over(by_all))
    return ranked_again.filter(ranked_again.evenhand_rank < n).drop("evenhand_rank")


def stratum_sizes(narrow: Any, strata: Sequence[str]) -> Any:
    """Number of rows of each stratum."""
    size = {STRATUM_ROWS: narrow.count()}
    return narrow.group_by(strata).agg(**size) if strata else narrow.agg(**size)


def with_stratum_sizes(chosen: pa.Table, sizes: pa.Table, strata: Sequence[str]) -> pa.Table:
    """The sample sorted by stratum and digest, with the size of each row's stratum as a column."""
    order = [(name, "ascending") for name in (*strata, DIGEST, *_TIES)]
    chosen = chosen.take(pc.sort_indices(chosen, order))
    rows = {tuple(row[s] for s in strata): row[STRATUM_ROWS] for row in sizes.to_pylist()}
    columns = [chosen[name].to_pylist() for name in strata]
    keys = zip(*columns, strict=True) if columns else [()] * chosen.num_rows
    stratum_rows = pa.array([rows[key] for key in keys], pa.int64())
    return chosen.drop_columns(DIGEST).append_column(STRATUM_ROWS, stratum_rows)
